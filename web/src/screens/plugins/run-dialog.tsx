// Run or test a command with a payload that is edited in a form or as JSON.

import { useState } from 'preact/hooks';
import { path, post, RawJson } from '../../api/client';
import type { Json } from '../../api/json';
import { useResource } from '../../api/resource';
import type { Command, PluginDetail, PluginTrial } from '../../api/types';
import { Badge } from '../../components/badge';
import { Dialog } from '../../components/dialog';
import { JsonView } from '../../components/json-view';
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
  /** Run it once and show what a gateway would do next, without a job. */
  isTest?: boolean;
  onClose: () => void;
}

export function RunDialog({ plugin, command, isTest = false, onClose }: RunDialogProps) {
  const detail = useResource<PluginDetail>(path('plugin', plugin));
  return (
    <Dialog title={`${isTest ? 'Test' : 'Run'} ${plugin}.${command}`} onClose={onClose} wide>
      <Loaded resource={detail}>
        {({ commands }) => (
          <RunForm
            plugin={plugin}
            name={command}
            isTest={isTest}
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
  isTest: boolean;
  onClose: () => void;
}

function RunForm({ plugin, name, command, isTest, onClose }: RunFormProps) {
  const schema = (command?.input_schema ?? null) as Schema | null;
  const [text, setText] = useState(() => initialPayload(schema));
  const [trial, setTrial] = useState<PluginTrial | null>(null);
  const [isRunning, setRunning] = useState(false);
  const test = async () => {
    setRunning(true);
    const sent = { payload: new RawJson(text || '{}') };
    const result = await report(
      post<PluginTrial>(path('plugins', plugin, 'test', name), sent),
      'The test has ended.',
    );
    setTrial(result);
    setRunning(false);
  };
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
        {isTest && (
          <p class="muted">
            The process is real, and may change what it reaches outside. No job is recorded, and
            none follows.
          </p>
        )}
        <PayloadEditor schema={schema} text={text} onChange={setText} />
        {trial && (
          <section aria-label="Result">
            <p>
              <Badge status={trial.status} /> {trial.error}
            </p>
            <JsonView value={trial as unknown as Json} label="Result" />
          </section>
        )}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick={onClose}>
          Close
        </button>
        <button
          type="button"
          class="primary"
          disabled={isRunning || checkPayload(text, schema) !== null}
          onClick={isTest ? test : run}
        >
          {isTest ? 'Test' : 'Run'}
        </button>
      </footer>
    </>
  );
}
