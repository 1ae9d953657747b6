// What surrounds every screen: menu, search, connection, theme, session.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { connection, disconnectedAt, reconnectNow, startEvents, stopEvents } from './api/events';
import { can, logOut, session } from './api/session';
import { ask, QuestionDialog } from './components/dialog';
import { scrollToChosen } from './components/tabs';
import { Toasts } from './components/toast';
import { chooseNextTheme, themeChoice } from './format/theme';
import { formatTime } from './format/time';
import icon from './icon.svg';
import { HelpDialog } from './keyboard/help-dialog';
import { SearchDialog } from './keyboard/search-dialog';
import { handleKey, isHelpOpen, isSearchOpen, SCREENS } from './keyboard/shortcuts';
import { Link } from './router/link';
import { currentPath } from './router/router';

export function Shell({ children }: { children: ComponentChildren }) {
  useEffect(() => {
    startEvents();
    addEventListener('keydown', handleKey);
    return () => {
      removeEventListener('keydown', handleKey);
      stopEvents();
    };
  }, []);
  return (
    <div class="shell">
      <button
        type="button"
        class="skip"
        onClick={() => document.getElementById('content')?.focus()}
      >
        Skip to the content
      </button>
      <aside class="side">
        <div class="brand">
          <img src={icon} alt="" width="22" height="22" />
          <span>{session.value?.gateway?.name ?? 'Ductile'}</span>
        </div>
        <Menu />
        <SideFoot />
      </aside>
      <div class="main">
        <DisconnectedBar />
        <main id="content" tabIndex={-1}>
          {children}
        </main>
      </div>
      <Toasts />
      <QuestionDialog />
      <HelpDialog />
      <SearchDialog />
    </div>
  );
}

function Menu() {
  const path = currentPath.value;
  const isCurrent = (own: string) => (own === '/' ? path === '/' : path.startsWith(own));
  const nav = useRef<HTMLElement>(null);
  useEffect(() => scrollToChosen(nav.current, '[aria-current]'), [path]);
  return (
    <nav class="menu" aria-label="Screens" ref={nav}>
      <button
        type="button"
        class="search-button"
        onClick={() => {
          isSearchOpen.value = true;
        }}
      >
        Search <kbd>/</kbd>
      </button>
      {SCREENS.map(({ path: own, name, letter }) => (
        <Link
          key={own}
          to={own}
          title={`g ${letter}`}
          aria-current={isCurrent(own) ? 'page' : undefined}
        >
          {name}
        </Link>
      ))}
    </nav>
  );
}

const CONNECTION_TEXT = {
  live: 'Live',
  connecting: 'Connecting …',
  disconnected: 'Disconnected',
  off: 'Not live',
};

function SideFoot() {
  const state = connection.value;
  const leave = async () => {
    const text = 'Your session on this gateway ends in this browser.';
    if (await ask({ title: 'Log out?', text, confirm: 'Log out' })) await logOut();
  };
  return (
    <div class="side-foot">
      <p class={`connection connection-${state}`} role="status">
        {CONNECTION_TEXT[state]}
        {state === 'off' && !can('events:ro') && <small> – needs the scope events:ro</small>}
      </p>
      <div class="side-buttons">
        <button
          type="button"
          class="quiet"
          onClick={chooseNextTheme}
          title="Change between the system's theme, light and dark"
        >
          Theme: {themeChoice.value}
        </button>
        <button
          type="button"
          class="quiet"
          title="Keyboard shortcuts"
          aria-label="Keyboard shortcuts"
          onClick={() => {
            isHelpOpen.value = true;
          }}
        >
          ?
        </button>
      </div>
      <div class="side-buttons">
        <span class="who" title={`Scopes: ${session.value?.scopes.join(', ')}`}>
          {session.value?.name}
        </span>
        <button type="button" class="quiet" onClick={leave}>
          Log out
        </button>
      </div>
    </div>
  );
}

function DisconnectedBar() {
  if (connection.value !== 'disconnected' || disconnectedAt.value === null) return null;
  const since = formatTime(new Date(disconnectedAt.value).toISOString());
  return (
    <div class="disconnected" role="alert">
      <span>
        <strong>Disconnected</strong> since {since}. What you see may be out of date. The page
        reconnects by itself and then shows what it missed.
      </span>
      <button type="button" onClick={reconnectNow}>
        Try now
      </button>
    </div>
  );
}
