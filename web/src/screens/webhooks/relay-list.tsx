// Events on their way to other gateways.

import { path, post, withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Relays } from '../../api/types';
import { Badge } from '../../components/badge';
import { Filters, SelectFilter } from '../../components/filters';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
import { Link } from '../../router/link';
import { queryValue } from '../../router/router';

type Relay = Relays['relays'][number];

const STATES = ['pending', 'delivered', 'failed', 'dead'];

function columns(onDone: () => void): Column<Relay>[] {
  const retry = async (id: string) => {
    await report(post(path('relay', id, 'retry')), 'The event is sent again.');
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
          <button type="button" onClick={() => retry(id)}>
            Retry
          </button>
        ),
    },
  ];
}

export function RelayList() {
  const list = useResource<Relays>(
    withQuery('/relays', { status: queryValue('status') }),
    ofTopics('relay'),
  );
  return (
    <>
      <Filters>
        <SelectFilter name="status" label="Status" options={STATES} />
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
    </>
  );
}
