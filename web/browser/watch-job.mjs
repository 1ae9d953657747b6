// Run a command from its form, and watch the job and its log without loading the page again.

import assert from 'node:assert/strict';
import { run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await goTo(page, '/plugins/slow');
  await page.getByRole('button', { name: 'Run handle …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('word').fill('<b>bold</b>');
  await dialog.getByRole('button', { name: 'JSON' }).click();
  const payload = dialog.getByLabel('Payload');
  await payload.fill('{"word": "<b>bold</b>", "number": 9007199254740993}');
  await dialog.getByRole('button', { name: 'Run', exact: true }).click();

  const mark = page.locator('.page-name .badge');
  await mark.filter({ hasText: 'running' }).waitFor();
  await page.getByText('line 1 of <b>bold</b>').waitFor();
  await page.getByText('33 % first third').waitFor();
  assert.equal(await mark.textContent(), 'running', 'the log is shown while the job runs');
  await mark.filter({ hasText: 'succeeded' }).waitFor();
  await page.getByText('line 3 of <b>bold</b>').waitFor();
  assert.equal(await page.locator('main b').count(), 0, 'output became markup');

  await page.getByRole('tab', { name: 'Data' }).click();
  await page.getByText('9007199254740993').first().waitFor();
});
