import type { Attempt, Job } from '../../api/types';
import { Badge } from '../../components/badge';
import { Section } from '../../components/page';
import { Empty } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { formatDuration } from '../../format/duration';
import { Link } from '../../router/link';

const COLUMNS: Column<Attempt>[] = [
  {
    id: 'attempt',
    title: 'Attempt',
    cell: ({ attempt, job_id }) => (
      <Link to={`/jobs/${job_id}?attempt=${attempt}`}>
        {attempt === 0 ? 'did not run' : attempt}
      </Link>
    ),
  },
  { id: 'status', title: 'Status', cell: ({ status }) => <Badge status={status} /> },
  { id: 'started', title: 'Started', cell: ({ started_at }) => <Time at={started_at} /> },
  {
    id: 'ended',
    title: 'Ended',
    wide: true,
    cell: ({ completed_at }) => <Time at={completed_at} />,
  },
  { id: 'node', title: 'Node', wide: true, cell: ({ node }) => node },
  {
    id: 'took',
    title: 'Took',
    align: 'right',
    cell: ({ duration_ms }) => formatDuration(duration_ms),
  },
  { id: 'error', title: 'Error', cell: ({ last_error }) => <span class="note">{last_error}</span> },
];

function describeMissing({ status, attempt }: Job): string {
  return status === 'running' ? `Attempt ${attempt} is running.` : 'It has not run yet.';
}

export function Attempts({ job }: { job: Job }) {
  return (
    <>
      {job.attempts.length ? (
        <Table rows={job.attempts} columns={COLUMNS} keyOf={({ seq }) => seq} label="Attempts" />
      ) : (
        <Empty title={describeMissing(job)} />
      )}
      {job.attempts.length > 0 && job.status === 'running' && (
        <p class="muted part-actions">{describeMissing(job)}</p>
      )}
      {(job.attempts_left_out ?? 0) > 0 && (
        <p class="muted">{job.attempts_left_out} earlier attempts are left out.</p>
      )}
      <Section title="Changes of state">
        <ol class="changes">
          {job.transitions.map(({ from_status, to_status, attempt, reason, created_at }) => (
            <li key={`${created_at} ${to_status} ${attempt}`}>
              <Time at={created_at} />
              <span>
                {from_status ?? 'created'} → {to_status}
              </span>
              <span class="muted">{reason}</span>
            </li>
          ))}
        </ol>
      </Section>
    </>
  );
}
