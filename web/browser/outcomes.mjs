// The home page shows the attempts of a day by hour and by plugin.

import assert from 'node:assert/strict';
import { api, run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  await api(page, `/job/${id}?wait=30`);
  await goTo(page, '/plugins');
  await page.getByRole('heading', { name: 'Plugins' }).waitFor();
  await goTo(page, '/');
  const hours = page.getByRole('list', { name: 'Attempts per hour' });
  await hours.waitFor();
  assert.equal(await hours.getByRole('listitem').count(), 24);
  await hours.getByRole('img', { name: /: 1 succeeded$/ }).waitFor();
  await page.getByRole('link', { name: 'quick', exact: true }).waitFor();
});
