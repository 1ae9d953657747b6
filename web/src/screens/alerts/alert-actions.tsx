// Silence a rule for some time, end the silence, or send a test message.

import { useState } from 'preact/hooks';
import { path, post } from '../../api/client';
import { can } from '../../api/session';
import type { AlertRule } from '../../api/types';
import { Dialog } from '../../components/dialog';
import { report } from '../../components/toast';

interface AlertActionsProps {
  rule: AlertRule;
  onDone: () => void;
}

export function AlertActions({ rule, onDone }: AlertActionsProps) {
  const [isSilencing, setSilencing] = useState(false);
  if (!can('system:rw')) return null;
  const test = async () => {
    await report(post(path('alerts', rule.rule, 'test')), `A test message is sent to ${rule.to}.`);
    onDone();
  };
  const unsilence = async () => {
    await report(post(path('alerts', rule.rule, 'unsilence')), 'The silence has ended.');
    onDone();
  };
  return (
    <span class="row-actions">
      <button type="button" onClick={test}>
        Test
      </button>
      {rule.silenced_until ? (
        <button type="button" onClick={unsilence}>
          End the silence
        </button>
      ) : (
        <button type="button" onClick={() => setSilencing(true)}>
          Silence …
        </button>
      )}
      {isSilencing && (
        <SilenceDialog rule={rule} onDone={onDone} onClose={() => setSilencing(false)} />
      )}
    </span>
  );
}

interface SilenceDialogProps extends AlertActionsProps {
  onClose: () => void;
}

function SilenceDialog({ rule, onDone, onClose }: SilenceDialogProps) {
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const duration = String(form.get('duration') ?? '').trim();
    const sent = post(path('alerts', rule.rule, 'silence'), { duration });
    if (!(await report(sent, `${rule.rule} is silenced.`))) return;
    onClose();
    onDone();
  };
  return (
    <Dialog title={`Silence ${rule.rule}?`} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          <p>It sends no messages in this time. Its state is still shown here.</p>
          <label class="field">
            <span>For</span>
            <input name="duration" required autocomplete="off" defaultValue="2h" />
          </label>
        </div>
        <footer class="dialog-foot">
          <button type="button" onClick={onClose}>
            Keep it as it is
          </button>
          <button type="submit" class="danger">
            Silence
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
