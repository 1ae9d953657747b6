// Change a setting after a look at the file's difference, reload after a look at the plan, return to the one before, and back up the
// ledger after a look at where the backup is written.

import assert from 'node:assert/strict';
import { api, ask, run } from './scenario.mjs';
import { goTo } from './session.mjs';

const CRON = { path: 'plugins.slow.schedules[0].cron', value: '15 4 * * *' };

await run(
  async (page) => {
    await goTo(page, '/configuration');
    const before = (await api(page, '/config/view')).snapshot_id;
    const dialog = page.getByRole('dialog');
    await page.getByRole('button', { name: 'Change a setting …' }).click();
    await dialog.getByLabel('Setting').fill('plugins.slow.cron');
    await dialog.getByLabel('Value').fill(CRON.value);
    await dialog.getByRole('button', { name: 'Show the change' }).click();
    await page.getByText('plugins.slow').first().waitFor();
    await dialog.getByLabel('Setting').fill(CRON.path);
    await dialog.getByRole('button', { name: 'Show the change' }).click();
    await dialog.locator('.diff-add', { hasText: CRON.value }).waitFor();
    await dialog.getByRole('button', { name: 'Write the file' }).click();
    await page.getByText('It is in force after a reload.').waitFor();
    await dialog.getByText('slow/nightly cron 30 2 * * *').waitFor();
    await dialog.getByText('+ 7 fires in 7 days').waitFor();
    await dialog.getByRole('button', { name: 'Reload', exact: true }).click();
    await page.getByText('The configuration is reloaded.').waitFor();
    const changed = (await api(page, '/config/view')).snapshot_id;
    assert.notEqual(changed, before);

    await page.getByRole('tab', { name: 'History' }).click();
    await page.getByText(changed).waitFor();
    await page.getByRole('button', { name: 'Return …' }).click();
    await dialog.getByText('config.yaml replaced').waitFor();
    await dialog.getByRole('button', { name: 'Return', exact: true }).click();
    await page.getByText('The earlier configuration is in force.').waitFor();
    assert.equal((await api(page, '/config/view')).snapshot_id, before);

    // Whole new files with an error are refused, and the screen says what is wrong with them.
    await ask('break');
    await goTo(page, '/configuration');
    await page.getByText("did you mean 'job.dead'?").waitFor();
    await page.getByRole('button', { name: 'Reload …' }).click();
    await page.getByText('The files have errors: see above.').waitFor();
    assert.equal((await api(page, '/config/view')).snapshot_id, before);

    await page.getByRole('button', { name: 'Back up …' }).click();
    await dialog.getByText('The gateway writes /').waitFor();
    await dialog.getByRole('button', { name: 'Back up', exact: true }).click();
    await page.getByText('The backup is /').waitFor();
    const { state, made } = await api(page, '/system/backup');
    assert.ok(made, `the backup is ${state}`);
  },
  { allowed: ['status of 409'] },
);
