// A failure that is to stay as it is.

import { path, post } from '../../api/client';
import type { Json } from '../../api/json';
import type { BulkResult, JobFailure } from '../../api/types';
import { ask } from '../../components/dialog';
import { notify, report } from '../../components/toast';
import { countOf } from '../../format/text';

const LIMIT = 1000;

/** Acknowledges the jobs of a line of the home page, after a look at their number. */
export async function acknowledge({ job_id, jobs, ...failure }: JobFailure): Promise<void> {
  if (jobs === 1) {
    await report(post(path('job', job_id, 'acknowledge')), 'The job is acknowledged.');
    return;
  }
  const { status, plugin, command, pipeline } = failure;
  const filter = { status, plugin, command, ...(plugin === 'core.wait' && { pipeline }) };
  const send = (terms: Record<string, Json>) =>
    post<BulkResult>('/jobs/acknowledge', { filter, limit: LIMIT, ...terms });
  try {
    const { count, more } = await send({ dry_run: true });
    const isSure = await ask({
      title: `Acknowledge ${countOf(count, `${status} job`)} of ${plugin}.${command}?`,
      text: `They stay as they are, and leave this page.${more ? ' There are more of them.' : ''}`,
      confirm: 'Acknowledge them',
    });
    if (!isSure) return;
    // Refused if other jobs match by now.
    await report(send({ expected: count }), `${countOf(count, 'job')} acknowledged.`);
  } catch (error) {
    notify((error as Error).message, true);
  }
}
