// The runs of pipelines: which failed, when, and at which step.

import { withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import type { PipelineRuns, Pipelines } from '../../api/types';
import { Filters, SelectFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { CursorPager } from '../../components/pager';
import { Empty, Loaded, MissingRoute } from '../../components/states';
import { PERIODS, sinceOf } from '../../format/period';
import { Link } from '../../router/link';
import { currentQuery, queryValue } from '../../router/router';
import { RunTable } from './run-table';

const STATES = ['running', 'succeeded', 'failed', 'skipped'];
const PAGE_SIZE = 50;
export function Runs() {
  const address = withQuery('/pipeline-runs', {
    pipeline: queryValue('pipeline'),
    status: queryValue('status'),
    since: sinceOf(queryValue('period')),
    before: queryValue('before'),
    limit: PAGE_SIZE,
  });
  const page = useResource<PipelineRuns>(address, ofTopics('jobs', 'pipelines'));
  const pipelines = useResource<Pipelines>('/pipelines');
  const names = (pipelines.data?.pipelines ?? []).map(({ name }) => name);
  return (
    <Page title="Runs">
      <Filters>
        <SelectFilter name="pipeline" label="Pipeline" options={names} />
        <SelectFilter name="status" label="Status" options={STATES} />
        <SelectFilter name="period" label="Started" options={PERIODS} all="any time" />
      </Filters>
      <Loaded resource={page} missing={<MissingRoute what="a list of pipeline runs" />}>
        {({ runs, cursor }) => (
          <>
            {runs.length ? <RunTable runs={runs} /> : <NoRuns />}
            <CursorPager next={cursor} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function NoRuns() {
  return currentQuery.value.size ? (
    <Empty title="No run matches these filters">Remove a filter to see more.</Empty>
  ) : (
    <Empty title="No pipeline has run yet">
      Start one from its <Link to="/pipelines">pipeline</Link>.
    </Empty>
  );
}
