// Retry many jobs after a look at what is touched; keeping them changes nothing. Acknowledged jobs are
// no longer on the home page, and not retried with the others.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

const deadJobs = (page) => api(page, '/jobs?status=dead&plugin=broken');

await run(async (page) => {
  for (let n = 0; n < 3; n++) await api(page, '/plugin/broken/handle', { payload: { n } });
  await until(
    () => deadJobs(page),
    ({ jobs }) => jobs.length === 3,
    'the jobs are not dead',
  );
  // A job of another pipeline or period is not touched.
  await goTo(page, '/jobs?status=dead&plugin=broken&pipeline=photos');
  await page.getByRole('button', { name: 'Retry all …' }).click();
  await page.getByRole('heading', { name: 'Retry 0 jobs?' }).waitFor();
  await page.getByRole('button', { name: 'Keep them as they are' }).click();
  await goTo(page, '/jobs?status=dead&plugin=broken&period=last+hour');
  await page.getByRole('button', { name: 'Retry all …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('heading', { name: 'Retry 3 jobs?' }).waitFor();
  assert.equal(await dialog.locator('.id-list a').count(), 3);
  await dialog.getByRole('button', { name: 'Keep them as they are' }).click();
  assert.ok((await deadJobs(page)).jobs.every(({ attempt }) => attempt === 1));

  await page.getByRole('button', { name: 'Retry all …' }).click();
  await dialog.getByRole('button', { name: 'Retry 3 jobs' }).click();
  await page.getByText('3 jobs queued again.').waitFor();
  await until(
    () => deadJobs(page),
    ({ jobs }) => jobs.length === 3 && jobs.every(({ attempt }) => attempt === 2),
    'the jobs were not retried',
  );
  assert.ok(
    page.url().includes('status=dead&plugin=broken&period=last+hour'),
    'the filters stay in the address',
  );

  const ids = (await deadJobs(page)).jobs.map(({ job_id }) => job_id);
  await goTo(page, `/jobs/${ids[0]}`);
  await page.getByRole('button', { name: 'Acknowledge' }).click();
  await page.getByText('The job is acknowledged.').waitFor();
  await page.getByRole('button', { name: 'Acknowledge' }).waitFor({ state: 'detached' });
  await goTo(page, '/');
  await page.getByText('2 dead jobs').click();
  await page.getByRole('button', { name: 'Retry all …' }).click();
  await dialog.getByRole('heading', { name: 'Retry 2 jobs?' }).waitFor();
  await dialog.getByRole('button', { name: 'Keep them as they are' }).click();
  await goTo(page, '/');
  await page.getByRole('button', { name: 'Acknowledge broken.handle' }).click();
  await dialog.getByRole('button', { name: 'Acknowledge them' }).click();
  await page.getByText('2 jobs acknowledged.').waitFor();
  await page.getByText('2 dead jobs').waitFor({ state: 'detached' });
  assert.deepEqual((await api(page, '/jobs/failures')).failures, []);
});
