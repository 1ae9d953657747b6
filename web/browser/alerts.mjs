// A dead job fires an alert; the home page leads to it; silence it, end that, send a test message.

import { api, run, until } from './scenario.mjs';

const rule = async (page) => (await api(page, '/alerts')).alerts[0];

await run(async (page) => {
  await api(page, '/plugin/broken/poll', {});
  await page.getByRole('link', { name: /Alert broken/ }).click();
  const rules = page.getByRole('region', { name: 'Alert rules' });
  const row = rules.getByRole('row', { name: /broken job\.dead/ });
  await row.locator('.badge', { hasText: 'firing' }).waitFor();
  await page.getByText('the disk is full').first().waitFor();

  await row.getByRole('button', { name: 'Silence …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('For').fill('3h');
  await dialog.getByRole('button', { name: 'Silence', exact: true }).click();
  await row.getByText('silenced by token:admin').waitFor();
  await row.getByRole('button', { name: 'End the silence' }).click();
  await row.getByRole('button', { name: 'Silence …' }).waitFor();

  await row.getByRole('button', { name: 'Test' }).click();
  await until(
    async () => (await api(page, '/alerts/broken')).messages.map(({ news }) => news),
    (news) => news.includes('test'),
    'no test message was sent',
  );
  await until(
    () => rule(page),
    ({ silenced_until: end }) => end === null,
    'it is still silenced',
  );
});
