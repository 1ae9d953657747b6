import type { JSX } from 'preact';
import { can, sessionState } from './api/session';
import { ErrorBoundary } from './components/error-boundary';
import { lazy } from './components/lazy';
import { Page } from './components/page';
import { Empty, Loading, Scoped } from './components/states';
import { SCREENS } from './keyboard/shortcuts';
import { Link } from './router/link';
import { currentPath, matchPath } from './router/router';
import { Agents } from './screens/agents/agents';
import { Events } from './screens/events/events';
import { Home } from './screens/home/home';
import { JobScreen } from './screens/job/job';
import { Jobs } from './screens/jobs/jobs';
import { Login, Unreachable } from './screens/login';
import { PipelineScreen } from './screens/pipelines/pipeline';
import { Pipelines } from './screens/pipelines/pipelines';
import { PluginScreen } from './screens/plugins/plugin';
import { Plugins } from './screens/plugins/plugins';
import { RunScreen } from './screens/runs/run';
import { Runs } from './screens/runs/runs';
import { Schedules } from './screens/schedules/schedules';
import { Shell } from './shell';

const Alerts = lazy(async () => (await import('./screens/alerts/alerts')).Alerts);
const Approvals = lazy(async () => (await import('./screens/approvals/approvals')).Approvals);
const Configuration = lazy(
  async () => (await import('./screens/configuration/configuration')).Configuration,
);
const Webhooks = lazy(async () => (await import('./screens/webhooks/webhooks')).Webhooks);

type Parameters = Record<string, string>;

/** Each with its address, and the scope without which it can show nothing. */
const ROUTES: readonly [string, (parameters: Parameters) => JSX.Element, string?][] = [
  ['/', () => <Home />],
  ['/jobs', () => <Jobs />, 'jobs:ro'],
  ['/jobs/:id', ({ id = '' }) => <JobScreen key={id} id={id} />, 'jobs:ro'],
  ['/runs', () => <Runs />, 'jobs:ro'],
  ['/runs/:id', ({ id = '' }) => <RunScreen key={id} id={id} />, 'jobs:ro'],
  ['/approvals', () => <Approvals />, 'approvals:ro'],
  ['/schedules', () => <Schedules />, 'jobs:ro'],
  ['/pipelines', () => <Pipelines />],
  ['/pipelines/:name', ({ name = '' }) => <PipelineScreen key={name} name={name} />],
  ['/plugins', () => <Plugins />],
  ['/plugins/:name', ({ name = '' }) => <PluginScreen key={name} name={name} />],
  ['/webhooks', () => <Webhooks />],
  ['/agents', () => <Agents />, 'agents:ro'],
  ['/alerts', () => <Alerts />, 'jobs:ro'],
  ['/events', () => <Events />, 'events:ro'],
  ['/configuration', () => <Configuration />, 'system:ro'],
];

export function App() {
  const state = sessionState.value;
  if (state.kind === 'loading') return <Loading />;
  if (state.kind === 'unreachable') return <Unreachable message={state.message} />;
  if (state.kind === 'anonymous') return <Login message={state.message} />;
  return (
    <Shell>
      <ErrorBoundary key={currentPath.value}>
        <Screen />
      </ErrorBoundary>
    </Shell>
  );
}

function NotAllowed({ path, scope }: { path: string; scope: string }) {
  const screen = SCREENS.find((one) => one.path !== '/' && path.startsWith(one.path));
  return (
    <Page title={screen?.name ?? 'Not allowed'}>
      <Scoped scope={scope}>{null}</Scoped>
    </Page>
  );
}

function Screen() {
  const path = currentPath.value;
  for (const [pattern, show, scope] of ROUTES) {
    const found = matchPath(pattern, path);
    if (found && scope && !can(scope)) return <NotAllowed path={path} scope={scope} />;
    if (found) return show(found);
  }
  return (
    <Page title="Not found">
      <Empty title="There is no such page">
        <Link to="/">Go to the home page</Link>
      </Empty>
    </Page>
  );
}
