// One job: why first, then its log, its attempts, its run and its data.

import { path } from '../../api/client';
import type { Json } from '../../api/json';
import { useResource } from '../../api/resource';
import type { GatewayEvent, Job, JobReasons } from '../../api/types';
import { Badge } from '../../components/badge';
import { JsonView } from '../../components/json-view';
import { Details, Page, Section } from '../../components/page';
import { Loaded } from '../../components/states';
import { Tabs } from '../../components/tabs';
import { Elapsed, Time } from '../../components/time';
import { shortId } from '../../format/text';
import { Link } from '../../router/link';
import { Attempts } from './attempts';
import { JobActions } from './job-actions';
import { JobLog } from './job-log';
import { JobRun } from './job-run';
import { Why } from './why';

/** Returns whether an event is about this job. */
export function concernsJob(id: string): (event: GatewayEvent) => boolean {
  return ({ data }) => (data as Record<string, Json> | null)?.job_id === id;
}

export function JobScreen({ id }: { id: string }) {
  const concerns = concernsJob(id);
  const job = useResource<Job>(path('job', id), concerns);
  const why = useResource<JobReasons>(path('job', id, 'why'), concerns);
  const refetch = () => {
    job.refetch();
    why.refetch();
  };
  const title = job.data ? `${job.data.plugin}.${job.data.command}` : `Job ${shortId(id)}`;
  return (
    <Page
      title={title}
      parent={<Parents job={job.data} />}
      mark={job.data && <JobMark job={job.data} />}
      actions={job.data && <JobActions job={job.data} onDone={refetch} />}
    >
      <Loaded resource={job}>
        {(found) => (
          <>
            <Loaded resource={why}>{(reasons) => <Why job={found} why={reasons.why} />}</Loaded>
            <Tabs label="Parts of the job" tabs={partsOf(found)} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** Where the job belongs: to the list of jobs, and to a run of its pipeline. */
function Parents({ job }: { job: Job | null }) {
  return (
    <>
      <Link to="/jobs">Jobs</Link>
      {job?.instance_id && (
        <>
          {' · '}
          <Link to={`/runs/${job.instance_id}`}>Run of {job.pipeline}</Link>
        </>
      )}
    </>
  );
}

function JobMark({ job: { status, next_retry_at, ...job } }: { job: Job }) {
  const note = job.cancelled ? 'cancelled' : job.acknowledged_at && 'acknowledged';
  return (
    <>
      <Badge status={next_retry_at ? 'retrying' : status} />
      {note && <span class="muted"> {note}</span>}
    </>
  );
}

/** With the one that is running, which has no entry yet. */
function countAttempts({ attempts, attempts_left_out, status }: Job): number {
  return attempts.length + (attempts_left_out ?? 0) + (status === 'running' ? 1 : 0);
}

function partsOf(job: Job) {
  return [
    { id: 'log', label: 'Log', content: () => <JobLog job={job} /> },
    {
      id: 'attempts',
      label: `Attempts (${countAttempts(job)})`,
      content: () => <Attempts job={job} />,
    },
    { id: 'run', label: 'Run', content: () => <JobRun jobId={job.job_id} /> },
    { id: 'data', label: 'Data', content: () => <JobData job={job} /> },
  ];
}

function JobData({ job }: { job: Job }) {
  return (
    <>
      <JobFacts job={job} />
      <div class="columns">
        <Section title="Payload">
          <JsonView value={job.payload} label="Payload" />
        </Section>
        <Section title="Response">
          {job.result === null ? (
            <p class="muted">There is no response yet.</p>
          ) : (
            <JsonView value={job.result} label="Response" />
          )}
        </Section>
      </div>
    </>
  );
}

function JobFacts({ job }: { job: Job }) {
  const parent = job.parent_job_id;
  return (
    <Details
      entries={[
        ['Id', <span class="mono">{job.job_id}</span>],
        ['Submitted by', [job.submitted_by, job.submitter].filter(Boolean).join(' · ')],
        ['Created', <Time at={job.created_at} />],
        ['Started', job.started_at && <Time at={job.started_at} />],
        ['Ended', job.completed_at && <Time at={job.completed_at} />],
        [
          'Took',
          job.started_at && job.completed_at && (
            <Elapsed from={job.started_at} to={job.completed_at} />
          ),
        ],
        ['Attempt', `${job.attempt} of ${job.max_attempts ?? '?'}`],
        ['Pipeline', job.pipeline && <PipelineLink job={job} />],
        ['Run', job.instance_id && <Link to={`/runs/${job.instance_id}`}>{job.instance_id}</Link>],
        ['Parent', parent && <Link to={`/jobs/${parent}`}>{parent}</Link>],
        ['Replays', job.replay_of && <Link to={`/jobs/${job.replay_of}`}>{job.replay_of}</Link>],
        ['Acknowledged', job.acknowledged_at && <Time at={job.acknowledged_at} />],
        ['Acknowledged by', job.acknowledged_by],
        ['Schedule', job.schedule_id && `${job.plugin}/${job.schedule_id}`],
        ['Occurrence', job.slot && <Time at={job.slot} />],
        ['Dedupe key', job.dedupe_key],
        ['Gateway boot', job.owner && <span class="mono">{job.owner}</span>],
      ]}
    />
  );
}

function PipelineLink({ job: { pipeline = '', step_path } }: { job: Job }) {
  return (
    <>
      <Link to={`/pipelines/${encodeURIComponent(pipeline)}`}>{pipeline}</Link>
      {step_path && ` · ${step_path}`}
    </>
  );
}
