// Pause a schedule after a question, and resume it; run schedules of a plugin and a pipeline now.

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

  await row.getByRole('button', { name: 'Run now' }).click();
  await page.waitForURL((url) => url.hash.startsWith('#/jobs/'));
  await page.getByRole('tab', { name: 'Data' }).click();
  await page.getByText('9007199254740993').waitFor();

  await goTo(page, '/schedules');
  const start = page.getByRole('row', { name: /pipeline:photos\/yearly/ });
  await start.getByRole('button', { name: 'Run now' }).click();
  await page.waitForURL((url) => url.hash.startsWith('#/runs/'));
  await page.getByRole('heading', { name: 'photos', level: 1 }).waitFor();
});
