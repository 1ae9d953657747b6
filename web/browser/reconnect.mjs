// A killed gateway is shown as disconnected; after its restart no event is missing.

import assert from 'node:assert/strict';
import { api, ask, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

/** With its query, in which a glob would not match. */
const STREAM = /\/events(\?|$)/;

await run(
  async (page) => {
    await page.getByText('Live', { exact: true }).waitFor();
    await goTo(page, '/events');
    await api(page, '/plugin/quick/poll', {});
    await page.getByText('job.succeeded').first().waitFor();

    // The page stays disconnected until the jobs have run: their events can only be resumed.
    await page.route(STREAM, (route) => route.abort());
    await ask('kill');
    await page.getByRole('alert').filter({ hasText: 'Disconnected' }).waitFor();
    await ask('start');
    const missed = await ask('trigger');
    assert.equal(await page.locator(`.events a[href$="${missed}"]`).count(), 0);
    await page.unroute(STREAM);
    await page.getByText('Live', { exact: true }).waitFor({ timeout: 60_000 });
    await page.getByRole('alert').waitFor({ state: 'detached' });

    const { notices } = await api(page, '/notices?last=1000');
    const wanted = notices.filter(({ topic }) => topic === 'jobs').length;
    const shown = () => page.locator('.events .event-type', { hasText: /^job\./ }).count();
    await until(shown, (count) => count === wanted, `${wanted} events are expected`);
    assert.ok((await page.locator(`.events a[href$="${missed}"]`).count()) > 0);
    assert.ok(wanted > 3);
  },
  {
    allowed: [
      'ERR_CONNECTION_REFUSED',
      'ERR_INCOMPLETE_CHUNKED_ENCODING',
      'ERR_CONNECTION_RESET',
      'ERR_FAILED',
      'ERR_EMPTY_RESPONSE',
      'status of 503',
    ],
  },
);
