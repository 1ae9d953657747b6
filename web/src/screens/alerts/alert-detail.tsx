// One rule: what fails in each group, and the messages that were sent.

import { path } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import type { AlertRuleDetail } from '../../api/types';
import { Badge } from '../../components/badge';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { Link } from '../../router/link';

type Group = AlertRuleDetail['groups'][number];
type Message = AlertRuleDetail['messages'][number];

const GROUP_COLUMNS: Column<Group>[] = [
  { id: 'group', title: 'Group', cell: ({ group }) => <strong>{group || 'all'}</strong> },
  {
    id: 'state',
    title: 'State',
    cell: ({ state, flapping }) => (
      <>
        <Badge status={state} /> {flapping && <Badge status="retrying" label="flapping" />}
      </>
    ),
  },
  { id: 'since', title: 'Since', cell: ({ since }) => <Time at={since} relative /> },
  {
    id: 'causes',
    title: 'Causes',
    cell: ({ causes }) =>
      causes.map(({ condition, subject, job_id, last_error }) => (
        <div key={`${condition} ${subject}`} class="note">
          {job_id ? <Link to={`/jobs/${job_id}`}>{subject}</Link> : subject} {condition}:{' '}
          {last_error}
        </div>
      )),
  },
];

const MESSAGE_COLUMNS: Column<Message>[] = [
  { id: 'at', title: 'When', cell: ({ created_at }) => <Time at={created_at} /> },
  { id: 'news', title: 'News', cell: ({ news }) => news },
  {
    id: 'delivered',
    title: 'Delivery',
    cell: ({ job_id, run_id, job_status, run_status, target }) => (
      <Link to={job_id ? `/jobs/${job_id}` : `/runs/${run_id}`}>
        {target} <Badge status={job_status ?? run_status ?? 'unknown'} />
      </Link>
    ),
  },
  {
    id: 'text',
    title: 'Text',
    wide: true,
    cell: ({ message }) => <span class="note">{message}</span>,
  },
];

export function AlertDetail({ name }: { name: string }) {
  const rule = useResource<AlertRuleDetail>(path('alerts', name), ofTopics('alerts', 'jobs'));
  return (
    <Loaded resource={rule}>
      {({ groups, messages }) => (
        <>
          <Section title={`Groups of ${name}`}>
            {groups.length ? (
              <Table
                rows={groups}
                columns={GROUP_COLUMNS}
                keyOf={({ group }) => group}
                label="Groups"
              />
            ) : (
              <Empty title="Nothing has failed">
                What the rule watches is in the configuration, below <code>alerts:</code>.
              </Empty>
            )}
          </Section>
          <Section title="Messages">
            {messages.length ? (
              <Table
                rows={messages}
                columns={MESSAGE_COLUMNS}
                keyOf={({ alert_group, number }) => `${alert_group} ${number}`}
                label="Messages"
              />
            ) : (
              <Empty title="No message was sent">
                Use the button <em>Test</em> to see whether one arrives.
              </Empty>
            )}
          </Section>
        </>
      )}
    </Loaded>
  );
}
