// One pipeline: its graph with the newest run on it, its runs, its plots, a dry run and a start.

import { useState } from 'preact/hooks';
import { path, withQuery } from '../../api/client';
import { ofTopics, type Resource, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Pipeline, PipelineRun, PipelineRunDetail, PipelineRuns } from '../../api/types';
import { LazyComparePipeline, LazyGraph } from '../../components/lazy-views';
import { Details, Page, Section } from '../../components/page';
import { Empty, Loaded, MissingRoute, Scoped } from '../../components/states';
import { formatDuration } from '../../format/duration';
import { Link } from '../../router/link';
import { PauseButton, PauseNotice } from '../pauses/pause-control';
import { usePauses } from '../pauses/pauses';
import { OutcomePlots } from '../plugins/outcome-plots';
import { concernsRun } from '../runs/run';
import { RunTable } from '../runs/run-table';
import { describeStart } from './handlers';
import { shapeOf } from './pipeline-graph';
import { StartDialog } from './start-dialog';

const SHOWN_RUNS = 10;
const PLOTTED_RUNS = 500;

export function PipelineScreen({ name }: { name: string }) {
  const [isStarting, setStarting] = useState(false);
  const pipeline = useResource<Pipeline>(path('pipeline', name));
  const runs = useResource<PipelineRuns>(
    can('jobs:ro') ? withQuery('/pipeline-runs', { pipeline: name, limit: PLOTTED_RUNS }) : null,
    ofTopics('pipelines', 'jobs'),
  );
  const pauses = usePauses();
  const target = { kind: 'pipeline', name } as const;
  const actions = (
    <>
      <PauseButton target={target} pauses={pauses} />
      {can('plugin:rw') && (
        <button type="button" class="primary" onClick={() => setStarting(true)}>
          Start …
        </button>
      )}
    </>
  );
  return (
    <Page title={name} parent={<Link to="/pipelines">Pipelines</Link>} actions={actions}>
      <PauseNotice target={target} pauses={pauses} />
      <Loaded resource={pipeline}>
        {(found) => <PipelineParts pipeline={found} newest={runs.data?.runs[0]} />}
      </Loaded>
      <Section
        title="Recent runs"
        aside={<Link to={`/runs?pipeline=${encodeURIComponent(name)}`}>All runs</Link>}
      >
        <Scoped scope="jobs:ro">
          <Loaded resource={runs} missing={<MissingRoute what="a list of pipeline runs" />}>
            {({ runs: rows }) =>
              rows.length ? (
                <>
                  <RunTable runs={rows.slice(0, SHOWN_RUNS)} />
                  <OutcomePlots samples={rows.map(sampleOf)} label={name} />
                </>
              ) : (
                <Empty title="It has not run yet">
                  Start it, or publish the event it waits for.
                </Empty>
              )
            }
          </Loaded>
        </Scoped>
      </Section>
      {can('system:ro') && can('jobs:ro') && (
        <Section title="Compare with the files">
          <LazyComparePipeline name={name} />
        </Section>
      )}
      {isStarting && <StartDialog pipeline={name} onClose={() => setStarting(false)} />}
    </Page>
  );
}

function sampleOf({ started_at, ended_at, duration_ms, queued_ms, status }: PipelineRun) {
  return { at: ended_at ?? started_at, durationMs: duration_ms, waitMs: queued_ms, status };
}

interface PipelinePartsProps {
  pipeline: Pipeline;
  newest: PipelineRun | undefined;
}

function PipelineParts({ pipeline, newest }: PipelinePartsProps) {
  const run: Resource<PipelineRunDetail> = useResource(
    newest ? path('pipeline-runs', newest.instance_id) : null,
    (event) => concernsRun(event, run.data),
  );
  const states = new Map(run.data?.steps.map(({ step, status }) => [step, status]));
  const start = describeStart(pipeline);
  const owner = pipeline.from_pipeline;
  return (
    <>
      <Details
        entries={[
          ['Starts on', <code>{start}</code>],
          ['From', pipeline.from_plugin],
          [
            'Of the pipeline',
            owner && <Link to={`/pipelines/${encodeURIComponent(owner)}`}>{owner}</Link>,
          ],
          ['If', pipeline.if && <code>{pipeline.if}</code>],
          ['Mode', pipeline.execution_mode],
          ['Timeout', pipeline.timeout && formatDuration(pipeline.timeout * 1000)],
          ['Defined in', <span class="mono">{pipeline.steps[0]?.source}</span>],
        ]}
      />
      <Section title={newest ? 'Steps, with the newest run' : 'Steps'}>
        <LazyGraph
          label={`Steps of ${pipeline.name}`}
          {...shapeOf(start, pipeline.steps, states)}
        />
      </Section>
    </>
  );
}
