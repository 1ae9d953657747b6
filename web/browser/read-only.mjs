// A token that may only read sees every screen, and no action.

import assert from 'node:assert/strict';
import { adminToken, api, readerToken, run, url } from './scenario.mjs';
import { findScreens } from './screens.mjs';
import { goTo, logIn, openPage } from './session.mjs';

const HARMLESS =
  /^(Search|Theme|Keyboard|\?|Log out|Skip|Copy|Copied|Download|Refresh|Check health|Clear filters|Close|Pause$|Older|Newest|Attempt|Log|Attempts|Run$|Data|Job|Status|Pipeline|Created|Took|Name|State|Next|Last|Schedule|Plugin|Steps|Mode|Commands|Compare|Plots|Breakers|Webhooks|Deliveries|Relays|Configuration|History|Tokens|Audit|Nodes?|Path|Event|Agent|Token|Rule|Started|[{[])/;

/** A token with one scope sees what it may: the page sends no request that is refused. */
async function visitWith(browser, scope, paths) {
  const admin = await openPage(browser, url);
  await logIn(admin.page, url, adminToken);
  const { token } = await api(admin.page, '/tokens', { name: scope, scopes: [scope] });
  await admin.context.close();
  const { page, context, problems } = await openPage(browser, url);
  await logIn(page, url, token);
  for (const path of paths) {
    await goTo(page, path);
    await page.locator('h1').waitFor();
    await page.waitForTimeout(400);
  }
  await context.close();
  assert.deepEqual(problems, [], `a token with ${scope} only`);
}

await run(
  async (page, _context, browser) => {
    await logIn(page, url, readerToken);
    for (const path of await findScreens(page)) {
      await goTo(page, path);
      await page.locator('h1').waitFor();
      await page.waitForTimeout(400);
      const names = await page.locator('main button:visible').allTextContents();
      const actions = names.map((name) => name.trim()).filter((name) => !HARMLESS.test(name));
      assert.deepEqual(actions, [], `${path} offers an action`);
    }
    await visitWith(browser, 'jobs:ro', await findScreens(page));
    await visitWith(browser, 'events:ro', await findScreens(page));
  },
  { token: null },
);
