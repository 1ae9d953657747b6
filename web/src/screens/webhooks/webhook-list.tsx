// Webhooks for agents, which are stored in the ledger and work in both directions.

import { useState } from 'preact/hooks';
import { path, post, remove } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Webhook, Webhooks } from '../../api/types';
import { ask } from '../../components/dialog';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { notify, report } from '../../components/toast';
import { navigate } from '../../router/router';
import { NewWebhookDialog } from './new-webhook-dialog';

interface Actions {
  send: (webhook: Webhook) => void;
  remove: (webhook: Webhook) => void;
}

function columns({ send, remove }: Actions): Column<Webhook>[] {
  return [
    {
      id: 'event',
      title: 'Event',
      cell: ({ id, source_identifier, event_type }) => (
        <>
          <span class="muted">#{id}</span> <strong>{source_identifier}</strong> {event_type}
        </>
      ),
      sortBy: ({ source_identifier, event_type }) => `${source_identifier} ${event_type}`,
    },
    {
      id: 'target',
      title: 'Goes to',
      cell: ({ target_url, plugin, pipeline, target_session }) =>
        target_url ??
        (plugin && `plugin ${plugin}`) ??
        (pipeline && `pipeline ${pipeline}`) ??
        `session ${target_session}`,
    },
    {
      id: 'intent',
      title: 'Intent',
      wide: true,
      cell: ({ agent_intent }) => <span class="note">{agent_intent}</span>,
    },
    {
      id: 'created',
      title: 'Created',
      wide: true,
      cell: ({ created_at }) => <Time at={created_at} />,
      sortBy: ({ created_at }) => created_at,
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (row) =>
        can('agents:rw') && (
          <span class="row-actions">
            <button type="button" onClick={() => send(row)}>
              Send …
            </button>
            <button type="button" class="danger-quiet" onClick={() => remove(row)}>
              Remove …
            </button>
          </span>
        ),
    },
  ];
}

export function WebhookList() {
  const [isCreating, setCreating] = useState(false);
  const [sending, setSending] = useState<Webhook | null>(null);
  const list = useResource<Webhooks>('/gateway/webhook-configs');
  const removeOne = async ({ id, source_identifier, event_type }: Webhook) => {
    const isSure = await ask({
      title: `Remove ${source_identifier} ${event_type}?`,
      text: 'Its events are refused from now on. This cannot be undone.',
      confirm: 'Remove the webhook',
      isDestructive: true,
    });
    if (!isSure) return;
    await report(remove(path('gateway', 'webhook-configs', id)), 'The webhook is removed.');
    list.refetch();
  };
  const create = can('agents:rw') && (
    <button type="button" onClick={() => setCreating(true)}>
      New webhook …
    </button>
  );
  return (
    <Section title="Webhooks for agents" aside={create}>
      <Loaded resource={list}>
        {({ webhooks }) =>
          webhooks.length ? (
            <Table
              rows={webhooks}
              columns={columns({ send: setSending, remove: removeOne })}
              keyOf={({ id }) => id}
              label="Webhooks for agents"
            />
          ) : (
            <Empty title="There are no webhooks for agents">
              Create one here or with <code>ductile webhook config add</code>.
            </Empty>
          )
        }
      </Loaded>
      {sending && <SendDialog webhook={sending} onClose={() => setSending(null)} />}
      {isCreating && <NewWebhookDialog onDone={list.refetch} onClose={() => setCreating(false)} />}
    </Section>
  );
}

const PAYLOAD: readonly FormField[] = [
  { name: 'payload', label: 'Payload', isJson: true, value: '{}' },
];

function SendDialog({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const { id, source_identifier: source, event_type: type } = webhook;
  const send = async (values: FormValues) => {
    await post('/gateway/deliveries', { webhook_id: id, ...values });
    notify('The event is sent.');
    onClose();
    navigate('/webhooks?tab=deliveries');
  };
  return (
    <FormDialog
      title={`Send ${source} ${type}`}
      fields={PAYLOAD}
      confirm="Send"
      onSubmit={send}
      onClose={onClose}
    >
      <p class="muted">It is signed, and sent again until the receiver accepts it.</p>
    </FormDialog>
  );
}
