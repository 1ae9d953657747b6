// A failure that is to stay as it is.

import { path, post } from '../../api/client';
import type { BulkResult, JobFailure } from '../../api/types';
import { ask } from '../../components/dialog';
import { report } from '../../components/toast';
import { countOf } from '../../format/text';

const LIMIT = 1000;

/** Acknowledges the jobs of a line of the home page: of many only those that it has counted. */
export async function acknowledge({ job_id, jobs, ...failure }: JobFailure): Promise<void> {
  const done = 'They stay as they are. A retry brings them back to the queue.';
  if (jobs === 1) {
    await report(post(path('job', job_id, 'acknowledge')), 'The job is acknowledged.');
    return;
  }
  const count = countOf(jobs, `${failure.status} job`);
  const isSure = await ask({
    title: `Acknowledge ${count} of ${failure.plugin}.${failure.command}?`,
    text: done,
    confirm: 'Acknowledge them',
  });
  if (!isSure) return;
  const { status, plugin, command, pipeline } = failure;
  const filter = { status, plugin, command, ...(plugin === 'core.wait' && { pipeline }) };
  await report(
    post<BulkResult>('/jobs/acknowledge', { filter, limit: LIMIT }),
    (result) => `${countOf(result.count, 'job')} acknowledged.`,
  );
}
