// The runs of pipelines: which failed, when, and at which step.

import { withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import type { PipelineRuns, Pipelines } from '../../api/types';
import { Filters, SelectFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { Empty, Loaded, MissingRoute } from '../../components/states';
import { Link } from '../../router/link';
import { currentQuery, queryValue, setQuery } from '../../router/router';
import { RunTable } from './run-table';

const STATES = ['running', 'succeeded', 'failed', 'skipped'];
const PAGE_SIZE = 50;
const HOUR_MS = 3_600_000;
const PERIODS: Record<string, number> = {
  'last hour': HOUR_MS,
  'last 12 hours': 12 * HOUR_MS,
  'last 24 hours': 24 * HOUR_MS,
  'last 7 days': 168 * HOUR_MS,
};

export function Runs() {
  const period = PERIODS[queryValue('period')];
  const address = withQuery('/pipeline-runs', {
    pipeline: queryValue('pipeline'),
    status: queryValue('status'),
    // Whole minutes, so that the address does not change with every event.
    since: period && new Date(floorMinute(Date.now() - period)).toISOString(),
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
        <SelectFilter name="period" label="Started" options={Object.keys(PERIODS)} all="any time" />
      </Filters>
      <Loaded resource={page} missing={<MissingRoute what="a list of pipeline runs" />}>
        {({ runs, cursor }) => (
          <>
            {runs.length ? <RunTable runs={runs} /> : <NoRuns />}
            <Pager next={cursor} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function floorMinute(milliseconds: number): number {
  return Math.floor(milliseconds / 60_000) * 60_000;
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

function Pager({ next }: { next: string | null }) {
  const hasCursor = queryValue('before') !== '';
  if (!hasCursor && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages">
      {hasCursor && (
        <button type="button" onClick={() => setQuery({ before: null })}>
          Newest
        </button>
      )}
      <button
        type="button"
        disabled={next === null}
        onClick={() => setQuery({ before: next }, true)}
      >
        Older →
      </button>
    </nav>
  );
}
