// Set or remove one key of a plugin's state.

import { useState } from 'preact/hooks';
import { path, post } from '../../api/client';
import { can } from '../../api/session';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { notify } from '../../components/toast';

const KEY: FormField = { name: 'key', label: 'Key', isRequired: true };
const ACTIONS = {
  set: {
    title: 'Set a key of the state',
    fields: [KEY, { name: 'value', label: 'Value', isJson: true, hint: '5, true or "text"' }],
    confirm: 'Set',
    done: 'The key is set.',
  },
  remove: {
    title: 'Remove a key of the state',
    fields: [KEY],
    confirm: 'Remove',
    done: 'The key is removed.',
  },
} as const;

interface StateActionsProps {
  plugin: string;
  onDone: () => void;
}

export function StateActions({ plugin, onDone }: StateActionsProps) {
  const [action, setAction] = useState<keyof typeof ACTIONS | null>(null);
  if (!can('system:rw')) return null;
  const isRemoval = action === 'remove';
  const change = async (values: FormValues) => {
    if (!isRemoval && values.value === undefined) throw new Error('The value is missing.');
    await post(path('plugins', plugin, 'state'), { ...values, remove: isRemoval });
    notify(ACTIONS[isRemoval ? 'remove' : 'set'].done);
    setAction(null);
    onDone();
  };
  return (
    <span class="row-actions">
      <button type="button" onClick={() => setAction('set')}>
        Set a key …
      </button>
      <button type="button" class="danger-quiet" onClick={() => setAction('remove')}>
        Remove a key …
      </button>
      {action && (
        <FormDialog
          title={`${ACTIONS[action].title} of ${plugin}`}
          fields={ACTIONS[action].fields}
          confirm={ACTIONS[action].confirm}
          cancel="Keep it as it is"
          isDestructive
          onSubmit={change}
          onClose={() => setAction(null)}
        >
          <p>Its next job gets the changed state. Refused while a job of the plugin runs.</p>
        </FormDialog>
      )}
    </span>
  );
}
