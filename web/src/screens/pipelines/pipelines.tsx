import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Pipelines as PipelineList, PipelineRun, PipelineRuns } from '../../api/types';
import { Badge } from '../../components/badge';
import { Page } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { countOf } from '../../format/text';
import { Link } from '../../router/link';
import { describeStart, groupHandlers, type OwnedPipeline } from './handlers';

const addressOf = (name: string) => `/pipelines/${encodeURIComponent(name)}`;

/** The newest run of each pipeline, among the newest runs of all. */
function newestRuns(found: PipelineRuns | null): Map<string, PipelineRun> {
  return new Map((found?.runs ?? []).toReversed().map((run) => [run.pipeline, run]));
}

const lastRun = (newest: Map<string, PipelineRun>): Column<OwnedPipeline> => ({
  id: 'last',
  title: 'Last run',
  cell: ({ name }) => {
    const run = newest.get(name);
    return (
      run && (
        <Link to={`/runs/${run.instance_id}`}>
          <Badge status={run.status} /> <Time at={run.started_at} relative />
        </Link>
      )
    );
  },
  sortBy: ({ name }) => newest.get(name)?.started_at ?? null,
});

const COLUMNS: Column<OwnedPipeline>[] = [
  {
    id: 'name',
    title: 'Pipeline',
    cell: ({ name, paused, handlers }) => (
      <>
        <Link to={addressOf(name)}>
          <strong>{name}</strong>
        </Link>{' '}
        {paused && <Badge status="paused" />}
        {handlers.map((handler) => (
          <div key={handler.name} class="note">
            <Link to={addressOf(handler.name)}>{describeStart(handler)}</Link>{' '}
            {countOf(handler.steps, 'step')}
          </div>
        ))}
      </>
    ),
    sortBy: ({ name }) => name,
  },
  {
    id: 'on',
    title: 'Starts on',
    cell: ({ from_plugin, if: condition, ...pipeline }) => (
      <>
        <code>{describeStart(pipeline)}</code>
        {from_plugin && <span class="muted"> from {from_plugin}</span>}
        {condition && <span class="muted"> if {condition}</span>}
      </>
    ),
  },
  {
    id: 'mode',
    title: 'Mode',
    wide: true,
    cell: ({ execution_mode }) => execution_mode,
    sortBy: ({ execution_mode }) => execution_mode,
  },
  {
    id: 'steps',
    title: 'Steps',
    align: 'right',
    cell: ({ steps }) => steps,
    sortBy: ({ steps }) => steps,
  },
  {
    id: 'runs',
    title: '',
    align: 'right',
    cell: ({ name }) => <Link to={`/runs?pipeline=${encodeURIComponent(name)}`}>Runs</Link>,
  },
];

export function Pipelines() {
  const list = useResource<PipelineList>('/pipelines', ofTopics('flow'));
  const runs = useResource<PipelineRuns>(
    can('jobs:ro') ? '/pipeline-runs?limit=200' : null,
    ofTopics('pipelines'),
  );
  const [name, ...others] = COLUMNS as [Column<OwnedPipeline>, ...Column<OwnedPipeline>[]];
  return (
    <Page title="Pipelines">
      <Loaded resource={list}>
        {({ pipelines }) =>
          pipelines.length ? (
            <Table
              rows={groupHandlers(pipelines)}
              columns={[name, lastRun(newestRuns(runs.data)), ...others]}
              keyOf={({ name }) => name}
              label="Pipelines"
            />
          ) : (
            <Empty title="There are no pipelines">
              A pipeline turns an event into a series of jobs. Add one to <code>pipelines:</code> in
              the configuration.
            </Empty>
          )
        }
      </Loaded>
    </Page>
  );
}
