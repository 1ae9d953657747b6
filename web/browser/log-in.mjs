// Log in with a wrong token, the right one and a one-use code; no token stays in the page.

import assert from 'node:assert/strict';
import { adminToken, ask, run, url } from './scenario.mjs';

async function checkNoToken(page, context) {
  const stored = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage]));
  const content = await page.content();
  for (const text of [stored, content, page.url()]) assert.ok(!text.includes(adminToken));
  const cookies = await context.cookies();
  assert.equal(cookies.length, 1);
  assert.ok(cookies[0].httpOnly && cookies[0].sameSite === 'Strict');
  assert.notEqual(cookies[0].value, adminToken);
}

await run(
  async (page, context) => {
    const screens = page.getByRole('navigation', { name: 'Screens' });
    await page.goto(`${url}/ui/`);
    await page.getByLabel('API token').fill('not-a-token');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('The gateway does not know this token.').waitFor();

    await page.getByLabel('API token').fill(adminToken);
    await page.getByRole('button', { name: 'Log in' }).click();
    await screens.waitFor();
    await checkNoToken(page, context);

    await page.reload();
    await screens.waitFor();
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Log out' }).click();
    await page.getByLabel('API token').waitFor();
    await page.reload();
    await page.getByLabel('API token').waitFor();

    const code = await ask('code');
    await page.goto('about:blank');
    await page.goto(`${url}/ui/#code=${code}`);
    await page.getByRole('heading', { name: 'Home', exact: true }).waitFor();
    assert.ok(!page.url().includes(code), 'the code stays in the address');

    await context.clearCookies();
    await page.goto('about:blank');
    await page.goto(`${url}/ui/#code=${code}`);
    await page.getByText('The link was used already or has expired.').waitFor();
  },
  // The browser itself reports each refused login.
  { token: null, allowed: ['status of 401'] },
);
