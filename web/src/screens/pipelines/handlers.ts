// The lists of steps that run after a pipeline: the gateway compiles each to a pipeline of its own.

import type { Pipelines } from '../../api/types';

type PipelineRow = Pipelines['pipelines'][number];

export interface OwnedPipeline extends PipelineRow {
  handlers: PipelineRow[];
}

const KEYS: Record<string, string> = {
  'run.failed': 'on_failure',
  'run.succeeded': 'on_success',
  'run.ended': 'always',
};

type Trigger = Pick<PipelineRow, 'on' | 'on_hook' | 'from_pipeline'>;

/** What starts a pipeline: an event type, a hook, the end of its owner, or its schedules alone. */
export function describeStart({ on, on_hook, from_pipeline }: Trigger): string {
  if (on !== null) return on;
  if (on_hook === null) return 'schedules';
  return from_pipeline === null ? `hook ${on_hook}` : (KEYS[on_hook] ?? on_hook);
}

/** Puts each handler under its pipeline. */
export function groupHandlers(pipelines: PipelineRow[]): OwnedPipeline[] {
  return pipelines
    .filter(({ from_pipeline }) => from_pipeline === null)
    .map((pipeline) => ({
      ...pipeline,
      handlers: pipelines.filter(({ from_pipeline }) => from_pipeline === pipeline.name),
    }));
}
