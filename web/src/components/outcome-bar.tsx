import { countOf, words } from '../format/text';

const ORDER = ['succeeded', 'skipped', 'failed', 'timed_out', 'dead'];

/** The outcomes of many attempts as one bar; `share` is its width relative to the largest. */
export function OutcomeBar({
  counts,
  share = 1,
}: {
  counts: Record<string, number>;
  share?: number;
}) {
  const parts = ORDER.filter((status) => counts[status]).map((status) => ({
    status,
    count: counts[status] ?? 0,
  }));
  const text = parts.map(({ status, count }) => `${count} ${words(status)}`).join(', ');
  const total = parts.reduce((sum, { count }) => sum + count, 0);
  return (
    <div class="outcomes" role="img" aria-label={text || countOf(0, 'attempt')} title={text}>
      <div class="outcomes-bar" style={{ width: `${Math.max(2, share * 100)}%` }}>
        {parts.map(({ status, count }) => (
          <span
            key={status}
            class={`outcome outcome-${status}`}
            style={{ flexGrow: String(count / total) }}
          />
        ))}
      </div>
    </div>
  );
}
