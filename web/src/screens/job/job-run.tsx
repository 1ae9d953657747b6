// All jobs that belong together with this one, as a graph and as a timeline.

import { path } from '../../api/client';
import { concernsJobs, type Resource, useResource } from '../../api/resource';
import type { JobTree, TreeNode } from '../../api/types';
import { LazyGraph } from '../../components/lazy-views';
import { Section } from '../../components/page';
import { Loaded } from '../../components/states';
import { Timeline, type TimelineRow } from '../../components/timeline';
import { formatDuration } from '../../format/duration';
import { stepName } from '../../format/text';
import { attemptSpans } from './attempt-spans';

/** The job and all that belong together with it. */
export function useJobTree(id: string | null): Resource<JobTree> {
  const tree: Resource<JobTree> = useResource(
    id && `${path('job', id, 'tree')}?flat=true`,
    (event) => concernsJobs(event, tree.data?.jobs ?? null),
  );
  return tree;
}

export function JobRun({ jobId }: { jobId: string }) {
  const tree = useJobTree(jobId);
  return (
    <Loaded resource={tree}>
      {({ jobs: all = [] }) => {
        const jobs = foldConditions(all, jobId);
        return (
          <>
            <Section title="Graph">
              <LazyGraph
                label="Graph of the run"
                nodes={jobs.map((job) => ({
                  id: job.job_id,
                  title: titleOf(job),
                  subtitle: describe(job),
                  status: job.status,
                  href: `/jobs/${job.job_id}?tab=run`,
                  isCurrent: job.job_id === jobId,
                }))}
                edges={edgesOf(jobs)}
              />
            </Section>
            <Section title="Timeline">
              <Timeline rows={jobs.map(rowOf)} />
            </Section>
          </>
        );
      }}
    </Loaded>
  );
}

const PLAIN = new Set(['succeeded', 'queued', 'running']);

/** The jobs without those that only evaluated the `if` of a step; the shown one stays. */
export function foldConditions(jobs: TreeNode[], shown: string): TreeNode[] {
  const folded = new Map(
    jobs
      .filter(({ plugin, status }) => plugin === 'core.switch' && PLAIN.has(status))
      .filter(({ job_id }) => job_id !== shown)
      .map(({ job_id, parent_job_id }) => [job_id, parent_job_id]),
  );
  const follow = (id: string | null): string | null =>
    id !== null && folded.has(id) ? follow(folded.get(id) ?? null) : id;
  return jobs
    .filter(({ job_id }) => !folded.has(job_id))
    .map((job) => ({ ...job, parent_job_id: follow(job.parent_job_id) }));
}

function titleOf({ step, plugin, command }: TreeNode): string {
  return step ? stepName(step) : `${plugin}.${command}`;
}

function describe({ plugin, status, duration_ms }: TreeNode): string {
  const took = duration_ms === null ? '' : ` · ${formatDuration(duration_ms)}`;
  return `${plugin} · ${status.replace('_', ' ')}${took}`;
}

/** A join follows every job of its split, not only its parent. */
export function edgesOf(jobs: TreeNode[]): { from: string; to: string }[] {
  const edges: { from: string; to: string }[] = [];
  for (const job of jobs) {
    const joined = job.join_of ? branchEnds(jobs, job) : [];
    const sources = joined.length ? joined : job.parent_job_id ? [job.parent_job_id] : [];
    edges.push(...sources.map((from) => ({ from, to: job.job_id })));
  }
  return edges;
}

function branchEnds(jobs: TreeNode[], join: TreeNode): string[] {
  const below = new Set([join.parent_job_id]);
  // Jobs are listed after their parents.
  const inSplit = jobs.filter(({ branch, parent_job_id, job_id }) => {
    const isMember = Boolean(branch) && below.has(parent_job_id);
    if (isMember) below.add(job_id);
    return isMember;
  });
  const parents = new Set(inSplit.map(({ parent_job_id }) => parent_job_id));
  return inSplit.filter(({ job_id }) => !parents.has(job_id)).map(({ job_id }) => job_id);
}

function rowOf(job: TreeNode): TimelineRow {
  return {
    id: job.job_id,
    title: titleOf(job),
    href: `/jobs/${job.job_id}`,
    spans: attemptSpans(job),
  };
}
