/** Numbers of attempts by status. */
export type Counts = Record<string, number>;

/** Adds the counts of each name. */
export function addCounts(entries: readonly (readonly [string, Counts])[]): Map<string, Counts> {
  const sums = new Map<string, Counts>();
  for (const [name, counts] of entries) {
    const sum = { ...sums.get(name) };
    for (const [status, count] of Object.entries(counts)) sum[status] = (sum[status] ?? 0) + count;
    sums.set(name, sum);
  }
  return sums;
}

export function totalOf(counts: Counts): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
