// Test a command without a job, compare the plugin's files with past jobs, and those of the
// configuration with past runs.

import assert from 'node:assert/strict';
import { api, run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  assert.equal((await api(page, `/job/${id}?wait=30`)).status, 'succeeded');
  const { instance_id: runId } = await api(page, '/pipeline/photos?async=true', {});
  assert.equal((await api(page, `/pipeline-runs/${runId}?wait=30`)).status, 'succeeded');
  const countJobs = async () => (await api(page, '/jobs')).jobs.length;
  const before = await countJobs();

  await goTo(page, '/plugins/quick');
  await page.getByRole('button', { name: 'Test poll …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Test', exact: true }).click();
  await dialog.getByRole('region', { name: 'Result' }).getByText('quick.done').first().waitFor();
  await dialog.locator('footer').getByRole('button', { name: 'Close' }).click();

  await page.getByRole('tab', { name: 'Compare' }).click();
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  const jobs = page.getByRole('region', { name: 'Compared jobs' });
  await jobs.getByText('identical').first().waitFor();
  assert.ok(await jobs.getByRole('link', { name: `poll ${id.slice(-8)}` }).count());

  await goTo(page, '/pipelines/photos');
  await page.getByRole('button', { name: 'Compare', exact: true }).click();
  const runs = page.getByRole('region', { name: 'Compared runs' });
  await runs.getByText('identical').waitFor();
  assert.equal(await countJobs(), before, 'nothing is recorded');
});
