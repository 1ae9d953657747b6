// Start a pipeline, or show with a dry run what would run.

import { useState } from 'preact/hooks';
import { path, post, RawJson } from '../../api/client';
import type { PipelinePlan } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { JsonView } from '../../components/json-view';
import { checkPayload, PayloadEditor } from '../../components/schema-form';
import { notify, report } from '../../components/toast';
import { navigate } from '../../router/router';

interface StartDialogProps {
  pipeline: string;
  onClose: () => void;
}

export function StartDialog({ pipeline, onClose }: StartDialogProps) {
  const [text, setText] = useState('{}');
  const [plan, setPlan] = useState<PipelinePlan | null>(null);
  const isInvalid = checkPayload(text, null) !== null;
  const address = path('pipeline', pipeline);
  const payload = () => new RawJson(text || '{}');
  const preview = async () => {
    try {
      setPlan(await post<PipelinePlan>(address, { payload: payload(), dry_run: true }));
    } catch (error) {
      notify((error as Error).message, true);
    }
  };
  const start = async () => {
    const result = await report(
      post<{ job_id: string | null; instance_id: string }>(`${address}?async=true`, {
        payload: payload(),
      }),
      'The pipeline is started.',
    );
    if (!result) return;
    onClose();
    navigate(result.job_id ? `/jobs/${result.job_id}?tab=run` : `/runs/${result.instance_id}`);
  };
  return (
    <Dialog title={`Start ${pipeline}`} onClose={onClose} wide>
      <div class="dialog-body">
        <PayloadEditor schema={null} text={text} onChange={setText} />
        {plan && <Plan plan={plan} />}
      </div>
      <footer class="dialog-foot">
        <button type="button" disabled={isInvalid} onClick={preview}>
          Dry run
        </button>
        <button type="button" class="primary" disabled={isInvalid} onClick={start}>
          Start
        </button>
      </footer>
    </Dialog>
  );
}

function Plan({ plan }: { plan: PipelinePlan }) {
  return (
    <>
      <h3>
        {plan.first.length
          ? `Would run first: ${plan.first.map(({ step }) => String(step ?? plan.step)).join(', ')}`
          : 'Nothing would run.'}
      </h3>
      <JsonView value={plan.first} label="The first steps" />
    </>
  );
}
