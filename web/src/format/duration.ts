const UNITS: readonly [string, number][] = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
  ['s', 1],
];

/** Formats milliseconds with at most two units: `840 ms`, `2.4 s`, `3 min 20 s`. */
export function formatDuration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined) return '–';
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  let rest = Math.round(milliseconds / 1000);
  const parts: string[] = [];
  for (const [unit, seconds] of UNITS) {
    if (rest < seconds && !parts.length) continue;
    const count = Math.floor(rest / seconds);
    rest -= count * seconds;
    if (count) parts.push(`${count} ${unit}`);
    if (parts.length === 2 || (parts.length && !count)) break;
  }
  return parts.join(' ');
}

/** Formats a distance in time: `in 5 min`, `2 h ago`, `now`. */
export function formatDistance(milliseconds: number): string {
  const seconds = Math.round(Math.abs(milliseconds) / 1000);
  if (seconds < 1) return 'now';
  const [unit, size] = UNITS.find(([, length]) => seconds >= length) ?? ['s', 1];
  const text = `${Math.floor(seconds / size)} ${unit}`;
  return milliseconds > 0 ? `in ${text}` : `${text} ago`;
}

const LENGTHS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** The milliseconds of a text as the configuration has them, `1h30m`; null for any other text. */
export function parseDuration(text: string): number | null {
  if (!/^(\d+(ms|[smhdw]))+$/.test(text)) return null;
  const parts = text.matchAll(/(\d+)(ms|[smhdw])/g);
  return [...parts].reduce(
    (sum, [, count, unit]) => sum + Number(count) * LENGTHS[unit as keyof typeof LENGTHS],
    0,
  );
}
