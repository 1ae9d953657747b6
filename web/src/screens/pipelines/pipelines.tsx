import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Pipelines as PipelineList } from '../../api/types';
import { Badge } from '../../components/badge';
import { Page } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { Time } from '../../components/time';
import { countOf } from '../../format/text';
import { Link } from '../../router/link';
import { describeStart, groupHandlers, type OwnedPipeline } from './handlers';

const addressOf = (name: string) => `/pipelines/${encodeURIComponent(name)}`;

const LAST_RUN: Column<OwnedPipeline> = {
  id: 'last',
  title: 'Last run',
  cell: ({ last_run: run }) =>
    run ? (
      <Link to={`/runs/${run.instance_id}`}>
        <Badge status={run.status} /> <Time at={run.started_at} relative />
      </Link>
    ) : (
      <span class="muted">never</span>
    ),
  sortBy: ({ last_run }) => last_run?.started_at ?? null,
};

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
    cell: ({ name }) => (
      <Link class="link" to={`/runs?pipeline=${encodeURIComponent(name)}`}>
        Runs
      </Link>
    ),
  },
];

export function Pipelines() {
  const list = useResource<PipelineList>('/pipelines', ofTopics('flow', 'pipelines'));
  const [name, ...others] = COLUMNS as [Column<OwnedPipeline>, ...Column<OwnedPipeline>[]];
  return (
    <Page title="Pipelines">
      <Loaded resource={list}>
        {({ pipelines }) =>
          pipelines.length ? (
            <Table
              rows={groupHandlers(pipelines)}
              columns={can('jobs:ro') ? [name, LAST_RUN, ...others] : [name, ...others]}
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
