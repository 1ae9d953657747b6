import { countOf, words } from '../format/text';

const ORDER = ['succeeded', 'skipped', 'failed', 'timed_out', 'dead'];

interface OutcomeBarProps {
  counts: Record<string, number>;
  /** Its length relative to the largest. */
  share?: number;
  /** What the bar is about. */
  label?: string;
  isUpright?: boolean;
}

/** The outcomes of many attempts as one bar. */
export function OutcomeBar({ counts, share = 1, label, isUpright }: OutcomeBarProps) {
  const parts = ORDER.filter((status) => counts[status]).map((status) => ({
    status,
    count: counts[status] ?? 0,
  }));
  const found = parts.map(({ status, count }) => `${count} ${words(status)}`).join(', ');
  const total = parts.reduce((sum, { count }) => sum + count, 0);
  const text = (label ? `${label}: ` : '') + (found || countOf(0, 'attempt'));
  const length = `${Math.max(2, share * 100)}%`;
  return (
    <div class="outcomes" role="img" aria-label={text} title={text}>
      <div class="outcomes-bar" style={isUpright ? { height: length } : { width: length }}>
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
