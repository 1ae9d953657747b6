import { render } from 'preact';
import { startSession } from './api/session';
import { App } from './app';
import './styles/index.css';

const root = document.getElementById('app');
if (root) render(<App />, root);
void startSession();
