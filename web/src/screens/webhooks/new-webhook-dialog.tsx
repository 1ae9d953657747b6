import { useState } from 'preact/hooks';
import { post } from '../../api/client';
import { CopyButton } from '../../components/copy-button';
import { Dialog } from '../../components/dialog';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';

interface NewWebhookDialogProps {
  onDone: () => void;
  onClose: () => void;
}

const FIELDS: readonly FormField[] = [
  { name: 'source_identifier', label: 'Sender', isRequired: true },
  { name: 'event_type', label: 'Type of the events', isRequired: true },
  { name: 'target_session', label: 'Session of the agent', isRequired: true },
  { name: 'agent_intent', label: 'What an agent should do' },
  { name: 'target_url', label: 'Send to this URL' },
  { name: 'plugin', label: 'Or handle with this plugin' },
  { name: 'pipeline', label: 'Or start this pipeline' },
];

export function NewWebhookDialog({ onDone, onClose }: NewWebhookDialogProps) {
  const [secret, setSecret] = useState('');
  const create = async (values: FormValues) => {
    const created = await post<{ secret?: string }>('/gateway/webhook-configs', values);
    onDone();
    if (created.secret) setSecret(created.secret);
    else onClose();
  };
  if (secret) {
    return <SecretDialog title="The webhook is created" secret={secret} onClose={onClose} />;
  }
  return (
    <FormDialog
      title="New webhook"
      fields={FIELDS}
      confirm="Create"
      onSubmit={create}
      onClose={onClose}
    />
  );
}

interface SecretDialogProps {
  title: string;
  secret: string;
  onClose: () => void;
}

/** Shows a secret once; closing the dialog forgets it. */
export function SecretDialog({ title, secret, onClose }: SecretDialogProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="dialog-body">
        <p>The gateway shows this secret only once. Copy it now.</p>
        <p class="secret mono">{secret}</p>
      </div>
      <footer class="dialog-foot">
        <CopyButton text={() => secret} />
        <button type="button" class="primary" onClick={onClose}>
          Done
        </button>
      </footer>
    </Dialog>
  );
}
