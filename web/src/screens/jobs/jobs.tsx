import { withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { JobPage, JobSummary, Pipelines, Plugins } from '../../api/types';
import { Badge } from '../../components/badge';
import { Filters, SelectFilter, TextFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { JobProgress } from '../../components/progress-bar';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Elapsed, Time } from '../../components/time';
import { PERIODS, sinceOf } from '../../format/period';
import { shortId, stepName } from '../../format/text';
import { withLocalTimes } from '../../format/time';
import { Link } from '../../router/link';
import { currentQuery, queryValue, setQuery } from '../../router/router';
import { BulkActions } from './bulk-actions';

const STATES = ['queued', 'running', 'succeeded', 'failed', 'timed_out', 'dead', 'skipped'];
/** All of them: the type check fails if the gateway knows another one. */
const PRODUCERS = Object.keys({
  scheduler: '',
  webhook: '',
  route: '',
  cli: '',
  api: '',
  hook: '',
  relay: '',
  agent: '',
  alert: '',
} satisfies Record<JobSummary['submitted_by'], string>);
const FILTERS = ['status', 'plugin', 'command', 'pipeline', 'submitted_by', 'acknowledged'];
const ACKNOWLEDGED = { true: 'yes, or cancelled', false: 'no' };
/** The states in which a job can be acknowledged. */
const FAILED = ['failed', 'dead'];
const PAGE_SIZE = 50;

const COLUMNS: Column<JobSummary>[] = [
  {
    id: 'job',
    title: 'Job',
    cell: ({ job_id, plugin, command }) => (
      <Link to={`/jobs/${job_id}`} title={job_id}>
        <strong>
          {plugin}.{command}
        </strong>{' '}
        <span class="mono muted">{shortId(job_id)}</span>
      </Link>
    ),
    sortBy: ({ plugin, command }) => `${plugin}.${command}`,
  },
  { id: 'status', title: 'Status', cell: (job) => <JobState job={job} />, sortBy: (j) => j.status },
  {
    id: 'pipeline',
    title: 'Pipeline',
    wide: true,
    cell: ({ pipeline, step_path }) =>
      pipeline && (
        <Link to={`/pipelines/${encodeURIComponent(pipeline)}`} title={step_path}>
          {pipeline}
          <span class="muted"> · {stepName(step_path)}</span>
        </Link>
      ),
    sortBy: ({ pipeline }) => pipeline || null,
  },
  { id: 'by', title: 'By', wide: true, cell: (job) => job.submitted_by },
  {
    id: 'created',
    title: 'Created',
    cell: ({ created_at }) => <Time at={created_at} relative />,
    sortBy: ({ created_at }) => created_at,
  },
  {
    id: 'took',
    title: 'Took',
    align: 'right',
    cell: ({ started_at, completed_at }) => <Elapsed from={started_at} to={completed_at} />,
    sortBy: ({ started_at, completed_at }) =>
      started_at && completed_at ? Date.parse(completed_at) - Date.parse(started_at) : null,
  },
  {
    id: 'note',
    title: 'Note',
    wide: true,
    cell: ({ waits_for, last_error }) => {
      const note = withLocalTimes(waits_for ?? last_error ?? '');
      return (
        <span class="note" title={note}>
          {note}
        </span>
      );
    },
  },
];

function JobState({ job }: { job: JobSummary }) {
  const { status, attempt, max_attempts, next_retry_at, progress } = job;
  return (
    <>
      {next_retry_at ? <Badge status="retrying" /> : <Badge status={status} />}
      {attempt > 1 && (
        <span class="muted">
          {' '}
          {attempt}/{max_attempts}
        </span>
      )}
      {(job.cancelled || job.acknowledged_at) && (
        <span class="muted"> {job.cancelled ? 'cancelled' : 'acknowledged'}</span>
      )}
      {status === 'running' && <JobProgress id={job.job_id} known={progress} />}
    </>
  );
}

export function Jobs() {
  const filter = Object.fromEntries(
    FILTERS.map((name) => [name, queryValue(name)]).filter(([, value]) => value),
  );
  const before = queryValue('before');
  const since = sinceOf(queryValue('period'));
  const address = withQuery('/jobs', { ...filter, since, limit: PAGE_SIZE, before });
  // An older page does not change by new jobs; its rows may still end.
  const page = useResource<JobPage>(address, ofTopics('jobs'));
  const plugins = useResource<Plugins>('/plugins');
  const names = (plugins.data?.plugins ?? [])
    .filter(({ state }) => state !== 'available')
    .map(({ name }) => name);
  const pipelines = useResource<Pipelines>('/pipelines');
  const pipelineNames = (pipelines.data?.pipelines ?? []).map(({ name }) => name);
  return (
    <Page
      title="Jobs"
      actions={
        can('jobs:rw') && (
          <BulkActions
            filter={since ? { ...filter, since } : filter}
            known={page.data?.jobs ?? []}
            onDone={page.refetch}
          />
        )
      }
    >
      <Filters>
        <SelectFilter name="status" label="Status" options={STATES} />
        <SelectFilter name="plugin" label="Plugin" options={names} />
        <TextFilter name="command" label="Command" placeholder="any" />
        <SelectFilter name="pipeline" label="Pipeline" options={pipelineNames} />
        <SelectFilter name="submitted_by" label="Submitted by" options={PRODUCERS} />
        {(FAILED.includes(filter.status ?? '') || filter.acknowledged) && (
          <SelectFilter
            name="acknowledged"
            label="Acknowledged"
            options={['false', 'true']}
            names={ACKNOWLEDGED}
          />
        )}
        <SelectFilter name="period" label="Created" options={PERIODS} all="any time" />
      </Filters>
      <Loaded resource={page}>
        {({ jobs, cursor }) => (
          <>
            {jobs.length ? (
              <Table rows={jobs} columns={COLUMNS} keyOf={(job) => job.job_id} label="Jobs" />
            ) : (
              <NoJobs isFiltered={currentQuery.value.size > 0} />
            )}
            <Pager before={before} cursor={cursor} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function NoJobs({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered ? (
    <Empty title="No job matches these filters">Remove a filter to see more.</Empty>
  ) : (
    <Empty title="There are no jobs yet">
      Run a command from its <Link to="/plugins">plugin</Link>, or with{' '}
      <code>ductile plugin run NAME</code>.
    </Empty>
  );
}

function Pager({ before, cursor }: { before: string; cursor: number | null }) {
  if (!before && cursor === null) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={!before} onClick={() => history.back()} hidden={!before}>
        ← Newer
      </button>
      {before && (
        <button type="button" onClick={() => setQuery({ before: null })}>
          Newest
        </button>
      )}
      <button
        type="button"
        disabled={cursor === null}
        onClick={() => setQuery({ before: String(cursor) }, true)}
      >
        Older →
      </button>
    </nav>
  );
}
