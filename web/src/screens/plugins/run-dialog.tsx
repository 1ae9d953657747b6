// Run a command with a payload that is edited in a form or as JSON.

import { useState } from 'preact/hooks';
import { path, post, RawJson } from '../../api/client';
import { useResource } from '../../api/resource';
import type { Command, PluginDetail } from '../../api/types';
import { Dialog } from '../../components/dialog';
import {
  checkPayload,
  initialPayload,
  PayloadEditor,
  type Schema,
} from '../../components/schema-form';
import { Loaded } from '../../components/states';
import { report } from '../../components/toast';
import { navigate } from '../../router/router';

interface RunDialogProps {
  plugin: string;
  command: string;
  onClose: () => void;
}

export function RunDialog({ plugin, command, onClose }: RunDialogProps) {
  const detail = useResource<PluginDetail>(path('plugin', plugin));
  return (
    <Dialog title={`Run ${plugin}.${command}`} onClose={onClose} wide>
      <Loaded resource={detail}>
        {({ commands }) => (
          <RunForm
            plugin={plugin}
            name={command}
            command={commands.find(({ name }) => name === command)}
            onClose={onClose}
          />
        )}
      </Loaded>
    </Dialog>
  );
}

interface RunFormProps {
  plugin: string;
  name: string;
  command: Command | undefined;
  onClose: () => void;
}

function RunForm({ plugin, name, command, onClose }: RunFormProps) {
  const schema = (command?.input_schema ?? null) as Schema | null;
  const [text, setText] = useState(() => initialPayload(schema));
  const run = async () => {
    const sent = post<{ job_id: string; deduplicated: boolean }>(path('plugin', plugin, name), {
      payload: new RawJson(text || '{}'),
    });
    const result = await report(sent, ({ deduplicated }) =>
      deduplicated ? 'The same job exists already.' : 'The job is queued.',
    );
    if (!result) return;
    onClose();
    navigate(`/jobs/${result.job_id}`);
  };
  return (
    <>
      <div class="dialog-body">
        {command?.description && <p class="muted">{command.description}</p>}
        <PayloadEditor schema={schema} text={text} onChange={setText} />
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button
          type="button"
          class="primary"
          disabled={checkPayload(text, schema) !== null}
          onClick={run}
        >
          Run
        </button>
      </footer>
    </>
  );
}
