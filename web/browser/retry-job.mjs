// From "needs you" on the home page to the dead job, its why, a retry, and a replay that is edited.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  const { job_id: id } = await api(page, '/plugin/broken/handle', { payload: { n: 1 } });
  await goTo(page, '/');
  await page.getByText('needs you').waitFor();
  await page.getByRole('link', { name: /1 dead job.*broken\.handle/ }).click();
  await page.getByRole('heading', { name: 'broken.handle' }).waitFor();
  assert.ok(page.url().includes(id));
  await page.getByRole('heading', { name: 'Why' }).waitFor();
  await page.locator('.why-error', { hasText: 'the disk is full' }).waitFor();

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
});
