// What changed files of a plugin or of the configuration would do with past work.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { get, path, post, withQuery } from '../../api/client';
import { formatJson, type Json } from '../../api/json';
import type { ComparedJob, ComparedRun, PluginComparison, RunComparison } from '../../api/types';
import { Badge } from '../../components/badge';
import { Details } from '../../components/page';
import { Empty } from '../../components/states';
import { type Column, Table } from '../../components/table';
import { notify } from '../../components/toast';
import { formatDuration } from '../../format/duration';
import { shortId } from '../../format/text';
import { Link } from '../../router/link';

const LIMIT = 20;
/** Differences that are shown of one job or step; the command line shows all. */
const SHOWN = 5;

interface ComparisonProps<T> {
  /** What is compared, and what that does. */
  children: ComponentChildren;
  load: () => Promise<T>;
  show: (found: T) => ComponentChildren;
}

function Comparison<T>({ children, load, show }: ComparisonProps<T>) {
  const [isRunning, setRunning] = useState(false);
  const [found, setFound] = useState<T | null>(null);
  const compare = async () => {
    setRunning(true);
    try {
      setFound(await load());
    } catch (error) {
      notify((error as Error).message, true);
    }
    setRunning(false);
  };
  return (
    <>
      <div class="part-actions">
        <p class="muted">{children}</p>
        <button type="button" disabled={isRunning} onClick={compare}>
          {isRunning ? 'Comparing …' : 'Compare'}
        </button>
      </div>
      {found !== null && show(found)}
    </>
  );
}

/** Runs a plugin's files on the requests of its newest jobs. */
export function ComparePlugin({ name }: { name: string }) {
  const load = () => post<PluginComparison>(path('plugins', name, 'compare'), { limit: LIMIT });
  return (
    <Comparison load={load} show={(found) => <ComparedPlugin found={found} />}>
      Runs the plugin's files, as they are now, on the requests of its newest jobs and compares the
      responses with the recorded ones. The processes are real and have no network; nothing is sent,
      queued or recorded.
    </Comparison>
  );
}

function ComparedPlugin({ found }: { found: PluginComparison }) {
  const { summary, jobs, sandbox, is_loaded, duration_ms } = { ...found, ...found.summary };
  const unheld = Object.entries(sandbox.not_held);
  return (
    <>
      <Details
        entries={[
          ['Identical', summary.identical + summary.ignored],
          ['Different', summary.different],
          ['Failed', summary.failed],
          ['Not compared', summary.not_compared],
          [
            'Median duration',
            duration_ms !== null &&
              `${formatDuration(duration_ms)}, recorded ${formatDuration(summary.recorded_duration_ms ?? 0)}`,
          ],
          [
            'Files',
            is_loaded ? 'those that the gateway has loaded' : 'changed since the last load',
          ],
        ]}
      />
      {unheld.map(([what, why]) => (
        <p key={what} class="problem">
          {what} was not kept from the plugin: {why}
        </p>
      ))}
      {jobs.length ? (
        <Table
          rows={jobs}
          columns={JOB_COLUMNS}
          keyOf={(job) => job.job_id}
          label="Compared jobs"
        />
      ) : (
        <Empty title="There are no jobs to compare with">Run a command of the plugin.</Empty>
      )}
    </>
  );
}

const JOB_COLUMNS: Column<ComparedJob>[] = [
  {
    id: 'job',
    title: 'Job',
    cell: ({ job_id, command }) => (
      <Link to={`/jobs/${job_id}`}>
        <strong>{command}</strong> <span class="mono muted">{shortId(job_id)}</span>
      </Link>
    ),
  },
  { id: 'verdict', title: 'Result', cell: ({ verdict }) => <Verdict verdict={verdict} /> },
  {
    id: 'differences',
    title: 'Differences',
    cell: ({ reason, differences, differences_left_out }) => (
      <Differences reason={reason} rows={differences ?? []} more={differences_left_out ?? 0} />
    ),
  },
];

/** Shows what the files of the configuration would do with the events of past runs. */
export function ComparePipeline({ name }: { name: string }) {
  const load = () =>
    get<RunComparison>(withQuery(path('pipelines', name, 'compare'), { limit: LIMIT }));
  return (
    <Comparison load={load} show={(found) => <ComparedRuns found={found} />}>
      Shows what the configuration's files, as they are now, would do with the events of the newest
      runs: which steps would run, and with which input. No plugin is run.
    </Comparison>
  );
}

function ComparedRuns({ found: { runs } }: { found: RunComparison }) {
  if (!runs.length) return <Empty title="There are no runs to compare with" />;
  return (
    <Table rows={runs} columns={RUN_COLUMNS} keyOf={(run) => run.run_id} label="Compared runs" />
  );
}

const RUN_COLUMNS: Column<ComparedRun>[] = [
  {
    id: 'run',
    title: 'Run',
    cell: ({ run_id }) => (
      <Link to={`/runs/${run_id}`}>
        <span class="mono">{shortId(run_id)}</span>
      </Link>
    ),
  },
  { id: 'status', title: 'Status', cell: ({ status }) => <Badge status={status} /> },
  { id: 'verdict', title: 'Result', cell: ({ verdict }) => <Verdict verdict={verdict} /> },
  { id: 'differences', title: 'Differences', cell: (run) => <RunDifferences run={run} /> },
];

function RunDifferences({ run }: { run: ComparedRun }) {
  const { reason, refusal, steps = [], children_added = [], children_removed = [] } = run;
  return (
    <>
      {(reason ?? refusal) && <p>{reason ?? `it would not start: ${refusal}`}</p>}
      {steps.map(({ step, branch, change, differences }) => (
        <div key={`${step} ${branch}`}>
          <strong>{step}</strong> {change}
          <Differences rows={differences} more={0} />
        </div>
      ))}
      {children_added.map((child) => (
        <p key={child}>+ {child} would start</p>
      ))}
      {children_removed.map((child) => (
        <p key={child}>− {child} would not start</p>
      ))}
    </>
  );
}

const VERDICTS: Record<string, string> = { identical: 'ok', ignored: 'ok', different: 'waiting' };

function Verdict({ verdict }: { verdict: string }) {
  return <Badge status={VERDICTS[verdict] ?? verdict} label={verdict.replace('_', ' ')} />;
}

interface DifferencesProps {
  reason?: string | undefined;
  rows: readonly { path: string; before?: unknown; after?: unknown }[];
  more: number;
}

function Differences({ reason, rows, more }: DifferencesProps) {
  const left = more + Math.max(0, rows.length - SHOWN);
  return (
    <>
      {reason && <p>{reason}</p>}
      <ul class="diff">
        {rows.slice(0, SHOWN).flatMap(({ path: place, before, after }) => [
          before !== undefined && (
            <li key={`-${place}`} class="diff-remove">
              − {place}: {formatJson(before as Json, 0)}
            </li>
          ),
          after !== undefined && (
            <li key={`+${place}`} class="diff-add">
              + {place}: {formatJson(after as Json, 0)}
            </li>
          ),
        ])}
      </ul>
      {left > 0 && <p class="muted">and {left} more</p>}
    </>
  );
}
