// Events on their way to other gateways.

import { useState } from 'preact/hooks';
import { path, post, withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Relays } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask } from '../../components/dialog';
import { Filters, SelectFilter } from '../../components/filters';
import { FormDialog, type FormField, type FormValues } from '../../components/form-dialog';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { notify, report } from '../../components/toast';
import { Link } from '../../router/link';
import { queryValue } from '../../router/router';
import { runBulk } from './bulk';

type Relay = Relays['relays'][number];

const NOUNS: [string, string] = ['event', 'events'];
const RETRY_ALL = {
  address: '/relays/retry',
  verb: 'Retry',
  nouns: NOUNS,
  effect: 'Each is sent again with the same id:',
} as const;
const DISCARD_ALL = {
  address: '/relays/discard',
  verb: 'Discard',
  nouns: NOUNS,
  effect: 'They never reach the other gateway, and this cannot be undone:',
} as const;
const STATES = ['pending', 'delivered', 'failed', 'dead'];

function columns(onDone: () => void): Column<Relay>[] {
  const retry = async (id: string) => {
    await report(post(path('relay', id, 'retry')), 'The event is sent again.');
    onDone();
  };
  const discard = async (id: string) => {
    const isSure = await ask({
      title: 'Discard this event?',
      text: 'It never reaches the other gateway. This cannot be undone.',
      confirm: 'Discard it',
      isDestructive: true,
    });
    if (!isSure) return;
    await report(post(path('relay', id, 'discard')), 'The event is discarded.');
    onDone();
  };
  return [
    {
      id: 'event',
      title: 'Event',
      cell: ({ event_type, job_id }) =>
        job_id ? <Link to={`/jobs/${job_id}`}>{event_type}</Link> : event_type,
    },
    { id: 'instance', title: 'Gateway', cell: ({ instance }) => instance },
    { id: 'status', title: 'Status', cell: ({ status }) => <Badge status={status} /> },
    {
      id: 'created',
      title: 'Created',
      cell: ({ created_at }) => <Time at={created_at} relative />,
    },
    {
      id: 'error',
      title: 'Error',
      wide: true,
      cell: ({ error_detail }) => <span class="note">{error_detail}</span>,
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: ({ id, status }) =>
        can('jobs:rw') &&
        (status === 'dead' || status === 'failed') && (
          <span class="row-actions">
            <button type="button" onClick={() => retry(id)}>
              Retry
            </button>
            {status === 'dead' && (
              <button type="button" class="danger-quiet" onClick={() => discard(id)}>
                Discard …
              </button>
            )}
          </span>
        ),
    },
  ];
}

export function RelayList() {
  const [isSending, setSending] = useState(false);
  const list = useResource<Relays>(
    withQuery('/relays', { status: queryValue('status') }),
    ofTopics('relay'),
  );
  return (
    <>
      <Filters>
        <SelectFilter name="status" label="Status" options={STATES} />
        {can('jobs:rw') && queryValue('status') === 'dead' && (
          <>
            <button type="button" onClick={() => runBulk(RETRY_ALL, list.refetch)}>
              Retry all …
            </button>
            <button
              type="button"
              class="danger-quiet"
              onClick={() => runBulk(DISCARD_ALL, list.refetch)}
            >
              Discard all …
            </button>
          </>
        )}
        {can('system:rw') && (
          <button type="button" onClick={() => setSending(true)}>
            Send an event …
          </button>
        )}
        <button type="button" class="quiet" onClick={list.refetch}>
          Refresh
        </button>
      </Filters>
      <Loaded resource={list}>
        {({ relays }) =>
          relays.length ? (
            <Table
              rows={relays}
              columns={columns(list.refetch)}
              keyOf={({ id }) => id}
              label="Relays"
            />
          ) : (
            <Empty title="No event is relayed">
              A <code>relay</code> step sends events to a gateway of <code>instances:</code>.
            </Empty>
          )
        }
      </Loaded>
      {isSending && <SendDialog onDone={list.refetch} onClose={() => setSending(false)} />}
    </>
  );
}

const FIELDS: readonly FormField[] = [
  { name: 'to', label: 'Gateway', isRequired: true, hint: 'its name in instances' },
  { name: 'event', label: 'Type of the event', isRequired: true },
  { name: 'payload', label: 'Payload', isJson: true, value: '{}' },
  { name: 'baggage', label: 'Baggage', isJson: true, value: '{}' },
  { name: 'dedupe_key', label: 'Dedupe key', placeholder: 'none' },
];

function SendDialog({ onDone, onClose }: { onDone: () => void; onClose: () => void }) {
  const send = async (values: FormValues) => {
    await post('/relays', values);
    notify('The event is sent.');
    onClose();
    onDone();
  };
  return (
    <FormDialog
      title="Send an event to another gateway"
      fields={FIELDS}
      confirm="Send"
      onSubmit={send}
      onClose={onClose}
    />
  );
}
