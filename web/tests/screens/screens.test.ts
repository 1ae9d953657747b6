import { describe, expect, it } from 'vitest';
import type {
  AlertRules,
  Attempt,
  GatewayEvent,
  JobFailure,
  Overview,
  PipelineStep,
  Pipelines,
  RunStep,
  TreeNode,
} from '../../src/api/types';
import { findAttention } from '../../src/screens/home/attention';
import { addCounts, totalOf } from '../../src/screens/home/counts';
import { textOf } from '../../src/screens/job/job-log';
import { edgesOf, foldConditions as foldJobs } from '../../src/screens/job/job-run';
import { editablePayload } from '../../src/screens/job/replay-dialog';
import { describeStart, groupHandlers } from '../../src/screens/pipelines/handlers';
import { shapeOf } from '../../src/screens/pipelines/pipeline-graph';
import { groupSamples, percentile } from '../../src/screens/plugins/statistics';
import { concernsRun } from '../../src/screens/runs/run';
import { foldConditions as foldSteps, graphOf, timelineOf } from '../../src/screens/runs/run-steps';
import { describePlan } from '../../src/screens/webhooks/bulk';

describe('addCounts', () => {
  it('adds the counts of each name by status', () => {
    const sums = addCounts([
      ['a', { succeeded: 1, dead: 2 }],
      ['b', { failed: 4 }],
      ['a', { succeeded: 10 }],
    ]);
    expect(sums.get('a')).toEqual({ succeeded: 11, dead: 2 });
    expect(totalOf(sums.get('a') ?? {})).toBe(13);
    expect(sums.get('b')).toEqual({ failed: 4 });
  });
});

