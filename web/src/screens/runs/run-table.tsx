import type { PipelineRun } from '../../api/types';
import { Badge } from '../../components/badge';
import { type Column, Table } from '../../components/table';
import { Elapsed, Time } from '../../components/time';
import { shortId, stepName } from '../../format/text';
import { withLocalTimes } from '../../format/time';
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
    id: 'why',
    title: 'Why',
    wide: true,
    cell: ({ failed_step, reason }) => {
      const text = withLocalTimes(reason ?? '');
      return (
        <span class="note" title={text}>
          {failed_step && <strong title={failed_step}>{stepName(failed_step)} </strong>}
          {text.replace(STEP_AND_JOB, '')}
        </span>
      );
    },
  },
];

export function RunTable({ runs }: { runs: PipelineRun[] }) {
  return (
    <Table rows={runs} columns={COLUMNS} keyOf={(run) => run.instance_id} label="Pipeline runs" />
  );
}
