// One run of a pipeline: its graph, its timeline, and why each step did or did not run.

import { path, post } from '../../api/client';
import type { Json } from '../../api/json';
import { concernsJobs, type Resource, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { GatewayEvent, PipelineRunDetail, RunStep } from '../../api/types';
import { Badge } from '../../components/badge';
import { ask } from '../../components/dialog';
import { LazyGraph } from '../../components/lazy-views';
import { LogView } from '../../components/log-view';
import { Details, Page, Section } from '../../components/page';
import { Loaded, MissingRoute } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Elapsed, Time } from '../../components/time';
import { Timeline } from '../../components/timeline';
import { report } from '../../components/toast';
import { capitalized, stepName } from '../../format/text';
import { Link } from '../../router/link';
import { RunApprovals } from '../approvals/decision';
import { useJobTree } from '../job/job-run';
import { withLinks } from '../job/why';
import { foldConditions, graphOf, timelineOf } from './run-steps';

const COLUMNS: Column<RunStep>[] = [
  {
    id: 'step',
    title: 'Step',
    cell: ({ step, job_id }) =>
      job_id ? (
        <Link to={`/jobs/${job_id}`} title={step}>
          {stepName(step)}
        </Link>
      ) : (
        stepName(step)
      ),
  },
  {
    id: 'status',
    title: 'Status',
    cell: ({ status, next_retry_at }) => (
      <Badge status={status === 'queued' && next_retry_at ? 'retrying' : status} />
    ),
  },
  {
    id: 'plugin',
    title: 'Command',
    wide: true,
    cell: ({ plugin, command }) => plugin && `${plugin}.${command}`,
  },
  { id: 'started', title: 'Started', cell: ({ started_at }) => <Time at={started_at} /> },
  {
    id: 'took',
    title: 'Took',
    align: 'right',
    cell: ({ started_at, completed_at, job_id }) =>
      job_id && <Elapsed from={started_at} to={completed_at} />,
  },
  {
    id: 'why',
    title: 'Why',
    cell: ({ reason, last_error }) => (
      <span class="note">{withLinks(reason ?? last_error ?? '')}</span>
    ),
  },
];

/** Why a run waits may depend on jobs of others; one that has ended changes with its own only. */
export function concernsRun(event: GatewayEvent, run: PipelineRunDetail | null): boolean {
  const { instance_id } = (event.data ?? {}) as Record<string, Json>;
  if (event.topic === 'pipelines') return instance_id === run?.instance_id;
  return concernsJobs(event, run?.status === 'running' ? null : (run?.steps ?? null));
}

export function RunScreen({ id }: { id: string }) {
  const run: Resource<PipelineRunDetail> = useResource(path('pipeline-runs', id), (event) =>
    concernsRun(event, run.data),
  );
  return (
    <Page
      title={run.data?.pipeline ?? 'Run'}
      parent={<Link to="/runs">Runs</Link>}
      mark={run.data && <Badge status={run.data.status} />}
      actions={run.data && <RunActions run={run.data} onDone={run.refetch} />}
    >
      <Loaded resource={run} missing={<MissingRoute what="this pipeline run" />}>
        {(found) => (
          <>
            <RunApprovals pipeline={found.pipeline} run={found.instance_id} />
            <RunParts run={found} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function RunParts({ run }: { run: PipelineRunDetail }) {
  const isFailed = run.status === 'failed';
  const steps = foldConditions(run.steps);
  const tail = run.steps.find(({ job_id }) => job_id === run.failed_job_id)?.log_tail;
  return (
    <>
      <section class={isFailed ? 'why why-bad' : 'why'} aria-labelledby="why">
        <h2 id="why">{isFailed ? 'Why it failed' : 'This run'}</h2>
        {isFailed && (
          <p class="why-error">{withLinks(run.reason ?? `Step ${run.failed_step} failed.`)}</p>
        )}
        {run.status === 'running' && run.reason && (
          <p class="why-waits">{withLinks(capitalized(run.reason))}</p>
        )}
        <Details
          entries={[
            [
              'Pipeline',
              <Link to={`/pipelines/${encodeURIComponent(run.pipeline)}`}>{run.pipeline}</Link>,
            ],
            ['Trigger', run.trigger],
            ['Started', <Time at={run.started_at} />],
            ['Ended', run.ended_at && <Time at={run.ended_at} />],
            ['Took', <Elapsed from={run.started_at} to={run.ended_at} />],
            ['Id', <span class="mono">{run.instance_id}</span>],
          ]}
        />
      </section>
      <Section title="Graph">
        <LazyGraph label={`Graph of a run of ${run.pipeline}`} {...graphOf(steps)} />
      </Section>
      <Section title="Timeline">
        <RunTimeline run={run} />
      </Section>
      <Section title="Steps">
        <Table
          rows={steps}
          columns={COLUMNS}
          keyOf={({ step, job_id }) => `${step} ${job_id}`}
          label="Steps"
        />
        {run.steps_left_out && <p class="muted">There are more steps than these.</p>}
      </Section>
      {tail && (
        <Section title={`End of the log of ${run.failed_step}`}>
          <LogView text={tail} name={`${run.failed_job_id}.log`} />
        </Section>
      )}
    </>
  );
}

/** With every attempt of each step, from the tree of the run's jobs. */
function RunTimeline({ run }: { run: PipelineRunDetail }) {
  const tree = useJobTree(run.root_job_id);
  return <Timeline rows={timelineOf(foldConditions(run.steps), tree.data?.jobs ?? [])} />;
}

interface RunActionsProps {
  run: PipelineRunDetail;
  onDone: () => void;
}

function RunActions({ run, onDone }: RunActionsProps) {
  if (!can('jobs:rw')) return null;
  const address = (action: string) => path('pipeline-runs', run.instance_id, action);
  const cancel = async () => {
    const isSure = await ask({
      title: `Cancel this run of ${run.pipeline}?`,
      text: 'Queued steps end without running, and running steps are terminated.',
      confirm: 'Cancel the run',
      isDestructive: true,
    });
    if (isSure) await report(post(address('cancel')), 'The run is cancelled.');
    onDone();
  };
  const retry = async () => {
    await report(post(address('retry')), 'The failed steps are queued again.');
    onDone();
  };
  return (
    <>
      {run.status === 'failed' && (
        <button type="button" class="primary" onClick={retry}>
          Retry the failed steps
        </button>
      )}
      {run.status === 'running' && (
        <button type="button" class="danger" onClick={cancel}>
          Cancel
        </button>
      )}
    </>
  );
}
