import { reported } from '../api/progress';
import type { Progress } from '../api/types';
import { formatDuration } from '../format/duration';

/** How far a running job is, by its own report: `known` is that of the list that has it. */
export function JobProgress({ id, known }: { id: string; known: Progress | null | undefined }) {
  const progress = reported.value.get(id) ?? known;
  return progress ? <ProgressBar progress={progress} /> : null;
}

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
