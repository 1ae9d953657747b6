// Replay a finished job with an edited payload.

import { useState } from 'preact/hooks';
import { path, post, RawJson } from '../../api/client';
import { formatJson, type Json, REDACTED } from '../../api/json';
import { useResource } from '../../api/resource';
import type { Job, PluginDetail } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { checkPayload, PayloadEditor, type Schema } from '../../components/schema-form';
import { report } from '../../components/toast';
import { navigate } from '../../router/router';

interface ReplayDialogProps {
  job: Job;
  onClose: () => void;
}

/** The part of a job's payload that a replay replaces: for `handle` that of its event. */
export function editablePayload({ command, payload }: Pick<Job, 'command' | 'payload'>): Json {
  const given = (payload ?? {}) as Record<string, Json>;
  return command === 'handle' && 'payload' in given ? (given.payload ?? {}) : given;
}

/** Returns why an edited payload cannot be sent, or null. An unedited one is not sent. */
function checkEdit(text: string, original: string): string | null {
  if (text === original || !text.includes(REDACTED)) return null;
  return `Replace each ${REDACTED} by its value: the job would receive this text, not the secret.`;
}

/** The body of the request: without edits the gateway uses the payload that it has stored. */
function replayBody(text: string, original: string): { payload?: RawJson } {
  return text === original ? {} : { payload: new RawJson(text) };
}

export function ReplayDialog({ job, onClose }: ReplayDialogProps) {
  const [original] = useState(() => formatJson(editablePayload(job)));
  const [text, setText] = useState(original);
  const problem = checkEdit(text, original);
  const plugin = useResource<PluginDetail>(path('plugin', job.plugin));
  const command = plugin.data?.commands.find(({ name }) => name === job.command);
  const schema = (command?.input_schema ?? null) as Schema | null;
  const replay = async () => {
    const body = replayBody(text, original);
    const sent = post<{ job_id: string }>(path('job', job.job_id, 'replay'), { ...body });
    const result = await report(sent, 'A new job with this payload is queued.');
    if (!result) return;
    onClose();
    navigate(`/jobs/${result.job_id}`);
  };
  return (
    <Dialog title={`Replay ${job.plugin}.${job.command}`} onClose={onClose} wide>
      <div class="dialog-body">
        <p class="muted">A new job runs with this payload. The finished job stays as it is.</p>
        {original.includes(REDACTED) && (
          <p class="muted">
            {REDACTED} replaces a secret. Without edits the new job receives the secret; an edited
            payload is sent as it is here.
          </p>
        )}
        <PayloadEditor schema={schema} text={text} onChange={setText} />
        <p class="problem" role="alert">
          {problem}
        </p>
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button
          type="button"
          class="primary"
          disabled={problem !== null || checkPayload(text, null) !== null}
          onClick={replay}
        >
          Replay
        </button>
      </footer>
    </Dialog>
  );
}
