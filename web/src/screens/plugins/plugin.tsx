// One plugin: its commands, plots, breakers, state and facts.

import { useMemo, useState } from 'preact/hooks';
import { path, withQuery } from '../../api/client';
import { ofTopics, useResource } from '../../api/resource';
import { can, canRun } from '../../api/session';
import type { Attempt, AttemptPage, Command, PluginDetail } from '../../api/types';
import { Badge } from '../../components/badge';
import { LazyComparePlugin } from '../../components/lazy-views';
import { Details, Page, Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { Tabs } from '../../components/tabs';
import { withLocalTimes } from '../../format/time';
import { Link } from '../../router/link';
import { PauseButton, PauseNotice } from '../pauses/pause-control';
import { usePauses } from '../pauses/pauses';
import { BreakerList } from './breaker-list';
import { FactList } from './fact-list';
import { OutcomePlots } from './outcome-plots';
import { describeStart, SandboxSummary } from './process-details';
import { RunDialog } from './run-dialog';

const PLOTTED_ATTEMPTS = 1000;

export function PluginScreen({ name }: { name: string }) {
  const plugin = useResource<PluginDetail>(path('plugin', name), ofTopics('breakers', 'flow'));
  const pauses = usePauses();
  const target = { kind: 'plugin', name } as const;
  return (
    <Page
      title={name}
      parent={<Link to="/plugins">Plugins</Link>}
      mark={plugin.data && <Badge status={plugin.data.state} />}
      actions={
        <>
          <Link to={`/jobs?plugin=${encodeURIComponent(name)}`}>Its jobs</Link>
          <PauseButton target={target} pauses={pauses} />
        </>
      }
    >
      <PauseNotice target={target} pauses={pauses} />
      <Loaded resource={plugin}>
        {(found) => (
          <>
            <Summary plugin={found} />
            <Tabs label="Parts of the plugin" tabs={partsOf(found)} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function partsOf(plugin: PluginDetail) {
  const { name, commands } = plugin;
  const parts = [
    { id: 'commands', label: 'Commands', content: () => <Commands plugin={plugin} /> },
    { id: 'plots', label: 'Plots', content: () => <Plots plugin={name} /> },
    { id: 'breakers', label: 'Breakers', content: () => <BreakerList plugin={name} /> },
    { id: 'state', label: 'State and facts', content: () => <FactList plugin={name} /> },
  ];
  if (!can('jobs:ro')) return parts.slice(0, 1);
  // A comparison starts processes: it takes the scope of each command.
  const mayCompare = commands.length > 0 && commands.every(({ type }) => canRun(name, type));
  const compare = {
    id: 'compare',
    label: 'Compare',
    content: () => <LazyComparePlugin name={name} />,
  };
  return mayCompare ? [...parts, compare] : parts;
}

function Summary({ plugin }: { plugin: PluginDetail }) {
  return (
    <>
      {plugin.reason && <p class="why-error">{withLocalTimes(plugin.reason)}</p>}
      <Details
        entries={[
          ['About', plugin.description],
          ['Version', plugin.version],
          ['Protocol', plugin.protocol],
          ['Uses', plugin.uses],
          ['Parallelism', plugin.parallelism],
          ['Path', plugin.path && <span class="mono">{plugin.path}</span>],
          ['Start', plugin.start && describeStart(plugin.start)],
          ['Sandbox', plugin.sandbox && <SandboxSummary sandbox={plugin.sandbox} />],
        ]}
      />
    </>
  );
}

function Commands({ plugin }: { plugin: PluginDetail }) {
  const [running, setRunning] = useState<Command | null>(null);
  const [tested, setTested] = useState<Command | null>(null);
  if (!plugin.commands.length) {
    return <Empty title="It has no commands">Its state above says why.</Empty>;
  }
  return (
    <>
      <ul class="commands">
        {plugin.commands.map((command) => (
          <li key={command.name}>
            <div>
              <strong>{command.name}</strong> <small class="muted">{command.type}</small>
              <p class="muted">{command.description}</p>
            </div>
            {canRun(plugin.name, command.type) && plugin.state === 'ready' && (
              <div class="actions">
                <button type="button" onClick={() => setTested(command)}>
                  Test {command.name} …
                </button>
                <button type="button" onClick={() => setRunning(command)}>
                  Run {command.name} …
                </button>
              </div>
            )}
          </li>
        ))}
      </ul>
      {running && (
        <RunDialog plugin={plugin.name} command={running.name} onClose={() => setRunning(null)} />
      )}
      {tested && (
        <RunDialog
          plugin={plugin.name}
          command={tested.name}
          isTest
          onClose={() => setTested(null)}
        />
      )}
    </>
  );
}

function Plots({ plugin }: { plugin: string }) {
  const attempts = useResource<AttemptPage>(
    withQuery('/job-logs', { plugin, limit: PLOTTED_ATTEMPTS }),
  );
  return (
    <Section title="The newest attempts">
      <Loaded resource={attempts}>
        {({ logs }) => <AttemptPlots plugin={plugin} attempts={logs} />}
      </Loaded>
    </Section>
  );
}

function AttemptPlots({ plugin, attempts }: { plugin: string; attempts: Attempt[] }) {
  const samples = useMemo(() => attempts.map(sampleOf), [attempts]);
  return <OutcomePlots samples={samples} label={plugin} />;
}

function sampleOf({ completed_at, duration_ms, created_at, started_at, attempt, status }: Attempt) {
  // A retry waits for its backoff, which is not the queue.
  const isFirst = attempt === 1 && started_at !== null;
  return {
    at: completed_at,
    durationMs: duration_ms,
    waitMs: isFirst ? Date.parse(started_at) - Date.parse(created_at) : null,
    status,
  };
}
