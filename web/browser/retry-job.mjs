// From "needs you" on the home page to the dead job, its why, its bundle, a retry, and a replay that is
// edited. A job that was cancelled before it ran has no bundle, and needs no acknowledgement.

import assert from 'node:assert/strict';
import { json } from 'node:stream/consumers';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

async function downloadBundle(page, id) {
  const started = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download bundle' }).click();
  const download = await started;
  assert.equal(download.suggestedFilename(), `job-${id}.json`);
  return json(await download.createReadStream());
}

async function cancelBeforeItRuns(page) {
  await api(page, '/plugins/quick/pause', {});
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  await api(page, `/job/${id}/cancel`, {});
  await goTo(page, `/jobs/${id}`);
  await page.getByRole('heading', { name: 'quick.poll' }).waitFor();
  await page.getByRole('button', { name: 'Retry', exact: true }).waitFor();
  assert.equal(await page.getByRole('button', { name: /bundle|Acknowledge/ }).count(), 0);
}

async function retryJob(page) {
  const { job_id: id } = await api(page, '/plugin/broken/handle', { payload: { n: 1 } });
  await goTo(page, '/');
  await page.getByText('needs you').waitFor();
  await page.getByRole('link', { name: /1 dead job.*broken\.handle/ }).click();
  await page.getByRole('heading', { name: 'broken.handle' }).waitFor();
  assert.ok(page.url().includes(id));
  await page.getByRole('heading', { name: 'Why' }).waitFor();
  await page.locator('.why-error', { hasText: 'the disk is full' }).waitFor();

  const bundle = await downloadBundle(page, id);
  assert.deepEqual([bundle.job.id, bundle.outcome.error], [id, 'the disk is full']);

  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByText('The job is queued again.').waitFor();
  await until(
    () => api(page, `/job/${id}`),
    (job) => job.attempts.length === 2 && job.status === 'dead',
    'the job was not retried',
  );

  await page.getByRole('button', { name: 'Edit and replay …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Payload').fill('{"n": 12345678901234567890');
  await dialog.getByText('The payload is not JSON').waitFor();
  await dialog.getByLabel('Payload').fill('{"n": 9223372036854775807}');
  await dialog.getByRole('button', { name: 'Replay' }).click();
  await page.getByText('A new job with this payload is queued.').waitFor();
  await page.getByRole('tab', { name: 'Data' }).click();
  await page.getByText('9223372036854775807').first().waitFor();
  assert.ok(!page.url().includes(id), 'the page shows the new job');
}

await run(async (page) => {
  await retryJob(page);
  await cancelBeforeItRuns(page);
});
