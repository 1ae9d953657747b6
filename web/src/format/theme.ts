// Light or dark: the system's choice unless the viewer has chosen.

import { computed, effect, signal } from '@preact/signals';

export type ThemeChoice = 'system' | 'light' | 'dark';

const KEY = 'ductile-theme';
const CHOICES: readonly ThemeChoice[] = ['system', 'light', 'dark'];
const system = matchMedia('(prefers-color-scheme: dark)');
const systemIsDark = signal(system.matches);
system.addEventListener('change', (event) => {
  systemIsDark.value = event.matches;
});

export const themeChoice = signal<ThemeChoice>(readChoice());
export const theme = computed(() => {
  if (themeChoice.value !== 'system') return themeChoice.value;
  return systemIsDark.value ? 'dark' : 'light';
});

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

export function chooseNextTheme(): void {
  const next = CHOICES[(CHOICES.indexOf(themeChoice.value) + 1) % CHOICES.length] ?? 'system';
  themeChoice.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Storage is disabled: the choice lasts until the page is closed.
  }
}

function readChoice(): ThemeChoice {
  try {
    const stored = localStorage.getItem(KEY) as ThemeChoice;
    return CHOICES.includes(stored) ? stored : 'system';
  } catch {
    return 'system';
  }
}
