// What running jobs report of their progress, by the event stream.

import { signal } from '@preact/signals';
import type { GatewayEvent, Progress } from './types';

type Reported = Progress & { job_id: string };

/** The newest report of each running job. */
export const reported = signal<ReadonlyMap<string, Progress>>(new Map());

/** Keeps the progress in these events, forgets that of jobs that ended, and returns the others. */
export function takeProgress(events: GatewayEvent[]): GatewayEvent[] {
  const found = new Map(reported.value);
  for (const { topic, type, data } of events) {
    const { job_id, ...progress } = (data ?? {}) as unknown as Reported;
    if (type === 'job.progress') found.set(job_id, progress);
    else if (topic === 'jobs') found.delete(job_id);
  }
  if (found.size || reported.value.size) reported.value = found;
  return events.filter(({ type }) => type !== 'job.progress');
}
