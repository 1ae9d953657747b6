import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Job } from '../../src/api/types';
import { ReplayDialog } from '../../src/screens/job/replay-dialog';

const root = document.createElement('div');
const bodies: unknown[] = [];
const JOB = { job_id: '1', plugin: 'echo', command: 'poll', payload: { key: '[REDACTED]', n: 1 } };

beforeEach(async () => {
  bodies.length = 0;
  document.body.append(root);
  vi.stubGlobal('fetch', async (_: string, { method, body }: RequestInit) => {
    if (method === 'POST') bodies.push(JSON.parse(String(body)));
    return new Response(JSON.stringify({ commands: [], job_id: '2' }));
  });
  await act(() => render(<ReplayDialog job={JOB as unknown as Job} onClose={() => {}} />, root));
});

afterEach(async () => {
  await act(() => render(null, root));
  vi.unstubAllGlobals();
});

function replayButton(): HTMLButtonElement {
  const found = root.querySelector<HTMLButtonElement>('footer .primary');
  if (!found) throw new Error('there is no button to replay');
  return found;
}

async function edit(payload: object): Promise<void> {
  const field = root.querySelector('textarea');
  if (!field) throw new Error('there is no field for the payload');
  await act(() => {
    field.value = JSON.stringify(payload);
    field.dispatchEvent(new Event('input', { bubbles: true }));
  });
}

it('sends no payload without edits', async () => {
  await act(() => replayButton().click());
  expect(bodies).toEqual([{}]);
});

it('refuses an edited payload until each redacted value is replaced', async () => {
  await edit({ key: '[REDACTED]', n: 2 });
  expect(replayButton().disabled).toBe(true);
  expect(root.querySelector('[role=alert]')?.textContent).toMatch(/Replace each \[REDACTED\]/);
  await edit({ key: 's3cret', n: 2 });
  expect(replayButton().disabled).toBe(false);
  await act(() => replayButton().click());
  expect(bodies).toEqual([{ payload: { key: 's3cret', n: 2 } }]);
});
