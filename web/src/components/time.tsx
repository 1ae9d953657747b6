import { useComputed } from '@preact/signals';
import { session } from '../api/session';
import { formatDistance, formatDuration } from '../format/duration';
import { describeTime, formatTime, now, toMillis } from '../format/time';

interface TimeProps {
  at: string | null | undefined;
  /** Show the distance to now instead of the clock. */
  relative?: boolean;
}

/** A time in the viewer's zone, with the gateway's on hover. */
export function Time({ at, relative }: TimeProps) {
  if (!at) return <span class="muted">–</span>;
  const title = describeTime(at, session.value?.gateway?.timezone);
  return (
    <time dateTime={at} title={title}>
      {relative ? <Distance key={at} at={at} /> : formatTime(at)}
    </time>
  );
}

function Distance({ at }: { at: string }) {
  // The text is a signal of its own: a tick changes only the texts that differ.
  // The time of the last tick may be before that of an event which has just arrived.
  const text = useComputed(() => formatDistance(toMillis(at) - Math.max(now.value, Date.now())));
  return <>{text}</>;
}

/** How long something took, or has taken so far. */
export function Elapsed({ from, to }: { from: string | null; to?: string | null | undefined }) {
  if (!from) return <span class="muted">–</span>;
  if (to) return <>{formatDuration(toMillis(to) - toMillis(from))}</>;
  return <Running key={from} from={from} />;
}

function Running({ from }: { from: string }) {
  const text = useComputed(() => formatDuration(Math.max(0, now.value - toMillis(from))));
  return <>{text}</>;
}
