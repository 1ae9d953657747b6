// The alert rules: what fires, recipients, silences and test messages.

import { ofTopics, useResource } from '../../api/resource';
import type { AlertRule, AlertRules } from '../../api/types';
import { Badge } from '../../components/badge';
import { Page } from '../../components/page';
import { Empty, Loaded, MissingRoute } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { Link } from '../../router/link';
import { queryValue } from '../../router/router';
import { AlertActions } from './alert-actions';
import { AlertDetail } from './alert-detail';

function columns(onDone: () => void): Column<AlertRule>[] {
  return [
    {
      id: 'rule',
      title: 'Rule',
      cell: ({ rule, on }) => (
        <>
          <Link to={`/alerts?name=${encodeURIComponent(rule)}`}>
            <strong>{rule}</strong>
          </Link>
          <div class="note">{on.join(', ')}</div>
        </>
      ),
      sortBy: ({ rule }) => rule,
    },
    {
      id: 'state',
      title: 'State',
      cell: ({ state, silenced_until, silenced_by }) => (
        <>
          <Badge status={state} />
          {silenced_until && (
            <div class="note">
              silenced by {silenced_by} until <Time at={silenced_until} />
            </div>
          )}
        </>
      ),
      sortBy: ({ state }) => state,
    },
    { id: 'since', title: 'Since', cell: ({ since }) => <Time at={since} relative /> },
    {
      id: 'error',
      title: 'Last error',
      wide: true,
      cell: ({ last_error }) => <span class="note">{last_error}</span>,
    },
    {
      id: 'to',
      title: 'To',
      wide: true,
      cell: ({ to, target }) => <Link to={`/${target}s/${encodeURIComponent(to)}`}>{to}</Link>,
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (rule) => <AlertActions rule={rule} onDone={onDone} />,
    },
  ];
}

export function Alerts() {
  const list = useResource<AlertRules>('/alerts', ofTopics('alerts'));
  const chosen = queryValue('name');
  return (
    <Page title="Alerts">
      <Loaded resource={list} missing={<MissingRoute what="alerts" />}>
        {({ alerts, undelivered }) => (
          <>
            <Undelivered messages={undelivered} />
            {alerts.length ? (
              <Table
                rows={alerts}
                columns={columns(list.refetch)}
                keyOf={({ rule }) => rule}
                label="Alert rules"
              />
            ) : (
              <Empty title="There are no alert rules">
                Add <code>alerts:</code> to the configuration: what to watch, and the plugin or
                pipeline that notifies you.
              </Empty>
            )}
          </>
        )}
      </Loaded>
      {chosen && <AlertDetail key={chosen} name={chosen} />}
    </Page>
  );
}

function Undelivered({ messages }: { messages: AlertRules['undelivered'] }) {
  if (!messages.length) return null;
  return (
    <section class="why why-bad" aria-labelledby="undelivered">
      <h2 id="undelivered">Messages that did not arrive</h2>
      <ul>
        {messages.map(({ rule, group, to, job_id, run_id, error, created_at }) => (
          <li key={`${rule} ${group} ${created_at}`}>
            <Link to={job_id ? `/jobs/${job_id}` : `/runs/${run_id}`}>
              {rule} to {to}
            </Link>{' '}
            <Time at={created_at} relative />
            {error && `: ${error}`}
          </li>
        ))}
      </ul>
    </section>
  );
}
