// Webhooks for agents, which are stored in the ledger and work in both directions.

import { useState } from 'preact/hooks';
import { path, remove } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Webhook, Webhooks } from '../../api/types';
import { ask } from '../../components/dialog';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
import { NewWebhookDialog } from './new-webhook-dialog';

function columns(onRemove: (webhook: Webhook) => void): Column<Webhook>[] {
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
          <button type="button" class="danger-quiet" onClick={() => onRemove(row)}>
            Remove …
          </button>
        ),
    },
  ];
}

export function WebhookList() {
  const [isCreating, setCreating] = useState(false);
  const list = useResource<Webhooks>('/gateway/webhook-configs');
  const onRemove = async ({ id, source_identifier, event_type }: Webhook) => {
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
              columns={columns(onRemove)}
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
      {isCreating && <NewWebhookDialog onDone={list.refetch} onClose={() => setCreating(false)} />}
    </Section>
  );
}
