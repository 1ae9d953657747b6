// Who did what, when and from where.

import { withQuery } from '../../api/client';
import { formatJson, type Json } from '../../api/json';
import { useResource } from '../../api/resource';
import type { AuditPage } from '../../api/types';
import { Filters, TextFilter } from '../../components/filters';
import { Empty, Loaded, MissingRoute } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { queryValue, setQuery } from '../../router/router';

type Entry = AuditPage['entries'][number];

const COLUMNS: Column<Entry>[] = [
  { id: 'at', title: 'When', cell: ({ created_at }) => <Time at={created_at} /> },
  { id: 'actor', title: 'Who', cell: ({ actor }) => <strong>{actor}</strong> },
  { id: 'action', title: 'Action', cell: ({ action }) => action },
  { id: 'target', title: 'Target', cell: ({ target }) => <span class="mono">{target}</span> },
  { id: 'source', title: 'From', wide: true, cell: ({ source }) => source },
  {
    id: 'details',
    title: 'Details',
    wide: true,
    cell: ({ details }) => (
      <span class="note">{details && formatJson(details as unknown as Json, 0)}</span>
    ),
  },
];

export function AuditLog() {
  const page = useResource<AuditPage>(
    withQuery('/audit', {
      actor: queryValue('actor'),
      action: queryValue('action'),
      before: queryValue('before'),
    }),
  );
  return (
    <>
      <Filters>
        <TextFilter name="actor" label="Who" placeholder="token:NAME" />
        <TextFilter name="action" label="Action" placeholder="job, job.retry …" />
      </Filters>
      <Loaded resource={page} missing={<MissingRoute what="an audit log" />}>
        {({ entries, cursor }) => (
          <>
            {entries.length ? (
              <Table rows={entries} columns={COLUMNS} keyOf={({ id }) => id} label="Audit log" />
            ) : (
              <Empty title="No action is recorded">Actions of people and tokens appear here.</Empty>
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
    </>
  );
}
