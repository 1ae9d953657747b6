// One browser test: a program that opens the dashboard and fails if an assertion does.
//
// The test suite starts the gateway and passes its address and tokens. A scenario asks the suite to
// stop or start the gateway by a line on its output, and continues after a line on its input.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { launch, logIn, openPage, WAIT_LIMIT } from './session.mjs';

export const url = process.env.DUCTILE_URL;
export const adminToken = process.env.DUCTILE_ADMIN_TOKEN;
export const readerToken = process.env.DUCTILE_READER_TOKEN;

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks the suite for something that only it can do: `stop`, `start`, `code`. */
export async function ask(request) {
  console.log(`@${request}`);
  const { value } = await lines.next();
  return value;
}

/** Calls a route as the page does, with the cookie of its session. */
export function api(page, path, body) {
  return page.evaluate(
    async ([address, content]) => {
      const response = await fetch(
        address,
        content && {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', 'X-Ductile-UI': '1' },
          body: content,
        },
      );
      return response.json();
    },
    [path, body && JSON.stringify(body)],
  );
}

/** Repeats `read` until `isDone` accepts its result. */
export async function until(read, isDone, what, milliseconds = WAIT_LIMIT) {
  const end = Date.now() + milliseconds;
  for (;;) {
    const found = await read();
    if (isDone(found)) return found;
    assert.ok(Date.now() < end, `${what}: ${JSON.stringify(found)}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Runs a scenario on a page that is logged in, unless `token` is null. */
export async function run(scenario, { token = adminToken, allowed = [], ...options } = {}) {
  const browser = await launch();
  try {
    const { page, context, problems } = await openPage(browser, url, options);
    if (token) await logIn(page, url, token);
    await scenario(page, context, browser);
    const unexpected = problems.filter((text) => !allowed.some((part) => text.includes(part)));
    assert.deepEqual(unexpected, [], 'the page has problems');
  } finally {
    await browser.close();
  }
  process.exit(0);
}
