// Looking at the screens runs no health command; the button does, and its result stays known.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

const status = (page) => api(page, '/system/status?health=last');

await run(async (page) => {
  for (const path of ['/', '/plugins', '/plugins/quick', '/configuration?tab=nodes']) {
    await goTo(page, path);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.waitForLoadState('networkidle', { timeout: 2000 }).catch(() => {});
  }
  assert.equal((await status(page)).health_checked_at, null, 'a screen ran the health commands');

  await goTo(page, '/plugins');
  await page.getByText('not checked since the start').waitFor();
  await page.getByRole('button', { name: 'Check health' }).click();
  await page.getByRole('row', { name: /quick/ }).getByText('done').waitFor();
  await until(
    () => status(page),
    (found) => found.health_checked_at !== null,
    'the check is not recorded',
  );
  await page.reload();
  await page.getByRole('row', { name: /quick/ }).getByText('done').waitFor();
});
