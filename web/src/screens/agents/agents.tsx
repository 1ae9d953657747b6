import { useState } from 'preact/hooks';
import { path, post } from '../../api/client';
import { ofChanges, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Agents as AgentList, GatewayEvent, Reminders } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask } from '../../components/dialog';
import { JsonView } from '../../components/json-view';
import { Page, Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
import { describeCron } from '../../format/cron';
import { NewReminderDialog } from './new-reminder-dialog';

type Agent = AgentList['agents'][number];
type Reminder = Reminders['reminders'][number];

/** Topics of one agent begin with `agent:`. */
function concernsAgents({ topic, type }: GatewayEvent): boolean {
  return topic.startsWith('agent:') || type.startsWith('agent.');
}

const hasContact = ofChanges('agents');

const COLUMNS: Column<Agent>[] = [
  {
    id: 'agent',
    title: 'Agent',
    cell: ({ agent_id, cluster_id }) => (
      <>
        <strong>{agent_id}</strong> <span class="muted">{cluster_id}</span>
      </>
    ),
    sortBy: ({ agent_id }) => agent_id,
  },
  {
    id: 'state',
    title: 'State',
    cell: ({ state }) => <Badge status={state} />,
    sortBy: ({ state }) => state,
  },
  {
    id: 'seen',
    title: 'Last heartbeat',
    cell: ({ received_at, last_seen_at }) => <Time at={received_at ?? last_seen_at} relative />,
    sortBy: ({ received_at, last_seen_at }) => received_at ?? last_seen_at,
  },
  {
    id: 'capabilities',
    title: 'Capabilities',
    cell: ({ capabilities, agent_id }) =>
      capabilities ? (
        <JsonView value={capabilities} label={`Capabilities of ${agent_id}`} />
      ) : (
        <span class="muted">not reported</span>
      ),
  },
];

function reminderColumns(onForget: (reminder: Reminder) => void): Column<Reminder>[] {
  return [
    { id: 'agent', title: 'Agent', cell: ({ agent_id }) => <strong>{agent_id}</strong> },
    {
      id: 'when',
      title: 'When',
      cell: ({ schedule }) =>
        schedule ? (
          <span title={schedule}>{describeCron(schedule) ?? schedule} (UTC)</span>
        ) : (
          'once'
        ),
    },
    { id: 'next', title: 'Next', cell: ({ next_fire_at }) => <Time at={next_fire_at} relative /> },
    {
      id: 'payload',
      title: 'Payload',
      wide: true,
      cell: ({ payload }) => <JsonView value={payload} label="Payload" />,
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (row) =>
        can('agents:rw') && (
          <button type="button" class="danger-quiet" onClick={() => onForget(row)}>
            Forget …
          </button>
        ),
    },
  ];
}

export function Agents() {
  const [isCreating, setCreating] = useState(false);
  const agents = useResource<AgentList>(
    '/gateway/heartbeats',
    (event) => hasContact(event) || concernsAgents(event),
  );
  const reminders = useResource<Reminders>('/gateway/cron', concernsAgents);
  const forget = async ({ id = 0, agent_id }: Reminder) => {
    const isSure = await ask({
      title: `Forget this reminder of ${agent_id}?`,
      text: 'The agent is not reminded any more.',
      confirm: 'Forget it',
      isDestructive: true,
    });
    if (!isSure) return;
    await report(post(path('gateway', 'cron', id, 'forget')), 'The reminder is forgotten.');
    reminders.refetch();
  };
  return (
    <Page title="Agents">
      <Loaded resource={agents}>
        {({ agents: rows }) =>
          rows.length ? (
            <Table
              rows={rows}
              columns={COLUMNS}
              keyOf={({ agent_id }) => agent_id}
              label="Agents"
            />
          ) : (
            <Empty title="No agent has sent a heartbeat">
              An agent reports itself with <code>POST /gateway/heartbeat</code>.
            </Empty>
          )
        }
      </Loaded>
      <Section
        title="Reminders"
        aside={
          can('agents:rw') && (
            <button type="button" onClick={() => setCreating(true)}>
              New reminder …
            </button>
          )
        }
      >
        <Loaded resource={reminders}>
          {({ reminders: rows }) =>
            rows.length ? (
              <Table
                rows={rows}
                columns={reminderColumns(forget)}
                keyOf={({ id = 0 }) => id}
                label="Reminders"
              />
            ) : (
              <Empty title="There are no reminders">
                Create one here or with <code>ductile agent remind</code>.
              </Empty>
            )
          }
        </Loaded>
      </Section>
      {isCreating && (
        <NewReminderDialog onDone={reminders.refetch} onClose={() => setCreating(false)} />
      )}
    </Page>
  );
}
