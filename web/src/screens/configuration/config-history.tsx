// The configurations that were in force, and the return to one of them.

import { useState } from 'preact/hooks';
import { post } from '../../api/client';
import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { ConfigApplied, Snapshots } from '../../api/types';
import { Empty, Loaded, MissingRoute } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { notify, report } from '../../components/toast';
import { PlanDialog } from './plan-dialog';

type Snapshot = Snapshots['snapshots'][number];

function columns(onReturn: (snapshot: string) => void): Column<Snapshot>[] {
  return [
    { id: 'snapshot', title: 'Snapshot', cell: ({ id }) => <span class="mono">{id}</span> },
    { id: 'adopted', title: 'Put in force', cell: ({ adopted_at }) => <Time at={adopted_at} /> },
    {
      id: 'first',
      title: 'First in force',
      wide: true,
      cell: ({ created_at }) => <Time at={created_at} />,
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: ({ id, in_force, restorable }) => {
        if (in_force) return <strong>in force</strong>;
        if (!restorable) return <span class="note">its files are not kept here</span>;
        return (
          can('*') && (
            <button type="button" onClick={() => onReturn(id)}>
              Return …
            </button>
          )
        );
      },
    },
  ];
}

export function ConfigHistory() {
  const [preview, setPreview] = useState<ConfigApplied | null>(null);
  const history = useResource<Snapshots>('/config/history');
  const open = async (snapshot: string) => {
    try {
      setPreview(await post<ConfigApplied>('/config/revert', { snapshot, dry_run: true }));
    } catch (error) {
      notify((error as Error).message, true);
    }
  };
  const revert = async ({ plan, returns_to }: ConfigApplied) => {
    setPreview(null);
    const body = { snapshot: returns_to, plan: plan?.id };
    await report(post('/config/revert', body), 'The earlier configuration is in force.');
    history.refetch();
  };
  return (
    <Loaded resource={history} missing={<MissingRoute what="a history of the configuration" />}>
      {({ snapshots }) => (
        <>
          {snapshots.length ? (
            <Table
              rows={snapshots}
              columns={columns(open)}
              keyOf={({ id }) => id}
              label="Configurations that were in force"
            />
          ) : (
            <Empty title="No configuration was in force yet">They appear here.</Empty>
          )}
          {preview?.plan && (
            <PlanDialog
              title="Return to this configuration?"
              plan={preview.plan}
              files={preview.files}
              confirm="Return"
              onConfirm={() => revert(preview)}
              onClose={() => setPreview(null)}
            />
          )}
        </>
      )}
    </Loaded>
  );
}
