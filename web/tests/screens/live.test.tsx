// Which requests an open screen sends when events arrive.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { sessionState } from '../../src/api/session';
import type { GatewayEvent } from '../../src/api/types';
import { Agents } from '../../src/screens/agents/agents';
import { GatewayNodes } from '../../src/screens/configuration/nodes';
import { Home } from '../../src/screens/home/home';
import { Pipelines } from '../../src/screens/pipelines/pipelines';
import { LAST_STATUS } from '../../src/screens/plugins/health-checks';
import { Plugins } from '../../src/screens/plugins/plugins';
import { DeliveryList } from '../../src/screens/webhooks/delivery-list';

const { listeners, stream } = vi.hoisted(() => ({
  listeners: new Set<(events: GatewayEvent[]) => void>(),
  stream: { open: () => {} },
}));

vi.mock('../../src/api/events', async () => {
  const { signal } = await import('@preact/signals');
  const connects = signal(0);
  stream.open = () => {
    connects.value += 1;
  };
  return {
    connects,
    onEvents: (listener: (events: GatewayEvent[]) => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
});

const root = document.createElement('div');
const requests: string[] = [];

const PLUGIN = { name: 'echo', state: 'ready', reason: null, commands: {}, path: '/p' };
const CHECK = '/system/status?health=run';
const LAST = { plugin: 'echo', command: 'poll', status: 'failed', completed_at: '2026-01-01' };
const HEALTH = { healthy: true, detail: 'fine', duration_ms: 1 };
const STATUS = { ...PLUGIN, state: 'refused', health: HEALTH, last_run: LAST };
const PIPELINE = {
  on: 'go',
  on_hook: null,
  from_pipeline: null,
  execution_mode: 'async',
  steps: 1,
};
const RUN = { instance_id: 'r', status: 'failed', started_at: '2026-01-01', ended_at: null };
const ANSWERS: Record<string, object> = {
  '/pipelines': {
    pipelines: [
      { ...PIPELINE, name: 'rare', last_run: RUN },
      { ...PIPELINE, name: 'idle', last_run: null },
    ],
  },
  '/plugins': { plugins: [PLUGIN] },
  [LAST_STATUS]: { plugins: [STATUS] },
  '/gateway/deliveries': { deliveries: [], cursor: null },
};

beforeEach(() => {
  vi.useFakeTimers();
  requests.length = 0;
  const session = { name: 'test', scopes: ['*'], expires_at: '' };
  sessionState.value = { kind: 'active', session };
  vi.stubGlobal('fetch', async (address: string) => {
    requests.push(address);
    const answer = ANSWERS[address];
    return new Response(JSON.stringify(answer ?? {}), { status: answer ? 200 : 404 });
  });
});

afterEach(async () => {
  await act(() => render(null, root));
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

async function show(content: Parameters<typeof render>[0]): Promise<void> {
  await act(() => render(content, root));
  await settle();
}

/** Longer than the time between two requests of a resource. */
async function settle(): Promise<void> {
  await act(async () => {
    await vi.advanceTimersByTimeAsync(3000);
  });
}

async function publish(
  topic: string,
  type: string,
  data: GatewayEvent['data'],
  at = new Date().toISOString(),
): Promise<void> {
  const event = { id: '1', topic, type, at, data };
  await act(() => {
    for (const listener of listeners) listener([event]);
  });
  await settle();
}

const countOf = (address: string) => requests.filter((sent) => sent === address).length;
const ENDED = { plugin: 'echo', duration_ms: 5 };

describe('the plugins', () => {
  it('run their health commands with the button only', async () => {
    await show(<Plugins />);
    await publish('jobs', 'job.succeeded', ENDED);
    await publish('breakers', 'breaker.open', {});
    expect(countOf('/plugins')).toBe(2);
    expect(countOf(LAST_STATUS)).toBe(1);
    expect(countOf(CHECK)).toBe(0);
    const buttons = [...root.querySelectorAll('button')];
    buttons.find(({ textContent }) => textContent === 'Check health')?.click();
    await settle();
    expect(countOf(LAST_STATUS)).toBe(1);
    expect(countOf(CHECK)).toBe(1);
  });

  it('show the live state and the attempt that an event reports', async () => {
    await show(<Plugins />);
    const row = () => root.querySelector('tbody tr')?.textContent;
    expect(row()).toMatch(/ready.*fine.*failed/);
    await publish('jobs', 'job.started', { plugin: 'echo' });
    expect(row()).toMatch(/failed/);
    await publish('jobs', 'job.succeeded', ENDED);
    expect(row()).toMatch(/ready.*fine.*succeeded/);
    await publish('jobs', 'job.dead', ENDED, '2025-12-31T00:00:00Z');
    expect(row()).toMatch(/ready.*fine.*failed/);
  });
});

it.each([
  [<Agents />, '/gateway/heartbeats', 'agents'],
  [<GatewayNodes />, '/nodes', 'nodes'],
  [<Home />, '/healthz', 'health'],
  [<Home />, '/nodes', 'nodes'],
])(
  'fetches what the stream reports as changed, and only that (%#)',
  async (screen, address, kind) => {
    await show(screen);
    for (const other of ['agents', 'nodes', 'health'].filter((each) => each !== kind))
      await publish(other, `${other}.changed`, {});
    expect(countOf(address)).toBe(1);
    await publish(kind, `${kind}.changed`, {});
    expect(countOf(address)).toBe(2);
  },
);

it('shows the last run of each pipeline, without a second request', async () => {
  await show(<Pipelines />);
  const rows = [...root.querySelectorAll('tbody tr')].map((row) => row.textContent);
  expect(rows[0]).toMatch(/rare.*failed/);
  expect(rows[1]).toMatch(/idle.*never/);
  await publish('pipelines', 'pipeline.ended', {});
  expect(requests.filter((sent) => sent.startsWith('/pipeline'))).toEqual([
    '/pipelines',
    '/pipelines',
  ]);
});

it('runs no health command on events at home, and follows deliveries', async () => {
  await show(<Home />);
  await publish('jobs', 'job.dead', ENDED);
  await publish('gateway:webhooks', 'WebhookDeliveryEvent', {});
  expect(countOf(LAST_STATUS)).toBe(1);
  expect(countOf(CHECK)).toBe(0);
  expect(countOf('/system/overview')).toBe(2);
  expect(countOf('/gateway/deliveries?status=dead&limit=50')).toBe(2);
});

it('asks the gateway at home which jobs need the operator', async () => {
  await show(<Home />);
  await publish('jobs', 'job.acknowledged', ENDED);
  expect(countOf('/jobs/failures')).toBe(2);
});

it('fetches the deliveries again after one has changed', async () => {
  await show(<DeliveryList />);
  await publish('gateway:webhooks', 'WebhookDeliveryEvent', {});
  expect(countOf('/gateway/deliveries')).toBe(2);
});

it('fetches again what it fetched before the event stream was open, and only that', async () => {
  await show(<DeliveryList />);
  stream.open();
  await settle();
  expect(countOf('/gateway/deliveries')).toBe(2);
  await act(() => render(null, root));
  await show(<DeliveryList />);
  expect(countOf('/gateway/deliveries')).toBe(3);
});
