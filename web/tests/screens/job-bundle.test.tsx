import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, expect, it, vi } from 'vitest';
import { sessionState } from '../../src/api/session';
import type { Job } from '../../src/api/types';
import { Toasts } from '../../src/components/toast';
import { JobActions } from '../../src/screens/job/job-actions';

const { saved } = vi.hoisted(() => ({ saved: vi.fn() }));
vi.mock('../../src/components/save-file', () => ({ saveFile: saved }));

const root = document.createElement('div');
const RAN = { attempt: 1, started_at: '2026-01-01', duration_ms: 5, result: null };
const JOB = { job_id: '1', plugin: 'echo', command: 'poll', status: 'dead', attempts: [RAN] };

afterEach(async () => {
  await act(() => render(null, root));
  vi.unstubAllGlobals();
  saved.mockReset();
});

async function show(scopes: string[], job: object = JOB): Promise<HTMLButtonElement | undefined> {
  const session = { name: 'test', scopes, expires_at: '' };
  sessionState.value = { kind: 'active', session };
  const content = (
    <>
      <JobActions job={job as Job} onDone={() => {}} />
      <Toasts />
    </>
  );
  await act(() => render(content, root));
  const buttons = [...root.querySelectorAll('button')];
  return buttons.find(({ textContent }) => textContent === 'Download bundle');
}

function respond(status: number, text: string) {
  const fetcher = vi.fn(async (_: string) => new Response(text, { status }));
  vi.stubGlobal('fetch', fetcher);
  return fetcher;
}

it.each([
  [['jobs:ro', 'system:ro'], JOB, true],
  [['jobs:rw'], JOB, false],
  [['system:ro'], JOB, false],
  [['*'], { ...JOB, status: 'running' }, false],
  [['*'], { ...JOB, pruned: true }, false],
  [['*'], { ...JOB, attempts: [] }, false],
  [['*'], { ...JOB, attempts: [{ ...RAN, duration_ms: null }] }, false],
])('offers the bundle of a finished job to sessions that may read it (%#)', async (...given) => {
  const [scopes, job, isOffered] = given;
  expect((await show(scopes, job)) !== undefined).toBe(isOffered);
});

it('saves the bundle as the gateway sent it', async () => {
  const fetcher = respond(200, '{"id": 9007199254740993}');
  const button = await show(['*']);
  await act(() => button?.click());
  await vi.waitFor(() => expect(button?.disabled).toBe(false));
  expect(fetcher.mock.calls.map(([address]) => address)).toEqual(['/job/1/bundle']);
  expect(saved.mock.calls).toEqual([
    ['{"id": 9007199254740993}', 'job-1.json', 'application/json'],
  ]);
});

it.each([
  [409, 'the bundle of job 1 would exceed 32 MiB'],
  [404, 'there is no job 1'],
])('shows why the bundle was refused with %i, and saves nothing', async (status, error) => {
  respond(status, JSON.stringify({ error, code: 'refused' }));
  const button = await show(['*']);
  await act(() => button?.click());
  await vi.waitFor(() => expect(root.textContent).toContain(error));
  expect(saved).not.toHaveBeenCalled();
  await vi.waitFor(() => expect(button?.disabled).toBe(false));
});