describe('findAttention', () => {
  const nothing = {
    overview: null,
    pauses: null,
    failures: null,
    schedules: null,
    status: null,
    deliveries: null,
    approvals: null,
    alerts: null,
    health: null,
    nodes: null,
  };

  it('finds nothing in nothing', () => {
    expect(findAttention(nothing)).toEqual([]);
  });

  it('reports a schedule that cannot fire, and not one that fired its only time', () => {
    const schedules = {
      schedules: ['exhausted', 'active', 'paused', 'invalid'].map((state) => ({
        plugin: 'a',
        schedule: state,
        state,
        reason: null,
        last_fire: null,
      })),
    };
    const items = findAttention({ ...nothing, schedules } as never);
    expect(items.map(({ title }) => title)).toEqual(['a/invalid']);
  });

  it('reports a paused plugin, and leaves the gateway to its notice', () => {
    const pause = {
      paused_by: 'token:ada',
      paused_at: '2026-01-01',
      reason: 'a move',
      until: null,
    };
    const pauses = [
      { ...pause, kind: 'system' as const, name: null },
      { ...pause, kind: 'plugin' as const, name: 'a/b' },
    ];
    const items = findAttention({ ...nothing, pauses: { pauses } });
    expect(items.map(({ why, href }) => [why, href])).toEqual([
      ['token:ada paused it: a move', '/plugins/a%2Fb'],
    ]);
  });

  it('reports firing alerts that are not silenced, and messages that did not arrive', () => {
    const rule = (name: string, state: string, silenced_until: string | null) => ({
      rule: name,
      state,
      silenced_until,
      last_error: 'full',
    });
    const alerts = [
      rule('a b', 'firing', null),
      rule('quiet', 'firing', '2026-01-02'),
      rule('fine', 'ok', null),
    ];
    const undelivered = [{ rule: 'a b', to: 'notify', error: 'exit code 1' }];
    const found = { alerts, undelivered } as AlertRules;
    const items = findAttention({ ...nothing, alerts: found });
    expect(items.map(({ why, href }) => [why, href])).toEqual([
      ['a b to notify: exit code 1', '/alerts'],
      ['full', '/alerts?name=a%20b'],
    ]);
  });

  it('leads to the job, or to the list of several', () => {
    const row = (job_id: string, status: string, plugin: string, jobs: number) =>
      ({
        job_id,
        status,
        plugin,
        command: 'poll',
        jobs,
        pipeline: '',
        step_path: '',
      }) as JobFailure;
    const rows = [
      row('1', 'dead', 'a', 1),
      row('2', 'failed', 'b', 7),
      row('3', 'dead', 'c', 1000),
    ];
    const wait = { ...row('4', 'failed', 'core.wait', 2), pipeline: 'deploy', step_path: 'x.gate' };
    const failures = { failures: [...rows, wait], more: true };
    const items = findAttention({ ...nothing, failures });
    const query = 'command=poll&acknowledged=false';
    expect(items.map(({ kind, title, href }) => [kind, title, href])).toEqual([
      ['1 dead job', 'a.poll 1', '/jobs/1'],
      ['7 failed jobs', 'b.poll', `/jobs?status=failed&plugin=b&${query}`],
      ['1,000+ dead jobs', 'c.poll', `/jobs?status=dead&plugin=c&${query}`],
      [
        '2 failed jobs',
        'deploy · gate',
        `/jobs?status=failed&plugin=core.wait&${query}&pipeline=deploy`,
      ],
      ['Dead jobs', 'Other commands', '/jobs?status=dead&acknowledged=false'],
    ]);
  });

  it('reports parts of the gateway that fail, and nodes that are lost, first', () => {
    const part = (name: string, critical: boolean) => ({ part: name, error: 'why', critical });
    const failing = [part('retention', false), part('undelivered alerts', false)];
    const nodes = {
      nodes: [
        { name: 'a', state: 'lost' },
        { name: 'b', state: 'stopped' },
      ],
    };
    const items = findAttention({ ...nothing, health: { status: 'ok', failing }, nodes } as never);
    expect(items.map(({ kind, title, tone }) => [kind, title, tone])).toEqual([
      ['Gateway', 'Retention', 'warn'],
      ['Node', 'a', 'bad'],
    ]);
    const [down] = findAttention({ ...nothing, health: new Error('the disk is full') });
    expect(down?.why).toBe('the disk is full');
  });

  it('puts open breakers and held plugins first', () => {
    const overview = {
      breakers: [{ plugin: 'a', command: 'poll', state: 'open', opened_at: null }],
      held: { b: 'its manifest is broken' },
    } as unknown as Overview;
    const items = findAttention({ ...nothing, overview });
    expect(items.map(({ title, why }) => [title, why])).toEqual([
      ['a.poll', 'The circuit breaker is open: its schedule does not fire.'],
      ['b', 'its manifest is broken'],
    ]);
  });
});

describe('concernsRun', () => {
  const event = (topic: string, data: object) => ({ topic, data }) as unknown as GatewayEvent;
  const run = (status: string) =>
    ({ instance_id: 'r', status, steps: [{ job_id: null }, { job_id: '1' }] }) as never;

  it('is true for its own events, and while it runs for those of any job', () => {
    const ended = run('failed');
    expect(concernsRun(event('jobs', { job_id: '1' }), ended)).toBe(true);
    expect(concernsRun(event('jobs', { job_id: '2', parent_job_id: '1' }), ended)).toBe(true);
    expect(concernsRun(event('jobs', { job_id: '2' }), ended)).toBe(false);
    expect(concernsRun(event('jobs', { job_id: '2' }), run('running'))).toBe(true);
    expect(concernsRun(event('jobs', { job_id: '2' }), null)).toBe(true);
    expect(concernsRun(event('pipelines', { instance_id: 'r' }), ended)).toBe(true);
    expect(concernsRun(event('pipelines', { instance_id: 'q' }), ended)).toBe(false);
    expect(concernsRun(event('alerts', {}), ended)).toBe(false);
  });
});

