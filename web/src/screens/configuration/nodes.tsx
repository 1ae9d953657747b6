// The nodes that share the ledger, the gateway that answers this page, and its ledger.

import { ofChanges, ofTopics, useResource } from '../../api/resource';
import type { ClusterNode, ClusterNodes, Status } from '../../api/types';
import { Badge } from '../../components/badge';
import { JsonView } from '../../components/json-view';
import { Details, Section } from '../../components/page';
import { Loaded, MissingRoute } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { formatDuration } from '../../format/duration';
import { countOf } from '../../format/text';
import { LAST_STATUS } from '../plugins/health-checks';
import { NodeActions } from './node-actions';

const ofJobs = ofTopics('jobs');
const ofNodes = ofChanges('nodes');

/** A node renews its row every few seconds; one that does not is lost. */
function isAlive({ state }: ClusterNode): boolean {
  return state !== 'stopped' && state !== 'lost';
}

function columns(onDone: () => void): Column<ClusterNode>[] {
  return [
    {
      id: 'name',
      title: 'Node',
      cell: ({ name, boot }) => <strong title={`Boot ${boot}`}>{name}</strong>,
      sortBy: ({ name }) => name,
    },
    {
      id: 'state',
      title: 'State',
      cell: ({ state }) => <Badge status={state} />,
      sortBy: ({ state }) => state,
    },
    {
      id: 'jobs',
      title: 'Jobs',
      cell: ({ jobs, workers }) => `${jobs} of ${workers}`,
      sortBy: ({ jobs }) => jobs,
    },
    {
      id: 'seen',
      title: 'Seen',
      cell: (node) => (isAlive(node) ? 'now' : <Time at={node.seen_at} relative />),
    },
    {
      id: 'started',
      title: 'Started',
      wide: true,
      cell: ({ started_at }) => <Time at={started_at} relative />,
      sortBy: ({ started_at }) => started_at,
    },
    { id: 'version', title: 'Version', wide: true, cell: ({ version }) => version },
    {
      id: 'labels',
      title: 'Labels',
      wide: true,
      cell: ({ labels }) =>
        Object.entries(labels)
          .map(([key, value]) => `${key}=${value}`)
          .join(' '),
    },
    {
      id: 'plugins',
      title: 'Runs',
      wide: true,
      cell: ({ plugins }) => (
        <span title={plugins.join(', ')}>{countOf(countOwn(plugins), 'plugin')}</span>
      ),
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (node) => <NodeActions node={node} onDone={onDone} />,
    },
  ];
}

export function GatewayNodes() {
  return (
    <>
      <NodeList />
      <OwnState />
    </>
  );
}

function NodeList() {
  const found = useResource<ClusterNodes>('/nodes', (event) => ofJobs(event) || ofNodes(event));
  return (
    <Section title="Nodes">
      <Loaded resource={found} missing={<MissingRoute what="a list of nodes" />}>
        {({ nodes }) => (
          <>
            <Drift nodes={nodes} />
            <Table
              rows={nodes}
              columns={columns(found.refetch)}
              keyOf={({ name }) => name}
              label="Nodes"
            />
          </>
        )}
      </Loaded>
    </Section>
  );
}

/** Nodes that run with different settings decide differently about the same jobs. */
function Drift({ nodes }: { nodes: ClusterNode[] }) {
  const alive = nodes.filter(isAlive);
  if (new Set(alive.map(({ config_hash }) => config_hash)).size < 2) return null;
  return (
    <p class="problem">The nodes have different configurations: reload those that are behind.</p>
  );
}

/** Between two looks at the state of the gateway, while jobs run. */
const STATUS_MS = 5000;

function OwnState() {
  const status = useResource<Status>(LAST_STATUS, ofJobs, STATUS_MS);
  return (
    <Loaded resource={status}>
      {({ version, boot, uptime_seconds, workers, ledger, queue_depth, running }) => (
        <>
          <Section title="This gateway">
            <Details
              entries={[
                ['Version', version],
                ['Boot', <span class="mono">{boot}</span>],
                ['Up for', formatDuration(uptime_seconds * 1000)],
                ['Workers', `${running} of ${workers} busy`],
                ['Queued', String(queue_depth)],
              ]}
            />
          </Section>
          <Section title="Ledger">
            <JsonView value={ledger} label="Ledger" />
          </Section>
        </>
      )}
    </Loaded>
  );
}

/** The plugins of the configuration: each node also runs those of the gateway itself. */
function countOwn(plugins: readonly string[]): number {
  return plugins.filter((name) => !name.startsWith('core.')).length;
}
