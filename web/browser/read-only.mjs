// A token that may only read sees every screen, and no action.

import assert from 'node:assert/strict';
import { readerToken, run, url } from './scenario.mjs';
import { findScreens } from './screens.mjs';
import { goTo, logIn } from './session.mjs';

const HARMLESS =
  /^(Search|Theme|Keyboard|\?|Log out|Skip|Copy|Copied|Download|Refresh|Check health|Clear filters|Close|Pause$|Older|Newest|Attempt|Log|Attempts|Run$|Data|Job|Status|Pipeline|Created|Took|Name|State|Next|Last|Schedule|Plugin|Steps|Mode|Commands|Plots|Breakers|Webhooks|Deliveries|Relays|Configuration|History|Tokens|Audit|Nodes?|Path|Event|Agent|Token|Rule|Started|[{[])/;

await run(
  async (page) => {
    await logIn(page, url, readerToken);
    for (const path of await findScreens(page)) {
      await goTo(page, path);
      await page.locator('h1').waitFor();
      await page.waitForTimeout(400);
      const names = await page.locator('main button:visible').allTextContents();
      const actions = names.map((name) => name.trim()).filter((name) => !HARMLESS.test(name));
      assert.deepEqual(actions, [], `${path} offers an action`);
    }
  },
  { token: null, allowed: ['status of 403'] },
);