describe('logs', () => {
  it('shows output, log lines and the error in this order', () => {
    const attempt = {
      stderr: 'out',
      stdout: null,
      logs: [{ level: 'warning', message: 'm', n: 1 }],
      last_error: 'e',
    } as unknown as Attempt;
    expect(textOf(attempt)).toBe('out\nwarning: m {"n":1}\nerror: e\n');
  });
});

describe('graphs', () => {
  const node = (job_id: string, parent_job_id: string | null, more: Partial<TreeNode> = {}) =>
    ({ job_id, parent_job_id, ...more }) as TreeNode;

  it('draws a join after the last jobs of its branches', () => {
    const jobs = [
      node('fetch', null),
      node('a1', 'fetch', { branch: 'a' }),
      node('b1', 'fetch', { branch: 'b' }),
      node('a2', 'a1', { branch: 'a' }),
      node('join', 'fetch', { join_of: 'split' }),
    ];
    expect(edgesOf(jobs).filter(({ to }) => to === 'join')).toEqual([
      { from: 'b1', to: 'join' },
      { from: 'a2', to: 'join' },
    ]);
  });

  it('draws a compiled pipeline from its event to its join', () => {
    const step = (name: string, more: Partial<PipelineStep>) =>
      ({ step: name, kind: 'uses', branches: {}, on_events: {}, ...more }) as PipelineStep;
    const { nodes, edges } = shapeOf(
      'photos.new',
      [
        step('s', { kind: 'split', branches: { a: 's.0.a' }, next: 'end' }),
        step('s.0.a', { next: null }),
        step('end', { next: null }),
      ],
      new Map([['end', 'failed']]),
    );
    expect(nodes.map(({ title, status }) => [title, status])).toEqual([
      ['photos.new', 'start'],
      ['s', 'none'],
      ['a', 'none'],
      ['end', 'failed'],
    ]);
    expect(edges.map(({ from, to }) => [from, to])).toEqual([
      ['the start', 's'],
      ['s', 's.0.a'],
      ['s.0.a', 'end'],
    ]);
  });

  const runStep = (step: string, status: string, job_id: string | null) =>
    ({
      step,
      status,
      job_id,
      kind: 'uses',
      depends_on: step === 'b' ? ['a'] : [],
    }) as unknown as RunStep;

  it('draws one node for a step with several jobs, with the worst state', () => {
    const { nodes, edges } = graphOf([
      runStep('a', 'succeeded', '1'),
      runStep('b', 'succeeded', '2'),
      runStep('b', 'dead', '3'),
    ]);
    expect(nodes.map(({ id, status, href }) => [id, status, href])).toEqual([
      ['a', 'succeeded', '/jobs/1'],
      ['b', 'dead', '/jobs/3'],
    ]);
    expect(edges).toEqual([{ from: 'a', to: 'b' }]);
  });

  it('folds conditions into the steps that they decide about', () => {
    const step = (name: string, kind: string, status: string, ...sources: string[]) =>
      ({ ...runStep(name, status, name), kind, depends_on: sources }) as RunStep;
    const steps = [
      step('a', 'uses', 'succeeded'),
      step('b?', 'switch', 'succeeded', 'a'),
      step('b', 'uses', 'not_run', 'b?'),
      step('c?', 'switch', 'dead', 'b', 'b?'),
      step('c', 'uses', 'not_run', 'c?'),
    ];
    const found = foldSteps(steps).map((one) => [one.step, ...one.depends_on]);
    expect(found).toEqual([['a'], ['b', 'a'], ['c?', 'b', 'a'], ['c', 'c?']]);
    const job = (job_id: string, plugin: string, parent_job_id: string | null) =>
      ({ job_id, plugin, parent_job_id, status: 'succeeded' }) as TreeNode;
    const jobs = [job('1', 'a', null), job('2', 'core.switch', '1'), job('3', 'b', '2')];
    const shown = (id: string) => foldJobs(jobs, id).map((one) => [one.job_id, one.parent_job_id]);
    expect(shown('3')).toEqual([
      ['1', null],
      ['3', '1'],
    ]);
    expect(shown('2')).toHaveLength(3);
  });

  it('has no row in the timeline for a step without a job', () => {
    expect(timelineOf([runStep('a', 'not_run', null)])).toEqual([]);
  });

  it('shows every attempt where the jobs are known', () => {
    const at = (second: number) => `2026-11-16T18:00:0${second}Z`;
    const attempt = (number: number, status: string, from: number) => ({
      attempt: number,
      status,
      started_at: at(from),
      completed_at: at(from + 1),
      duration_ms: 1000,
    });
    const step = { ...runStep('a', 'succeeded', 'job-a'), created_at: at(0), started_at: at(4) };
    const job = {
      job_id: 'job-a',
      status: 'succeeded',
      created_at: at(0),
      attempts: [attempt(1, 'failed', 1), attempt(2, 'succeeded', 4)],
    } as TreeNode;
    const [row] = timelineOf([step], [job]);
    expect(row?.spans.map(({ status, from, to }) => [status, from, to])).toEqual([
      ['waiting', at(0), at(1)],
      ['failed', at(1), at(2)],
      ['waiting', at(2), at(4)],
      ['succeeded', at(4), at(5)],
    ]);
    expect(row?.spans[2]?.label).toBe('waited 2.0 s');
  });
});

