// The list of jobs is limited to a pipeline by its address; a job leads to its run.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await api(page, '/plugin/broken/poll', {});
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  await api(page, `/job/${id}?wait=30`);
  await api(page, '/pipeline/photos', { payload: {} });
  await goTo(page, '/jobs');
  await page.getByRole('row', { name: /broken\.poll/ }).waitFor();
  await page.getByRole('combobox', { name: 'Pipeline' }).selectOption('photos');
  await page.getByRole('row', { name: /broken\.poll/ }).waitFor({ state: 'detached' });
  await page
    .getByRole('row', { name: /quick\.handle .*photos/ })
    .first()
    .waitFor();
  assert.match(page.url(), /pipeline=photos/);

  await page.reload();
  assert.equal(await page.getByRole('combobox', { name: 'Pipeline' }).inputValue(), 'photos');
  await goTo(page, '/jobs?status=dead');
  await page.getByRole('button', { name: 'Retry all …' }).waitFor();
  await goTo(page, '/jobs?status=dead&pipeline=photos');
  await page.getByText('No job matches these filters').waitFor();
  await goTo(page, '/jobs?period=last+hour');
  await page.getByRole('row', { name: /broken\.poll/ }).waitFor();

  // A step inside of a split leads to the whole run.
  const { jobs } = await until(
    () => api(page, '/jobs?pipeline=photos'),
    (found) => found.jobs.some(({ step_path: step }) => step.startsWith('sizes')),
    'the split has no job',
  );
  const inner = jobs.find(({ step_path: step }) => step.startsWith('sizes'));
  await goTo(page, `/jobs/${inner.job_id}`);
  await page.getByRole('link', { name: 'Run of photos' }).click();
  await page.getByRole('heading', { name: 'Timeline' }).waitFor();
});
