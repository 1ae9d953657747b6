// Drain and resume the node; then end all sessions: this page asks for a login.

import { run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(
  async (page) => {
    await goTo(page, '/configuration?tab=nodes');
    const node = page.getByRole('row', { name: /0 of 2/ });
    await node.locator('.badge', { hasText: 'running' }).waitFor();
    await node.getByRole('button', { name: 'Drain …' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Drain' }).click();
    await node.locator('.badge', { hasText: 'drained' }).waitFor();
    await node.getByRole('button', { name: 'Resume' }).click();
    await node.locator('.badge', { hasText: 'running' }).waitFor();

    await goTo(page, '/configuration?tab=tokens');
    await page.getByRole('button', { name: 'End all sessions …' }).click();
    await dialog.getByRole('button', { name: 'End the sessions' }).click();
    await page.getByLabel('API token').waitFor();
  },
  { allowed: ['status of 401'] },
);
