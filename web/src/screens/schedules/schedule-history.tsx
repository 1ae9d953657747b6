// What one schedule did and will do, occurrence by occurrence.

import { withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import type { Fires, Occurrences } from '../../api/types';
import { Badge } from '../../components/badge';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { withLocalTimes } from '../../format/time';
import { Link } from '../../router/link';
import { setQuery } from '../../router/router';

type Occurrence = Occurrences['slots'][number];

const NEXT_FIRES = 5;

const COLUMNS: Column<Occurrence>[] = [
  {
    id: 'slot',
    title: 'Due',
    cell: ({ slot, job_id }) =>
      job_id ? (
        <Link to={`/jobs/${job_id}`}>
          <Time at={slot} />
        </Link>
      ) : (
        <Time at={slot} />
      ),
  },
  {
    id: 'outcome',
    title: 'Outcome',
    cell: ({ fired, status }) => <Badge status={status ?? (fired ? 'queued' : 'skipped')} />,
  },
  {
    id: 'why',
    title: 'Why',
    cell: ({ why, reason }) => <span class="note">{withLocalTimes(why ?? reason ?? '')}</span>,
  },
];

export function ScheduleHistory({ name }: { name: string }) {
  const occurrences = useResource<Occurrences>(
    withQuery('/scheduler/explain', { name }),
    ofTopics('jobs'),
  );
  const fires = useResource<Fires>(
    withQuery('/scheduler/next', { name, count: NEXT_FIRES }),
    ofTopics('jobs'),
  );
  const close = (
    <button type="button" class="quiet" onClick={() => setQuery({ name: null })}>
      Close
    </button>
  );
  return (
    <Section title={name} aside={close}>
      <Loaded resource={fires}>
        {({ fires: next }) => (
          <p class="fires">
            <span class="muted">Next: </span>
            {next.length
              ? next.map(({ fires_at, slot }) => <Time key={slot} at={fires_at} />)
              : 'it does not fire again'}
          </p>
        )}
      </Loaded>
      <Loaded resource={occurrences}>
        {({ slots }) =>
          slots.length ? (
            <Table
              rows={[...slots].reverse()}
              columns={COLUMNS}
              keyOf={({ slot }) => slot}
              label="Occurrences of the last day"
            />
          ) : (
            <Empty title="No occurrence was due in the last day">
              Use the button <em>Run now</em> to try the schedule.
            </Empty>
          )
        }
      </Loaded>
    </Section>
  );
}
