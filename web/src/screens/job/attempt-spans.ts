import type { TreeNode } from '../../api/types';
import type { TimelineSpan } from '../../components/timeline';
import { formatDuration } from '../../format/duration';

/** When a job waited and when each of its attempts ran. */
export function attemptSpans(job: TreeNode): TimelineSpan[] {
  const spans: TimelineSpan[] = [];
  let waitedFrom = job.created_at;
  const addWait = (to: string | null) => {
    const length = (to ? Date.parse(to) : Date.now()) - Date.parse(waitedFrom);
    const label = `waited ${formatDuration(Math.max(0, length))}`;
    spans.push({ from: waitedFrom, to, status: 'waiting', label });
  };
  for (const { attempt, status, started_at, completed_at, duration_ms } of job.attempts) {
    if (!started_at) continue;
    addWait(started_at);
    const label = `attempt ${attempt}: ${status}, ${formatDuration(duration_ms)}`;
    spans.push({ from: started_at, to: completed_at, status, label });
    waitedFrom = completed_at;
  }
  if (job.status === 'running' && job.started_at) {
    addWait(job.started_at);
    spans.push({ from: job.started_at, to: null, status: 'running', label: 'running' });
  } else if (job.status === 'queued') {
    addWait(null);
  }
  return spans;
}
