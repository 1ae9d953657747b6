import { useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { ConfigView } from '../../api/types';
import { Page, Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Tabs } from '../../components/tabs';
import { Link } from '../../router/link';
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
          { id: 'deliveries', label: 'Deliveries', content: () => <DeliveryList /> },
          { id: 'relays', label: 'Relays', content: () => <RelayList /> },
        ]}
      />
    </Page>
  );
}

function WebhookParts() {
  return (
    <>
      {can('system:ro') && <Endpoints />}
      <WebhookList />
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
    cell: ({ plugin }) =>
      plugin && (
        <Link to={`/jobs?submitted_by=webhook&plugin=${encodeURIComponent(plugin)}`}>Its jobs</Link>
      ),
  },
];

/** The endpoints of the configuration, which receive events of other services. */
function Endpoints() {
  const view = useResource<ConfigView>('/config/view');
  return (
    <Section title="Endpoints of the configuration">
      <Loaded resource={view}>
        {({ config }) => {
          const webhooks = config.webhooks as { endpoints?: Endpoint[] } | null;
          const rows = webhooks?.endpoints ?? [];
          return rows.length ? (
            <Table rows={rows} columns={COLUMNS} keyOf={({ path }) => path} label="Endpoints" />
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
