// The lists show how far a running job is, by its own report, and send no requests for it. Agents and
// nodes are live as well, although their changes are no events.

import assert from 'node:assert/strict';
import { api, run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await goTo(page, '/jobs');
  await api(page, '/plugin/copy/poll', {});
  const row = page.getByRole('row', { name: /copy\.poll/ });
  await row.getByText('40 % copying').waitFor();
  await row.getByRole('progressbar', { name: 'Progress' }).waitFor();
  await row.getByText('60 % copying').waitFor();
  const requests = [];
  page.on('request', (request) => requests.push(request.url()));
  await row.getByText('80 % copying').waitFor();
  assert.deepEqual(requests, [], 'progress causes requests');
  await goTo(page, '/');
  const item = page.getByRole('listitem').filter({ hasText: 'copy.poll' });
  await item.getByText(/\d+ % copying/).waitFor();

  await goTo(page, '/agents');
  const agent = page.getByRole('row', { name: /beating/ });
  const beat = { type: 'heartbeat', agent_id: 'beating', cluster_id: 'west' };
  await api(page, '/gateway/heartbeat', beat);
  await agent.getByText('live').waitFor();
  const before = await agent.locator('time').getAttribute('datetime');
  await api(page, '/gateway/heartbeat', beat);
  await page.waitForFunction(
    (seen) => document.querySelector('tbody time')?.getAttribute('datetime') !== seen,
    before,
  );

  await goTo(page, '/configuration?tab=nodes');
  const { node } = await api(page, '/nodes');
  const nodeRow = page.getByRole('row', { name: node });
  await nodeRow.getByText('running', { exact: true }).waitFor();
  await api(page, `/node/${node}/drain`, {});
  await nodeRow.getByText('drained', { exact: true }).waitFor();
  await api(page, `/node/${node}/resume`, {});
  await nodeRow.getByText('running', { exact: true }).waitFor();
});
