// Everything by keyboard: help, screens, rows, search; and the theme.

import assert from 'node:assert/strict';
import { api, run } from './scenario.mjs';

await run(async (page) => {
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  await api(page, `/job/${id}?wait=30`);
  const heading = (name) => page.getByRole('heading', { level: 1, name }).waitFor();

  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });

  await page.keyboard.press('g');
  await page.keyboard.press('j');
  await heading('Jobs');
  await page
    .getByRole('link', { name: /quick\.poll/ })
    .first()
    .waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await heading('quick.poll');

  await page.keyboard.press('/');
  await page.getByRole('dialog', { name: 'Search' }).waitFor();
  await page.keyboard.type(id.slice(-8));
  await page.getByRole('button', { name: id }).waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.hash.includes(id));

  await page.keyboard.press('/');
  await page.keyboard.type('photos');
  await page.getByRole('button', { name: /photos/ }).waitFor();
  await page.keyboard.press('Enter');
  await heading('photos');

  const themeOf = () => page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await themeOf(), 'light');
  const button = page.getByRole('button', { name: /^Theme/ });
  await button.click();
  await button.click();
  assert.equal(await themeOf(), 'dark');
  await page.reload();
  await heading('photos');
  assert.equal(await themeOf(), 'dark', 'the choice is kept');
});
