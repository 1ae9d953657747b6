// A killed gateway is shown as disconnected; after its restart no event is missing.

import assert from 'node:assert/strict';
import { api, ask, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(
  async (page) => {
    await page.getByText('Live', { exact: true }).waitFor();
    await goTo(page, '/events');
    await api(page, '/plugin/quick/poll', {});
    await page.getByText('job.succeeded').first().waitFor();

    await ask('kill');
    await page.getByRole('alert').filter({ hasText: 'Disconnected' }).waitFor();
    // Jobs that run before the page is connected again.
    await ask('start');
    await ask('trigger');
    await page.getByText('Live', { exact: true }).waitFor({ timeout: 60_000 });
    await page.getByRole('alert').waitFor({ state: 'detached' });

    const { notices } = await api(page, '/notices?last=1000');
    const wanted = notices.filter(({ topic }) => topic === 'jobs').length;
    const shown = () => page.locator('.events .event-type', { hasText: /^job\./ }).count();
    await until(shown, (count) => count === wanted, `${wanted} events are expected`);
    assert.ok(wanted > 3);
  },
  {
    allowed: [
      'ERR_CONNECTION_REFUSED',
      'ERR_INCOMPLETE_CHUNKED_ENCODING',
      'ERR_CONNECTION_RESET',
      'ERR_EMPTY_RESPONSE',
      'status of 503',
    ],
  },
);