describe('describePlan', () => {
  it('names what is touched, and that there is more', () => {
    expect(describePlan({ count: 2, more: false, deliveries: [7, 9] })).toBe('7, 9');
    const relays = Array.from({ length: 30 }, (_, index) => `r${index}`);
    expect(describePlan({ count: 30, more: true, relays })).toMatch(/r19 … There are more/);
  });
});

describe('statistics', () => {
  it('computes percentiles', () => {
    const values = Array.from({ length: 100 }, (_, index) => index + 1);
    expect([percentile(values, 0.5), percentile(values, 0.95), percentile([], 0.5)]).toEqual([
      50,
      95,
      null,
    ]);
  });

  it('groups outcomes by time and leaves out what has not ended', () => {
    const sample = (minute: number, status: string) => ({
      at: `2026-11-16T18:0${minute}:00Z`,
      durationMs: minute,
      waitMs: null,
      status,
    });
    const found = groupSamples([sample(0, 'succeeded'), sample(5, 'dead'), sample(9, 'running')]);
    expect(found?.all).toEqual([1, 1]);
    expect(found?.failed).toEqual([0, 1]);
    expect(groupSamples([sample(0, 'succeeded')])).toBeNull();
  });
});

describe('editablePayload', () => {
  it('is the payload of the event for handle, otherwise that of the job', () => {
    const event = { type: 'x', payload: { a: 1 } };
    expect(editablePayload({ command: 'handle', payload: event })).toEqual({ a: 1 });
    expect(editablePayload({ command: 'poll', payload: event })).toEqual(event);
    expect(editablePayload({ command: 'poll', payload: undefined })).toEqual({});
  });
});

describe('pipelines', () => {
  const row = (name: string, more: object) =>
    ({
      name,
      on: null,
      on_hook: null,
      from_pipeline: null,
      ...more,
    }) as Pipelines['pipelines'][number];

  it('have the steps for the end of their runs under them', () => {
    const grouped = groupHandlers([
      row('a', { on: 'photos.new' }),
      row('a.always', { on_hook: 'run.ended', from_pipeline: 'a' }),
      row('a.on_failure', { on_hook: 'run.failed', from_pipeline: 'a' }),
      row('b', { on_hook: 'job.failed' }),
    ]);
    expect(
      grouped.map((owner) => [owner.name, describeStart(owner), owner.handlers.map(describeStart)]),
    ).toEqual([
      ['a', 'photos.new', ['always', 'on_failure']],
      ['b', 'hook job.failed', []],
    ]);
  });
});
