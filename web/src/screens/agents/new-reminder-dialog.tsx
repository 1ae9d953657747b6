import { post } from '../../api/client';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { notify } from '../../components/toast';
import { parseDuration } from '../../format/duration';

const FIELDS: readonly FormField[] = [
  { name: 'agent_id', label: 'Agent', isRequired: true },
  { name: 'delay', label: 'Once, after', placeholder: '5m or 1h30m' },
  { name: 'schedule', label: 'Or repeatedly, by cron in UTC', placeholder: '0 9 * * 1' },
  { name: 'payload', label: 'Payload', isJson: true, value: '{}' },
];

/** The request for a reminder, with the delay in milliseconds. */
export function reminderRequest({ delay, ...values }: FormValues) {
  if (delay === undefined) return values;
  const delayMs = parseDuration(String(delay));
  if (delayMs === null) throw new Error(`${delay} is not a duration such as 5m or 1h30m.`);
  return { ...values, delay_ms: delayMs };
}

interface NewReminderDialogProps {
  onDone: () => void;
  onClose: () => void;
}

export function NewReminderDialog({ onDone, onClose }: NewReminderDialogProps) {
  const create = async (values: FormValues) => {
    await post('/gateway/cron', reminderRequest(values));
    notify('The agent is reminded.');
    onClose();
    onDone();
  };
  return (
    <FormDialog
      title="New reminder"
      fields={FIELDS}
      confirm="Create"
      onSubmit={create}
      onClose={onClose}
    />
  );
}
