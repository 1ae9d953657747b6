// Replay a finished job with an edited payload.

import { useState } from 'preact/hooks';
import { path, post, RawJson } from '../../api/client';
import { formatJson, type Json } from '../../api/json';
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

export function ReplayDialog({ job, onClose }: ReplayDialogProps) {
  const [text, setText] = useState(() => formatJson(editablePayload(job)));
  const plugin = useResource<PluginDetail>(path('plugin', job.plugin));
  const command = plugin.data?.commands.find(({ name }) => name === job.command);
  const schema = (command?.input_schema ?? null) as Schema | null;
  const replay = async () => {
    const sent = post<{ job_id: string }>(path('job', job.job_id, 'replay'), {
      payload: new RawJson(text),
    });
    const result = await report(sent, 'A new job with this payload is queued.');
    if (!result) return;
    onClose();
    navigate(`/jobs/${result.job_id}`);
  };
  return (
    <Dialog title={`Replay ${job.plugin}.${job.command}`} onClose={onClose} wide>
      <div class="dialog-body">
        <p class="muted">A new job runs with this payload. The finished job stays as it is.</p>
        <PayloadEditor schema={schema} text={text} onChange={setText} />
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button
          type="button"
          class="primary"
          disabled={checkPayload(text, null) !== null}
          onClick={replay}
        >
          Replay
        </button>
      </footer>
    </Dialog>
  );
}
