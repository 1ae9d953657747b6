import type { PipelineRun } from '../../api/types';
import { Badge } from '../../components/badge';
import { type Column, Table } from '../../components/table';
import { Elapsed, Time } from '../../components/time';
import { shortId } from '../../format/text';
import { Link } from '../../router/link';

/** The beginning of a reason, which the other columns show. */
const STEP_AND_JOB = /^step \S+ ended as \w+ \(job [^)]*\): /;

const COLUMNS: Column<PipelineRun>[] = [
  {
    id: 'run',
    title: 'Run',
    cell: ({ instance_id, pipeline }) => (
      <Link to={`/runs/${instance_id}`} title={instance_id}>
        <strong>{pipeline}</strong> <span class="mono muted">{shortId(instance_id)}</span>
      </Link>
    ),
    sortBy: ({ pipeline }) => pipeline,
  },
  {
    id: 'status',
    title: 'Status',
    cell: ({ status }) => <Badge status={status} />,
    sortBy: ({ status }) => status,
  },
  { id: 'trigger', title: 'Trigger', wide: true, cell: ({ trigger }) => trigger },
  {
    id: 'started',
    title: 'Started',
    cell: ({ started_at }) => <Time at={started_at} relative />,
    sortBy: ({ started_at }) => started_at,
  },
  {
    id: 'took',
    title: 'Took',
    align: 'right',
    cell: ({ started_at, ended_at }) => <Elapsed from={started_at} to={ended_at} />,
    sortBy: ({ duration_ms }) => duration_ms,
  },
  {
    id: 'failed',
    title: 'Failed step',
    wide: true,
    cell: ({ failed_step, reason }) => (
      <span class="note" title={reason ?? ''}>
        {failed_step && <strong>{failed_step} </strong>}
        {reason?.replace(STEP_AND_JOB, '')}
      </span>
    ),
  },
];

export function RunTable({ runs }: { runs: PipelineRun[] }) {
  return (
    <Table rows={runs} columns={COLUMNS} keyOf={(run) => run.instance_id} label="Pipeline runs" />
  );
}
