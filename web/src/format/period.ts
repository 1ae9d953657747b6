// Periods that a list can be limited to.

const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const LENGTHS: Record<string, number> = {
  'last hour': HOUR_MS,
  'last 12 hours': 12 * HOUR_MS,
  'last 24 hours': 24 * HOUR_MS,
  'last 7 days': 168 * HOUR_MS,
};

export const PERIODS = Object.keys(LENGTHS);

/** Returns when a period began, or undefined for any time. */
export function sinceOf(period: string): string | undefined {
  const length = LENGTHS[period];
  if (!length) return undefined;
  // Whole minutes, so that the address does not change with every event.
  return new Date(Math.floor((Date.now() - length) / MINUTE_MS) * MINUTE_MS).toISOString();
}
