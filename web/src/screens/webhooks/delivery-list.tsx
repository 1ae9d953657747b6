// Deliveries to other services: dead letters, retry one, retry all.

import { useState } from 'preact/hooks';
import { path, post, withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Deliveries, DeliveryDetail } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask, Dialog } from '../../components/dialog';
import { Filters, SelectFilter, TextFilter } from '../../components/filters';
import { JsonView } from '../../components/json-view';
import { Details } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
import { PERIODS, sinceOf } from '../../format/period';
import { queryValue, setQuery } from '../../router/router';
import { runBulk } from './bulk';

type Delivery = Deliveries['deliveries'][number];

const STATES = ['pending', 'delivered', 'failed', 'dead'];
/** A failed delivery is attempted again; a dead one is not. */
const WAITING = new Set(['pending', 'failed']);
const RETRIABLE = new Set(['failed', 'dead']);

interface DeliveryActions {
  open: (id: number) => void;
  retry: (row: Delivery) => void;
  discard: (row: Delivery) => void;
}

function columns(actions: DeliveryActions): Column<Delivery>[] {
  return [
    {
      id: 'delivery',
      title: 'Delivery',
      cell: ({ delivery_id, target_url }) => (
        <button type="button" class="link" onClick={() => actions.open(delivery_id)}>
          #{delivery_id} <span class="muted">{target_url}</span>
        </button>
      ),
    },
    { id: 'status', title: 'Status', cell: ({ status }) => <Badge status={status} /> },
    {
      id: 'failed',
      title: 'Failed attempts',
      align: 'right',
      wide: true,
      cell: ({ attempt_count }) => attempt_count,
    },
    {
      id: 'last',
      title: 'Last attempt',
      cell: ({ last_attempted_at }) => <Time at={last_attempted_at} relative />,
    },
    {
      id: 'next',
      title: 'Next',
      wide: true,
      cell: ({ next_retry_at, status }) =>
        WAITING.has(status) ? <Time at={next_retry_at} relative /> : '–',
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
      cell: (row) =>
        can('agents:rw') &&
        RETRIABLE.has(row.status) && (
          <span class="row-actions">
            <button type="button" onClick={() => actions.retry(row)}>
              Retry
            </button>
            {row.status === 'dead' && (
              <button type="button" class="danger-quiet" onClick={() => actions.discard(row)}>
                Discard …
              </button>
            )}
          </span>
        ),
    },
  ];
}

export function DeliveryList() {
  const [opened, setOpened] = useState<number | null>(null);
  const status = queryValue('status');
  const since = sinceOf(queryValue('period'));
  const address = withQuery('/gateway/deliveries', {
    status,
    since,
    webhook_id: queryValue('webhook_id'),
    before: queryValue('before'),
  });
  const page = useResource<Deliveries>(address, ofTopics('gateway:webhooks'));
  const retryOne = async ({ delivery_id }: Delivery) => {
    const sent = post(path('gateway', 'deliveries', delivery_id, 'retry'));
    await report(sent, 'The delivery is attempted again.');
    page.refetch();
  };
  const discardOne = async ({ delivery_id }: Delivery) => {
    const isSure = await ask({
      title: `Discard delivery #${delivery_id}?`,
      text: 'It is never sent. This cannot be undone.',
      confirm: 'Discard it',
      isDestructive: true,
    });
    if (!isSure) return;
    const sent = post(path('gateway', 'deliveries', delivery_id, 'discard'));
    await report(sent, 'The delivery is discarded.');
    page.refetch();
  };
  return (
    <>
      <Filters>
        <SelectFilter name="status" label="Status" options={STATES} />
        <SelectFilter name="period" label="Attempted" options={PERIODS} all="any time" />
        <TextFilter name="webhook_id" label="Webhook" placeholder="number" />
        <BulkButtons status={status} since={since} onDone={page.refetch} />
        <button type="button" class="quiet" onClick={page.refetch}>
          Refresh
        </button>
      </Filters>
      <Loaded resource={page}>
        {({ deliveries, cursor }) => (
          <>
            {deliveries.length ? (
              <Table
                rows={deliveries}
                columns={columns({ open: setOpened, retry: retryOne, discard: discardOne })}
                keyOf={({ delivery_id }) => delivery_id}
                label="Deliveries"
              />
            ) : (
              <Empty title={status ? `No delivery is ${status}` : 'There are no deliveries'}>
                A webhook with a URL sends events to another service.
              </Empty>
            )}
            {cursor !== null && (
              <nav class="pager" aria-label="Pages">
                <button type="button" onClick={() => setQuery({ before: String(cursor) }, true)}>
                  Older →
                </button>
              </nav>
            )}
          </>
        )}
      </Loaded>
      {opened !== null && <DeliveryDialog id={opened} onClose={() => setOpened(null)} />}
    </>
  );
}

const NOUNS: [string, string] = ['delivery', 'deliveries'];

interface BulkButtonsProps {
  status: string;
  since: string | undefined;
  onDone: () => void;
}

/** Only with filters that the gateway applies too: nothing is touched that is not shown. */
function BulkButtons({ status, since, onDone }: BulkButtonsProps) {
  if (!can('agents:rw') || queryValue('webhook_id')) return null;
  const retry = {
    address: '/gateway/deliveries/retry',
    body: { status, since },
    verb: 'Retry',
    nouns: NOUNS,
    effect: 'Each is sent again with the same id:',
    isCounted: true,
  } as const;
  const discard = {
    address: '/gateway/deliveries/discard',
    verb: 'Discard',
    nouns: NOUNS,
    effect: 'They are never sent, and this cannot be undone:',
  } as const;
  return (
    <>
      {RETRIABLE.has(status) && (
        <button type="button" onClick={() => runBulk(retry, onDone)}>
          Retry all …
        </button>
      )}
      {status === 'dead' && !since && (
        <button type="button" class="danger-quiet" onClick={() => runBulk(discard, onDone)}>
          Discard all …
        </button>
      )}
    </>
  );
}

function DeliveryDialog({ id, onClose }: { id: number; onClose: () => void }) {
  const delivery = useResource<DeliveryDetail>(path('gateway', 'deliveries', id));
  return (
    <Dialog title={`Delivery #${id}`} onClose={onClose} wide>
      <div class="dialog-body">
        <Loaded resource={delivery}>
          {(found) => (
            <>
              <Details
                entries={[
                  ['Status', <Badge status={found.status} />],
                  ['To', found.target_url],
                  ['Webhook', `#${found.webhook_id}`],
                  ['Message', <span class="mono">{found.message_id}</span>],
                  ['Failed attempts', String(found.attempt_count)],
                  ['Created', <Time at={found.created_at} />],
                  ['Error', found.error_detail],
                ]}
              />
              <JsonView value={found.payload} label="Payload" />
            </>
          )}
        </Loaded>
      </div>
    </Dialog>
  );
}
