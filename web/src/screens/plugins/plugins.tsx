import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Plugins as PluginList, Status } from '../../api/types';
import { Badge } from '../../components/badge';
import { Filters, SelectFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { withLocalTimes } from '../../format/time';
import { Link } from '../../router/link';
import { queryValue } from '../../router/router';
import { useHealthChecks } from './health-checks';
import { type LastAttempt, laterOf, useLastAttempts } from './last-attempts';

type Row = PluginList['plugins'][number] & {
  health: Status['plugins'][number]['health'] | undefined;
  last: LastAttempt | null;
};

const STATES = ['ready', 'unhealthy', 'refused', 'shadowed', 'disabled', 'available'];

const COLUMNS: Column<Row>[] = [
  {
    id: 'name',
    title: 'Plugin',
    cell: ({ name, version }) => (
      <Link to={`/plugins/${encodeURIComponent(name)}`}>
        <strong>{name}</strong> <span class="muted">{version}</span>
      </Link>
    ),
    sortBy: ({ name }) => name,
  },
  {
    id: 'state',
    title: 'State',
    cell: ({ state, paused }) => (
      <>
        <Badge status={state} /> {paused && <Badge status="paused" />}
      </>
    ),
    sortBy: ({ state }) => state,
  },
  {
    id: 'health',
    title: 'Health',
    wide: true,
    cell: ({ health }) =>
      health && <Badge status={health.healthy ? 'ok' : 'failed'} label={health.detail ?? 'ok'} />,
  },
  {
    id: 'last',
    title: 'Last attempt',
    cell: ({ last }) =>
      last ? (
        <>
          <Badge status={last.status} /> <Time at={last.completed_at} relative />
        </>
      ) : (
        <span class="muted">–</span>
      ),
    sortBy: ({ last }) => last?.completed_at ?? null,
  },
  {
    id: 'about',
    title: 'About',
    wide: true,
    cell: ({ description, reason }) => (
      <span class="note">{reason ? withLocalTimes(reason) : description}</span>
    ),
  },
];

export function Plugins() {
  const list = useResource<PluginList>('/plugins', ofTopics('breakers', 'flow'));
  const { status, isChecking, check } = useHealthChecks();
  const checked = new Map(status?.plugins.map((plugin) => [plugin.name, plugin]));
  const newest = useLastAttempts();
  const state = queryValue('state');
  return (
    <Page title="Plugins">
      <Filters>
        <SelectFilter name="state" label="State" options={STATES} all="all configured" />
        {can('system:ro') && (
          <>
            <button
              type="button"
              disabled={isChecking}
              title="Run the health commands of the plugins"
              onClick={check}
            >
              Check health
            </button>
            <span class="muted">
              {status?.health_checked_at ? (
                <>
                  checked <Time at={status.health_checked_at} relative />
                </>
              ) : (
                'not checked since the start'
              )}
            </span>
          </>
        )}
      </Filters>
      <Loaded resource={list}>
        {({ plugins }) => {
          const rows = plugins
            .filter((plugin) => (state ? plugin.state === state : plugin.state !== 'available'))
            .map((plugin): Row => {
              const found = checked.get(plugin.name);
              const last = laterOf(found?.last_run, newest.get(plugin.name));
              return { ...plugin, health: found?.health, last };
            });
          if (!rows.length) {
            return (
              <Empty title="No plugin is here">
                Create one with <code>ductile plugin new NAME</code>, and add it to{' '}
                <code>plugins:</code> in the configuration.
              </Empty>
            );
          }
          return (
            <Table
              rows={rows}
              columns={COLUMNS}
              keyOf={({ name, path }) => `${name} ${path}`}
              label="Plugins"
            />
          );
        }}
      </Loaded>
    </Page>
  );
}
