// Silence a rule for some time, end the silence, or send a test message.

import { useState } from 'preact/hooks';
import { path, post } from '../../api/client';
import { can } from '../../api/session';
import type { AlertRule } from '../../api/types';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { notify, report } from '../../components/toast';

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

const FIELDS: readonly FormField[] = [
  { name: 'duration', label: 'For', isRequired: true, value: '2h' },
];

function SilenceDialog({ rule, onDone, onClose }: SilenceDialogProps) {
  const silence = async (values: FormValues) => {
    await post(path('alerts', rule.rule, 'silence'), values);
    notify(`${rule.rule} is silenced.`);
    onClose();
    onDone();
  };
  return (
    <FormDialog
      title={`Silence ${rule.rule}?`}
      fields={FIELDS}
      confirm="Silence"
      cancel="Keep it as it is"
      isDestructive
      onSubmit={silence}
      onClose={onClose}
    >
      <p>It sends no messages in this time. Its state is still shown here.</p>
    </FormDialog>
  );
}
