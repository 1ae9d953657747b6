// The steps of a run as a graph and as rows of a timeline.

import type { RunStep, TreeNode } from '../../api/types';
import type { GraphEdge, GraphNode } from '../../components/graph';
import type { TimelineRow, TimelineSpan } from '../../components/timeline';
import { countOf, stepName, words } from '../../format/text';
import { attemptSpans } from '../job/attempt-spans';

/** The state of a step with several jobs is the one that needs attention most. */
const URGENCY = ['dead', 'failed', 'timed_out', 'running', 'queued', 'waiting'];

const PLAIN = new Set(['succeeded', 'queued', 'running', 'waiting', 'not_run']);

/** The steps without those that only evaluated the `if` of another one. */
export function foldConditions(steps: RunStep[]): RunStep[] {
  const kept = new Set(
    steps.filter(({ kind, status }) => kind !== 'switch' || !PLAIN.has(status)).map(stepOf),
  );
  const sources = new Map(steps.map(({ step, depends_on }) => [step, depends_on]));
  const follow = (step: string): string[] =>
    kept.has(step) ? [step] : (sources.get(step) ?? []).flatMap(follow);
  return steps
    .filter(({ step }) => kept.has(step))
    .map((step) => ({ ...step, depends_on: step.depends_on.flatMap(follow) }));
}

function stepOf({ step }: RunStep): string {
  return step;
}

/** One node per step: a step that ran for several events has several jobs. */
export function graphOf(steps: RunStep[]): { nodes: GraphNode[]; edges: GraphEdge[] } {
  const groups = new Map<string, RunStep[]>();
  for (const step of steps) groups.set(step.step, [...(groups.get(step.step) ?? []), step]);
  const edges = new Map<string, GraphEdge>();
  for (const { step, depends_on } of steps) {
    for (const from of depends_on) edges.set(`${from} ${step}`, { from, to: step });
  }
  return {
    nodes: [...groups].map(([id, group]) => nodeOf(id, group)),
    edges: [...edges.values()],
  };
}

function nodeOf(id: string, group: RunStep[]): GraphNode {
  const byUrgency = URGENCY.flatMap((status) => group.filter((step) => step.status === status));
  const shown = byUrgency[0] ?? group[0];
  const status = shown?.status ?? 'waiting';
  const what = group.length > 1 ? countOf(group.length, 'job') : (shown?.plugin ?? shown?.kind);
  return {
    id,
    title: stepName(id),
    subtitle: `${what} · ${words(status)}`,
    status,
    href: shown?.job_id ? `/jobs/${shown.job_id}` : undefined,
  };
}

/** The attempts of `jobs` if they are known, otherwise the last attempt of each step. */
export function timelineOf(steps: RunStep[], jobs: TreeNode[] = []): TimelineRow[] {
  const nodes = new Map(jobs.map((job) => [job.job_id, job]));
  return steps.flatMap((step) => {
    const { created_at, started_at, completed_at, status, job_id } = step;
    if (!created_at || !job_id) return [];
    const title = stepName(step.step);
    const href = `/jobs/${job_id}`;
    const node = nodes.get(job_id);
    if (node?.attempts.length) return [{ id: job_id, title, href, spans: attemptSpans(node) }];
    const spans: TimelineSpan[] = [
      { from: created_at, to: started_at ?? completed_at, status: 'waiting', label: 'waited' },
    ];
    if (started_at) {
      spans.push({ from: started_at, to: completed_at, status, label: words(status) });
    }
    return [{ id: job_id, title, href, spans }];
  });
}
