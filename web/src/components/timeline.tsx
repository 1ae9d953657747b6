// When each step waited, ran and retried, on one axis of time.

import { formatDuration } from '../format/duration';
import { now, toMillis } from '../format/time';
import { Link } from '../router/link';

export interface TimelineSpan {
  from: string;
  to: string | null;
  /** `waiting` or the state of an attempt. */
  status: string;
  label: string;
}

export interface TimelineRow {
  id: string;
  title: string;
  href?: string | undefined;
  spans: TimelineSpan[];
}

const WIDTH = 1000;
const ROW = 24;
/** A short span stays visible, on a phone too. */
const MIN_SPAN = 8;

/** Attempts are drawn over the time between them, which would hide short ones. */
function byWaiting(a: TimelineSpan, b: TimelineSpan): number {
  return Number(b.status === 'waiting') - Number(a.status === 'waiting');
}

export function Timeline({ rows }: { rows: TimelineRow[] }) {
  const spans = rows.flatMap((row) => row.spans);
  if (!spans.length) return <p class="muted">Nothing has been queued yet.</p>;
  const begin = Math.min(...spans.map(({ from }) => toMillis(from)));
  const ends = spans.map(({ to }) => (to ? toMillis(to) : now.value));
  const length = Math.max(1, Math.max(...ends) - begin);
  const place = (time: number) => ((time - begin) / length) * WIDTH;
  return (
    <div class="timeline">
      <div class="timeline-names">
        {rows.map(({ id, title, href }) => (
          <div key={id} class="timeline-name">
            {href ? <Link to={href}>{title}</Link> : title}
          </div>
        ))}
      </div>
      <div class="timeline-bars">
        <svg
          viewBox={`0 0 ${WIDTH} ${rows.length * ROW}`}
          preserveAspectRatio="none"
          height={rows.length * ROW}
          role="img"
          aria-label={`Timeline of ${formatDuration(length)}`}
        >
          {rows.map(({ id, spans: own }, index) => (
            <g key={id}>
              {own.toSorted(byWaiting).map((span) => {
                const from = place(toMillis(span.from));
                const end = place(span.to ? toMillis(span.to) : now.value);
                const width = Math.max(MIN_SPAN, end - from);
                return (
                  <rect
                    key={span.from + span.status}
                    class={`span span-${span.status}`}
                    x={Math.min(from, WIDTH - width)}
                    y={index * ROW + 6}
                    width={width}
                    height={ROW - 12}
                    rx="2"
                  >
                    <title>{span.label}</title>
                  </rect>
                );
              })}
            </g>
          ))}
        </svg>
        <div class="timeline-axis">
          <span>0</span>
          <span>{formatDuration(length / 2)}</span>
          <span>{formatDuration(length)}</span>
        </div>
      </div>
    </div>
  );
}
