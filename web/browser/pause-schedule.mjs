// Pause a schedule after a question, and resume it.

import { run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await goTo(page, '/schedules');
  const row = page.getByRole('row', { name: /slow\/nightly/ });
  await row.getByText('At 02:30').waitFor();
  await row.getByRole('button', { name: 'Pause …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Keep it as it is' }).click();
  await row.locator('.badge', { hasText: 'active' }).waitFor();

  await row.getByRole('button', { name: 'Pause …' }).click();
  await dialog.getByRole('button', { name: 'Pause' }).click();
  await row.locator('.badge', { hasText: 'paused' }).waitFor();
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.locator('.badge', { hasText: 'active' }).waitFor();
});
