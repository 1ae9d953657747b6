import { Dialog } from '../components/dialog';
import { isHelpOpen, SCREENS } from './shortcuts';

const KEYS: readonly [string, string][] = [
  ['/', 'Search for a job, plugin, pipeline or screen'],
  ['j  k', 'Next and previous row'],
  ['Enter', 'Open the row'],
  ['?', 'Show this help'],
  ['Esc', 'Close a dialog'],
];

export function HelpDialog() {
  if (!isHelpOpen.value) return null;
  const close = () => {
    isHelpOpen.value = false;
  };
  return (
    <Dialog title="Keyboard" onClose={close} isLight>
      <div class="dialog-body keys">
        <dl>
          {KEYS.map(([key, text]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        <dl>
          {SCREENS.map(({ letter, name }) => (
            <div key={letter}>
              <dt>
                <kbd>g</kbd> <kbd>{letter}</kbd>
              </dt>
              <dd>{name}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Dialog>
  );
}
