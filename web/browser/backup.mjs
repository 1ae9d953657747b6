// Back up the ledger after a look at where the backup is written.

import assert from 'node:assert/strict';
import { api, run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await goTo(page, '/configuration');
  await page.getByRole('button', { name: 'Back up …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('The gateway writes /').waitFor();
  await dialog.getByRole('button', { name: 'Back up', exact: true }).click();
  await page.getByText('The backup is /').waitFor();
  const { state, made } = await api(page, '/system/backup');
  assert.ok(made, `the backup is ${state}`);
});
