import type { Progress } from '../api/types';
import { formatDuration } from '../format/duration';

/** How far a running job is, by its own report. */
export function ProgressBar({ progress }: { progress: Progress }) {
  const { percent, message, seconds_left: left } = progress;
  return (
    <div class="progress">
      <progress max={100} value={percent} aria-label="Progress" />
      <span>
        {percent} % {message}
        {left !== null && <span class="muted"> · about {formatDuration(left * 1000)} left</span>}
      </span>
    </div>
  );
}
