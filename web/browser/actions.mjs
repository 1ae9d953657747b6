// Actions that need a form: remind an agent, send a webhook's event, change a plugin's state, create a
// token that ends by use. A job that an operator has cancelled needs nobody.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

const BIG = '9007199254740993';

async function fill(page, button, fields) {
  await page.getByRole('button', { name: button }).click();
  const dialog = page.getByRole('dialog');
  for (const [label, value] of Object.entries(fields)) await dialog.getByLabel(label).fill(value);
  await dialog.locator('[type=submit]').click();
}

await run(async (page) => {
  await goTo(page, '/agents');
  await fill(page, 'New reminder …', { Agent: 'ada', 'Once, after': 'soon' });
  await page.getByText('soon is not a duration').waitFor();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Once, after').fill('2h');
  await dialog.getByLabel('Payload').fill(`{"id": ${BIG}}`);
  await dialog.locator('[type=submit]').click();
  await page.getByRole('region', { name: 'Reminders' }).getByText(BIG).waitFor();

  const webhook = { source_identifier: 'crm', event_type: 'won', target_session: 's' };
  await api(page, '/gateway/webhook-configs', { ...webhook, plugin: 'quick' });
  await goTo(page, '/webhooks');
  await fill(page, 'Send …', { Payload: `{"id": ${BIG}}` });
  await page
    .getByRole('button', { name: /crm won|#1/ })
    .first()
    .waitFor();
  await until(
    async () => (await api(page, '/gateway/deliveries')).deliveries,
    ([delivery]) => delivery?.status === 'delivered',
    'the event was not delivered',
  );

  await goTo(page, '/plugins/quick?tab=state');
  await fill(page, 'Set a key …', { Key: 'cursor', Value: BIG });
  await page.getByText(BIG).waitFor();
  await fill(page, 'Remove a key …', { Key: 'cursor' });
  await page.getByText(BIG).waitFor({ state: 'detached' });

  await goTo(page, '/configuration?tab=tokens');
  await fill(page, 'New token …', { Name: 'agent', Scopes: 'plugin:rw', 'Runs that': '20' });
  await page.getByRole('button', { name: 'Done' }).click();
  await page.getByText('runs 20/20').waitFor();

  const { job_id: id } = await api(page, '/plugin/slow/poll', { payload: { word: 'x' } });
  await api(page, `/job/${id}/cancel`, {});
  assert.equal((await api(page, `/job/${id}?wait=30`)).status, 'dead');
  await goTo(page, '/');
  await page.getByText('Nothing needs you.').waitFor();
});
