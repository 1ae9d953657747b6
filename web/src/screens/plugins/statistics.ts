// Figures of attempts or runs over time.

export interface Sample {
  at: string;
  durationMs: number | null;
  /** How long it was queued. */
  waitMs: number | null;
  status: string;
}

export interface Buckets {
  /** Seconds since 1970: the beginning of each bucket. */
  times: number[];
  p50: (number | null)[];
  p95: (number | null)[];
  wait: (number | null)[];
  all: number[];
  failed: number[];
}

const BUCKETS = 40;
const GOOD = new Set(['succeeded', 'skipped']);
/** An open run has no outcome yet. */
const OPEN = new Set(['open', 'running', 'queued']);

/** Returns the value below which `share` of the values lie. */
export function percentile(values: readonly number[], share: number): number | null {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? null;
}

/** Groups samples into equal spans of time; null if there are too few for a plot. */
export function groupSamples(samples: readonly Sample[]): Buckets | null {
  const ended = samples.filter(({ status }) => !OPEN.has(status));
  const times = ended.map(({ at }) => Date.parse(at));
  const first = Math.min(...times);
  const span = Math.max(...times) - first;
  if (ended.length < 2 || span <= 0) return null;
  const width = span / Math.min(BUCKETS, ended.length - 1);
  const groups = new Map<number, Sample[]>();
  for (const [index, sample] of ended.entries()) {
    const bucket = Math.floor(((times[index] ?? first) - first) / width);
    groups.set(bucket, [...(groups.get(bucket) ?? []), sample]);
  }
  const rows = [...groups].sort(([a], [b]) => a - b);
  const figures = (of: (sample: Sample) => number | null, share: number) =>
    rows.map(([, group]) =>
      percentile(
        group.map(of).filter((value) => value !== null),
        share,
      ),
    );
  const counts = (isWanted: (sample: Sample) => boolean) =>
    rows.map(([, group]) => group.filter(isWanted).length);
  return {
    times: rows.map(([bucket]) => (first + bucket * width) / 1000),
    p50: figures(({ durationMs }) => durationMs, 0.5),
    p95: figures(({ durationMs }) => durationMs, 0.95),
    wait: figures(({ waitMs }) => waitMs, 0.95),
    all: counts(() => true),
    failed: counts(({ status }) => !GOOD.has(status)),
  };
}
