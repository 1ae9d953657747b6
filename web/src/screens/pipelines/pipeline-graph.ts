// The compiled steps of a pipeline as nodes and edges.

import type { PipelineStep } from '../../api/types';
import type { GraphEdge, GraphNode } from '../../components/graph';
import { stepName } from '../../format/text';

/** The id of the node for what starts the pipeline; no step has a name with a space. */
const START = 'the start';

export interface PipelineShape {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

/** `states` has the state of a step in the newest run, by the step's name. */
export function shapeOf(
  start: string,
  steps: PipelineStep[],
  states: ReadonlyMap<string, string>,
): PipelineShape {
  const entry = { id: START, title: start, subtitle: 'start', status: 'start' };
  const nodes = steps.map(({ step, kind, plugin, command, if: condition }) => ({
    id: step,
    title: condition ? 'if' : stepName(step),
    subtitle: condition || (plugin ? `${plugin}.${command}` : kind),
    status: states.get(step) ?? 'none',
  }));
  const first = steps[0];
  const edges: GraphEdge[] = first ? [{ from: START, to: first.step }] : [];
  for (const step of steps) edges.push(...edgesFrom(step, steps));
  return { nodes: [entry, ...nodes], edges };
}

function edgesFrom(step: PipelineStep, steps: PipelineStep[]): GraphEdge[] {
  const { step: from, next, otherwise, branches, on_events, kind } = step;
  const edges: GraphEdge[] = [];
  for (const [label, to] of Object.entries(branches)) edges.push({ from, to: String(to), label });
  for (const [label, targets] of Object.entries(on_events)) {
    for (const to of targets) edges.push({ from, to, label });
  }
  if (otherwise) edges.push({ from, to: otherwise, label: 'else' });
  if (!next) return edges;
  // A split continues after its branches: the join follows their last steps.
  const ends = kind === 'split' ? branchEnds(from, steps) : [];
  if (ends.length) edges.push(...ends.map((end) => ({ from: end, to: next })));
  else edges.push({ from, to: next });
  return edges;
}

function branchEnds(split: string, steps: PipelineStep[]): string[] {
  return steps
    .filter(({ step, next, kind }) => step.startsWith(`${split}.`) && !next && kind !== 'split')
    .map(({ step }) => step);
}
