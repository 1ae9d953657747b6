import { useState } from 'preact/hooks';
import { getText, path, post } from '../../api/client';
import { can } from '../../api/session';
import type { Job } from '../../api/types';
import { ask } from '../../components/dialog';
import { saveFile } from '../../components/save-file';
import { report } from '../../components/toast';
import { navigate } from '../../router/router';
import { ReplayDialog } from './replay-dialog';

const OPEN = new Set(['queued', 'running']);
const FAILED = new Set(['failed', 'dead']);

interface JobActionsProps {
  job: Job;
  onDone: () => void;
}

/** The actions that the job's state and the session's scopes allow. */
export function JobActions({ job, onDone }: JobActionsProps) {
  const [isEditing, setEditing] = useState(false);
  const address = (action: string) => path('job', job.job_id, action);
  const isOpen = OPEN.has(job.status);
  const cancel = async () => {
    const text =
      job.status === 'running'
        ? 'Its process is terminated. What it has done so far is not undone.'
        : 'It ends without running.';
    const isSure = await ask({
      title: `Cancel ${job.plugin}.${job.command}?`,
      text,
      confirm: 'Cancel the job',
      isDestructive: true,
    });
    if (isSure) await report(post(address('cancel')), 'The job is cancelled.');
    onDone();
  };
  const retry = async () => {
    await report(post(address('retry')), 'The job is queued again.');
    onDone();
  };
  const acknowledge = async () => {
    await report(post(address('acknowledge')), 'The job is acknowledged.');
    onDone();
  };
  const replay = async () => {
    const result = await report(
      post<{ job_id: string }>(address('replay')),
      'A new job with the same payload is queued.',
    );
    if (result) navigate(`/jobs/${result.job_id}`);
  };
  return (
    <>
      {can('jobs:rw') && FAILED.has(job.status) && (
        <button type="button" class="primary" onClick={retry}>
          Retry
        </button>
      )}
      {can('jobs:rw') && mayNeedOperator(job) && (
        <button
          type="button"
          title="It stays as it is, and is no longer on the home page."
          onClick={acknowledge}
        >
          Acknowledge
        </button>
      )}
      {can('jobs:rw') && !isOpen && !job.pruned && (
        <button type="button" onClick={replay}>
          Replay
        </button>
      )}
      {can('jobs:rw') && !isOpen && !job.pruned && (
        <button type="button" onClick={() => setEditing(true)}>
          Edit and replay …
        </button>
      )}
      {can('system:ro') && can('jobs:ro') && !isOpen && hasRun(job) && <BundleButton job={job} />}
      {can('jobs:rw') && isOpen && (
        <button type="button" class="danger" onClick={cancel}>
          Cancel
        </button>
      )}
      {isEditing && <ReplayDialog job={job} onClose={() => setEditing(false)} />}
    </>
  );
}

function mayNeedOperator({ status, pruned, cancelled, acknowledged_at }: Job): boolean {
  return FAILED.has(status) && !pruned && !cancelled && !acknowledged_at;
}

/** If its last attempt ran no process, there is nothing to repeat elsewhere. */
function hasRun({ pruned, attempts }: Job): boolean {
  const last = attempts.at(-1);
  return !pruned && !!last && (!!last.duration_ms || last.result !== null);
}

/** Fetched by the page, and not a link, so that a refusal is shown with its reason. */
function BundleButton({ job: { job_id } }: { job: Job }) {
  const [isRunning, setRunning] = useState(false);
  const download = async () => {
    setRunning(true);
    const text = await report(
      getText(path('job', job_id, 'bundle')),
      'The bundle is downloaded. Values of known secrets are removed.',
    );
    if (text !== null) saveFile(text, `job-${job_id}.json`, 'application/json');
    setRunning(false);
  };
  return (
    <button type="button" disabled={isRunning} onClick={download}>
      Download bundle
    </button>
  );
}
