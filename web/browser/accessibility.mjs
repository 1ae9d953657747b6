// Every screen, light, and dark on a phone: no violation of axe, no problem of the page.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { adminToken, run, url } from './scenario.mjs';
import { findScreens } from './screens.mjs';
import { goTo, logIn, openPage } from './session.mjs';

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const LOOKS = [
  { colorScheme: 'light' },
  { colorScheme: 'dark', viewport: { width: 375, height: 812 } },
];

const violations = [];

async function check(page, path) {
  const found = await page.evaluate(async () => {
    const result = await globalThis.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    });
    return result.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 160)}`);
  });
  violations.push(...found.map((text) => `${path} ${text}`));
}

await run(
  async (_page, _context, browser) => {
    for (const look of LOOKS) {
      const { page, context, problems } = await openPage(browser, url, look);
      await page.goto(`${url}/ui/`);
      await page.getByLabel('API token').waitFor();
      await page.evaluate(axe);
      await check(page, 'the login');
      await logIn(page, url, adminToken);
      await page.evaluate(axe);
      for (const path of await findScreens(page)) {
        await goTo(page, path);
        await page.locator('h1, .empty').first().waitFor();
        await page.waitForTimeout(500);
        await check(page, `${path} ${JSON.stringify(look)}`);
        const overflow = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        if (overflow > 0) violations.push(`${path} is ${overflow} px too wide`);
        const cut = await page.evaluate(() =>
          [...document.querySelectorAll('.table-wrap')]
            .filter((table) => table.scrollWidth > table.clientWidth)
            .map((table) => table.ariaLabel),
        );
        if (look.viewport && cut.length) violations.push(`${path} cuts off ${cut}`);
      }
      violations.push(...problems);
      await context.close();
    }
    assert.deepEqual(violations, []);
  },
  { token: null },
);
