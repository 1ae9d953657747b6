// Keys of the page: `/`, `j`, `k`, `g` then a letter, `?`.

import { signal } from '@preact/signals';
import { navigate } from '../router/router';

export const isHelpOpen = signal(false);
export const isSearchOpen = signal(false);

/** The letter after `g`, the path and the name of each screen, in the order of the menu. */
export const SCREENS: readonly { letter: string; path: string; name: string }[] = [
  { letter: 'h', path: '/', name: 'Home' },
  { letter: 'j', path: '/jobs', name: 'Jobs' },
  { letter: 'r', path: '/runs', name: 'Runs' },
  { letter: 'v', path: '/approvals', name: 'Approvals' },
  { letter: 's', path: '/schedules', name: 'Schedules' },
  { letter: 'p', path: '/pipelines', name: 'Pipelines' },
  { letter: 'l', path: '/plugins', name: 'Plugins' },
  { letter: 'w', path: '/webhooks', name: 'Webhooks' },
  { letter: 'a', path: '/agents', name: 'Agents' },
  { letter: 't', path: '/alerts', name: 'Alerts' },
  { letter: 'e', path: '/events', name: 'Events' },
  { letter: 'c', path: '/configuration', name: 'Configuration' },
];

const CHORD_MS = 1500;
let chordStarted = Number.NEGATIVE_INFINITY;

export function handleKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector('dialog[open]')) return;
  if (event.timeStamp - chordStarted < CHORD_MS) {
    chordStarted = Number.NEGATIVE_INFINITY;
    const screen = SCREENS.find(({ letter }) => letter === event.key);
    if (screen) {
      event.preventDefault();
      navigate(screen.path);
    }
    return;
  }
  const action = ACTIONS[event.key];
  if (!action) return;
  event.preventDefault();
  action(event);
}

const ACTIONS: Record<string, (event: KeyboardEvent) => void> = {
  g: (event) => {
    chordStarted = event.timeStamp;
  },
  '/': () => {
    isSearchOpen.value = true;
  },
  '?': () => {
    isHelpOpen.value = true;
  },
  j: () => moveRow(1),
  k: () => moveRow(-1),
};

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input, textarea, select');
}

/** Moves the focus to the first link of the next or previous row; Enter then opens it. */
function moveRow(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>('tbody tr, [data-row]')];
  const links = rows.flatMap((row) => row.querySelector<HTMLElement>('a') ?? []);
  const current = links.findIndex((link) =>
    link.closest('tr, [data-row]')?.contains(document.activeElement),
  );
  const next = links[current < 0 ? (step > 0 ? 0 : links.length - 1) : current + step];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}
