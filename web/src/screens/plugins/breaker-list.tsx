import { path, post } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Breakers } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask } from '../../components/dialog';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { report } from '../../components/toast';
import { countOf } from '../../format/text';
import { withLocalTimes } from '../../format/time';
import { Link } from '../../router/link';

type Breaker = Breakers['breakers'][number];
type Transition = Breakers['transitions'][number];

const BREAKER_COLUMNS: Column<Breaker>[] = [
  { id: 'command', title: 'Command', cell: ({ command }) => <strong>{command}</strong> },
  { id: 'state', title: 'State', cell: ({ state }) => <Badge status={state} /> },
  { id: 'failures', title: 'Failures in a row', cell: ({ failure_count }) => failure_count },
  {
    id: 'last',
    title: 'Last failure',
    cell: ({ last_failure_at, last_job_id }) =>
      last_job_id ? (
        <Link to={`/jobs/${last_job_id}`}>
          <Time at={last_failure_at} relative />
        </Link>
      ) : (
        <Time at={last_failure_at} relative />
      ),
  },
  {
    id: 'opened',
    title: 'Opened',
    wide: true,
    cell: ({ opened_at }) => <Time at={opened_at} relative />,
  },
];

const TRANSITION_COLUMNS: Column<Transition>[] = [
  { id: 'at', title: 'When', cell: ({ created_at }) => <Time at={created_at} /> },
  {
    id: 'change',
    title: 'Change',
    cell: ({ command, from_state, to_state }) => (
      <>
        {command}: {from_state ?? 'new'} → {to_state}
      </>
    ),
  },
  {
    id: 'reason',
    title: 'Reason',
    cell: ({ reason }) => <span class="note">{withLocalTimes(reason ?? '')}</span>,
  },
];

export function BreakerList({ plugin }: { plugin: string }) {
  const found = useResource<Breakers>(
    path('system', 'breaker', plugin),
    ofTopics('breakers', 'jobs'),
  );
  const reset = async () => {
    const isSure = await ask({
      title: `Close the breakers of ${plugin}?`,
      text: 'Its schedules fire again. If the cause remains, the breaker opens again.',
      confirm: 'Close them',
    });
    if (!isSure) return;
    await report(post<{ closed: string[] }>(path('system', 'reset', plugin)), ({ closed }) =>
      closed.length ? `${countOf(closed.length, 'breaker')} closed.` : 'No breaker was open.',
    );
    found.refetch();
  };
  return (
    <Loaded resource={found}>
      {({ breakers, transitions }) => (
        <>
          {can('system:rw') && breakers.some(({ state }) => state !== 'closed') && (
            <p>
              <button type="button" onClick={reset}>
                Reset …
              </button>
            </p>
          )}
          {breakers.length ? (
            <Table
              rows={breakers}
              columns={BREAKER_COLUMNS}
              keyOf={({ command }) => command}
              label="Breakers"
            />
          ) : (
            <Empty title="No breaker has counted a failure">
              A breaker stops a schedule after several failures in a row.
            </Empty>
          )}
          {transitions.length > 0 && (
            <Section title="Changes">
              <Table
                rows={transitions}
                columns={TRANSITION_COLUMNS}
                keyOf={({ id }) => id}
                label="Changes of the breakers"
              />
            </Section>
          )}
        </>
      )}
    </Loaded>
  );
}
