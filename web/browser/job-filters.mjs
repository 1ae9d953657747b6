// The list of jobs is limited to a pipeline by its address, and then offers no bulk action.

import assert from 'node:assert/strict';
import { api, run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await api(page, '/plugin/broken/poll', {});
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  await api(page, `/job/${id}?wait=30`);
  await api(page, '/pipeline/photos', { payload: {} });
  await goTo(page, '/jobs');
  await page.getByRole('row', { name: /broken\.poll/ }).waitFor();
  await page.getByLabel('Pipeline').selectOption('photos');
  await page.getByRole('row', { name: /broken\.poll/ }).waitFor({ state: 'detached' });
  await page
    .getByRole('row', { name: /quick\.handle .*photos/ })
    .first()
    .waitFor();
  assert.match(page.url(), /pipeline=photos/);

  await page.reload();
  assert.equal(await page.getByLabel('Pipeline').inputValue(), 'photos');
  await goTo(page, '/jobs?status=dead');
  await page.getByRole('button', { name: 'Retry all …' }).waitFor();
  await goTo(page, '/jobs?status=dead&pipeline=photos');
  await page.getByText('No job matches these filters').waitFor();
  await goTo(page, '/jobs?period=last+hour');
  await page.getByRole('row', { name: /broken\.poll/ }).waitFor();
});
