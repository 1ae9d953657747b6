// A revoked token ends its session and its event stream at once, without any click.

import assert from 'node:assert/strict';
import { api, run, url } from './scenario.mjs';
import { logIn, openPage } from './session.mjs';

const MAX_MS = 20_000;

await run(async (page, _context, browser) => {
  const scopes = ['jobs:ro', 'events:ro', 'system:ro'];
  const { id, token } = await api(page, '/tokens', { name: 'guest', scopes });
  const guest = await openPage(browser, url);
  await logIn(guest.page, url, token);
  await guest.page.getByText('Live', { exact: true }).waitFor();

  await api(page, `/token/${id}/revoke`, {});
  // The next event makes the gateway check the access of every stream.
  await api(page, '/plugin/quick/poll', {});
  await guest.page.getByLabel('API token').waitFor({ timeout: MAX_MS });
  assert.equal(await guest.page.getByRole('navigation', { name: 'Screens' }).count(), 0);
});
