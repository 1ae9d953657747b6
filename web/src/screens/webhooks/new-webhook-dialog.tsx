import { useState } from 'preact/hooks';
import { post } from '../../api/client';
import { CopyButton } from '../../components/copy-button';
import { Dialog } from '../../components/dialog';
import { notify } from '../../components/toast';

interface NewWebhookDialogProps {
  onDone: () => void;
  onClose: () => void;
}

const FIELDS: readonly { name: string; label: string; isRequired: boolean }[] = [
  { name: 'source_identifier', label: 'Sender', isRequired: true },
  { name: 'event_type', label: 'Type of the events', isRequired: true },
  { name: 'target_session', label: 'Session of the agent', isRequired: true },
  { name: 'agent_intent', label: 'What an agent should do', isRequired: false },
  { name: 'target_url', label: 'Send to this URL', isRequired: false },
  { name: 'plugin', label: 'Or handle with this plugin', isRequired: false },
  { name: 'pipeline', label: 'Or start this pipeline', isRequired: false },
];

export function NewWebhookDialog({ onDone, onClose }: NewWebhookDialogProps) {
  const [secret, setSecret] = useState('');
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const filled = [...form].filter(([, value]) => value) as [string, string][];
    try {
      const created = await post<{ secret?: string }>(
        '/gateway/webhook-configs',
        Object.fromEntries(filled),
      );
      onDone();
      if (created.secret) setSecret(created.secret);
      else onClose();
    } catch (error) {
      notify((error as Error).message, true);
    }
  };
  if (secret) {
    return <SecretDialog title="The webhook is created" secret={secret} onClose={onClose} />;
  }
  return (
    <Dialog title="New webhook" onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-body">
          {FIELDS.map(({ name, label, isRequired }) => (
            <label class="field" key={name}>
              <span>{label}</span>
              <input name={name} required={isRequired} autocomplete="off" />
            </label>
          ))}
        </div>
        <footer class="dialog-foot">
          <button type="button" onClick={onClose}>
            Close
          </button>
          <button type="submit" class="primary">
            Create
          </button>
        </footer>
      </form>
    </Dialog>
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
