import { path, post, RawJson } from '../../api/client';
import { formatJson, REDACTED } from '../../api/json';
import { ofTopics, useResource } from '../../api/resource';
import { can, canRun } from '../../api/session';
import type { Schedule, Schedules as ScheduleList } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask } from '../../components/dialog';
import { Filters, TextFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { notify, report } from '../../components/toast';
import { describeRule } from '../../format/cron';
import { countOf } from '../../format/text';
import { withLocalTimes } from '../../format/time';
import { Link } from '../../router/link';
import { navigate, queryValue } from '../../router/router';
import { ScheduleHistory } from './schedule-history';

/** A schedule's name: `plugin/id`. */
function nameOf({ plugin, schedule }: Schedule): string {
  return `${plugin}/${schedule}`;
}

function columns(refetch: () => void): Column<Schedule>[] {
  return [
    {
      id: 'name',
      title: 'Schedule',
      cell: (row) => (
        <Link to={`/schedules?name=${encodeURIComponent(nameOf(row))}`}>
          <strong>{row.plugin}</strong>/{row.schedule}
        </Link>
      ),
      sortBy: nameOf,
    },
    {
      id: 'rule',
      title: 'When',
      cell: ({ rule, timezone }) => (
        <span title={`${rule} (${timezone})`}>{describeRule(rule)}</span>
      ),
    },
    {
      id: 'state',
      title: 'State',
      cell: ({ state, reason }) => (
        <>
          <Badge status={state} />
          {reason && <span class="note"> {withLocalTimes(reason)}</span>}
        </>
      ),
      sortBy: ({ state }) => state,
    },
    {
      id: 'next',
      title: 'Next',
      cell: ({ next_run }) => <Time at={next_run} relative />,
      sortBy: ({ next_run }) => next_run,
    },
    {
      id: 'last',
      title: 'Last fire',
      wide: true,
      cell: ({ last_fire }) => <Time at={last_fire} relative />,
      sortBy: ({ last_fire }) => last_fire,
    },
    {
      id: 'success',
      title: 'Last success',
      wide: true,
      cell: ({ last_success }) => <Time at={last_success} relative />,
      sortBy: ({ last_success }) => last_success,
    },
    {
      id: 'actions',
      title: '',
      align: 'right',
      cell: (row) => <ScheduleActions schedule={row} onDone={refetch} />,
    },
  ];
}

export function Schedules() {
  const schedules = useResource<ScheduleList>('/scheduler/jobs', ofTopics('jobs', 'breakers'));
  const chosen = queryValue('name');
  const search = queryValue('search').toLowerCase();
  return (
    <Page title="Schedules">
      <Filters>
        <TextFilter name="search" label="Name" placeholder="any" />
      </Filters>
      <Loaded resource={schedules}>
        {({ schedules: rows, reminders }) => (
          <>
            {rows.length ? (
              <Table
                rows={rows.filter((row) => nameOf(row).toLowerCase().includes(search))}
                columns={columns(schedules.refetch)}
                keyOf={nameOf}
                label="Schedules"
              />
            ) : (
              <Empty title="There are no schedules">
                Add <code>schedules:</code> to a plugin in the configuration, for example{' '}
                <code>- every: 5m</code>.
              </Empty>
            )}
            {reminders.length > 0 && (
              <p class="muted part-actions">
                Agents have {countOf(reminders.length, 'reminder')}: see{' '}
                <Link to="/agents">Agents</Link>.
              </p>
            )}
          </>
        )}
      </Loaded>
      {chosen && <ScheduleHistory key={chosen} name={chosen} />}
    </Page>
  );
}

interface ScheduleActionsProps {
  schedule: Schedule;
  onDone: () => void;
}

function ScheduleActions({ schedule, onDone }: ScheduleActionsProps) {
  const { plugin, command, pipeline, payload, state } = schedule;
  const isPaused = state === 'paused';
  const change = async (action: 'pause' | 'resume') => {
    const isSure =
      action === 'resume' ||
      (await ask({
        title: `Pause ${nameOf(schedule)}?`,
        text: 'It does not fire until it is resumed. Jobs that are queued already still run.',
        confirm: 'Pause',
        isDestructive: true,
      }));
    if (!isSure) return;
    const sent = post(path('scheduler', plugin, schedule.schedule, action));
    await report(sent, action === 'pause' ? 'The schedule is paused.' : 'The schedule is resumed.');
    onDone();
  };
  const runNow = async () => {
    const text = formatJson(payload, 0);
    if (text.includes(REDACTED)) {
      notify('Its payload has a secret, which the page does not know.', true);
      return;
    }
    const address = pipeline
      ? `${path('pipeline', pipeline)}?async=true`
      : path('plugin', plugin, command);
    const sent = post<{ job_id: string | null; instance_id?: string }>(address, {
      payload: new RawJson(text),
    });
    const result = await report(sent, `${pipeline ?? `${plugin}.${command}`} is started.`);
    if (!result) return;
    navigate(result.instance_id ? `/runs/${result.instance_id}` : `/jobs/${result.job_id}`);
  };
  return (
    <span class="row-actions">
      {(pipeline ? can('plugin:rw') : canRun(plugin, 'write')) && (
        <button type="button" onClick={runNow}>
          Run now
        </button>
      )}
      {can('system:rw') && state !== 'exhausted' && (
        <button type="button" onClick={() => change(isPaused ? 'resume' : 'pause')}>
          {isPaused ? 'Resume' : 'Pause …'}
        </button>
      )}
    </span>
  );
}
