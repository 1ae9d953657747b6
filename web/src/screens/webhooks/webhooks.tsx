import type { JSX } from 'preact';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { ConfigView, Status } from '../../api/types';
import { Page, Section } from '../../components/page';
import { Empty, Loaded, Scoped } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Tabs } from '../../components/tabs';
import { countOf, words } from '../../format/text';
import { Link } from '../../router/link';
import { LAST_STATUS } from '../plugins/health-checks';
import { DeliveryList } from './delivery-list';
import { RelayList } from './relay-list';
import { WebhookList } from './webhook-list';

export function Webhooks() {
  return (
    <Page title="Webhooks">
      <Tabs
        label="Kinds of webhooks"
        tabs={[
          { id: 'webhooks', label: 'Webhooks', content: () => <WebhookParts /> },
          {
            id: 'deliveries',
            label: 'Deliveries',
            content: () => scoped('agents:ro', <DeliveryList />),
          },
          { id: 'relays', label: 'Relays', content: () => scoped('jobs:ro', <RelayList />) },
        ]}
      />
    </Page>
  );
}

function scoped(scope: string, list: JSX.Element) {
  return <Scoped scope={scope}>{list}</Scoped>;
}

function WebhookParts() {
  return (
    <>
      {can('system:ro') && <Endpoints />}
      {scoped('agents:ro', <WebhookList />)}
    </>
  );
}

interface Endpoint {
  path: string;
  name: string | null;
  provider: string | null;
  plugin: string | null;
  pipeline?: string | null;
}

const COLUMNS: Column<Endpoint>[] = [
  {
    id: 'path',
    title: 'Path',
    cell: ({ path }) => <code>{path}</code>,
    sortBy: ({ path }) => path,
  },
  { id: 'provider', title: 'Provider', cell: ({ provider }) => provider ?? 'own signature' },
  {
    id: 'target',
    title: 'Goes to',
    cell: ({ plugin, pipeline }) =>
      pipeline ? (
        <Link to={`/pipelines/${encodeURIComponent(pipeline)}`}>pipeline {pipeline}</Link>
      ) : (
        plugin && <Link to={`/plugins/${encodeURIComponent(plugin)}`}>{plugin}</Link>
      ),
  },
  {
    id: 'jobs',
    title: '',
    align: 'right',
    cell: ({ plugin, pipeline }) =>
      pipeline ? (
        <Link class="link" to={`/runs?pipeline=${encodeURIComponent(pipeline)}`}>
          Its runs
        </Link>
      ) : (
        plugin && (
          <Link class="link" to={`/jobs?submitted_by=webhook&plugin=${encodeURIComponent(plugin)}`}>
            Its jobs
          </Link>
        )
      ),
  },
];

/** Before the links: a wrong secret is seen here, and nowhere among the jobs. */
function columns(refused: Status['refused_webhooks']): Column<Endpoint>[] {
  const column: Column<Endpoint> = {
    id: 'refused',
    title: 'Refused in the last hour',
    cell: ({ path }) => (
      <span class="note">
        {refused
          .filter(({ endpoint }) => endpoint === path)
          .map(({ reason, requests }) => `${countOf(requests, 'request')}: ${words(reason)}`)
          .join('; ') || 'none'}
      </span>
    ),
  };
  return COLUMNS.toSpliced(-1, 0, column);
}

/** Between two looks at the refused requests, while jobs run. */
const REFUSED_MS = 10_000;

/** The endpoints of the configuration, which receive events of other services. */
function Endpoints() {
  const view = useResource<ConfigView>('/config/view');
  const status = useResource<Status>(LAST_STATUS, ofTopics('jobs'), REFUSED_MS);
  return (
    <Section title="Endpoints of the configuration">
      <Loaded resource={view}>
        {({ config }) => {
          const webhooks = config.webhooks as { endpoints?: Endpoint[] } | null;
          const rows = webhooks?.endpoints ?? [];
          return rows.length ? (
            <Table
              rows={rows}
              columns={columns(status.data?.refused_webhooks ?? [])}
              keyOf={({ path }) => path}
              label="Endpoints"
            />
          ) : (
            <Empty title="There are no endpoints">
              Add <code>webhooks.endpoints</code> to the configuration to receive signed events of
              other services.
            </Empty>
          );
        }}
      </Loaded>
    </Section>
  );
}
