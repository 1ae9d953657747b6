// End all sessions after a question: this page asks for a login. The nodes are listed before.

import { run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(
  async (page) => {
    await goTo(page, '/configuration?tab=nodes');
    await page.getByRole('row', { name: /running 0 of 2/ }).waitFor();

    await goTo(page, '/configuration?tab=tokens');
    await page.getByRole('button', { name: 'End all sessions …' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'End the sessions' }).click();
    await page.getByLabel('API token').waitFor();
  },
  { allowed: ['status of 401'] },
);
