// A form of another site cannot act with the session's cookie.

import assert from 'node:assert/strict';
import { api, run, url } from './scenario.mjs';

await run(async (page, context) => {
  const before = (await api(page, '/jobs?plugin=quick')).jobs.length;
  const other = await context.newPage();
  await other.setContent(
    `<form method="post" action="${url}/plugin/quick/poll"><button>Send</button></form>`,
  );
  const [response] = await Promise.all([
    other.waitForResponse((found) => found.url().startsWith(url)),
    other.getByRole('button').click(),
  ]);
  assert.ok([401, 403].includes(response.status()), `status ${response.status()}`);
  // The browser leaves the cookie out; with it, the origin and the missing header refuse too.
  const [cookie] = await context.cookies();
  const forged = await fetch(`${url}/plugin/quick/poll`, {
    method: 'POST',
    headers: {
      Cookie: `${cookie.name}=${cookie.value}`,
      Origin: 'http://attacker.example',
      'X-Ductile-UI': '1',
      'Content-Type': 'application/json',
    },
    body: '{}',
  });
  assert.equal(forged.status, 403);
  assert.equal((await api(page, '/jobs?plugin=quick')).jobs.length, before);
});
