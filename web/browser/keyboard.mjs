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

  // The dialog of the search before must be closed, and the field of this one must have the focus.
  const search = async (text) => {
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('/');
    await page.getByRole('dialog', { name: 'Search' }).waitFor();
    await page.waitForFunction(() => document.activeElement?.getAttribute('type') === 'search');
    await page.keyboard.type(text);
  };
  await search(id.slice(-8));
  await page.getByRole('button', { name: id }).waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.hash.includes(id));

  await search('nothing has this name');
  await page.keyboard.press('Escape');

  await search('photos');
  // Without a filter, other names are listed too.
  await page.getByRole('button', { name: 'Home' }).waitFor({ state: 'detached' });
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
