// The home page asks for a decision; approve one run with a comment, reject another.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

const approvals = async (page) => (await api(page, '/approvals')).approvals;

await run(async (page) => {
  await api(page, '/pipeline/invoices', { payload: { amount: 700 } });
  await page.getByRole('link', { name: /Approval Pay 700 EUR\?/ }).click();
  const notice = page.getByRole('region', { name: 'Approval' });
  await notice.getByRole('button', { name: 'Approve …' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Comment').fill('checked the sum');
  await dialog.getByRole('button', { name: 'Approve', exact: true }).click();
  await notice.waitFor({ state: 'detached' });
  await page.locator('.page-head .badge', { hasText: 'succeeded' }).waitFor();

  await api(page, '/pipeline/invoices', { payload: { amount: 9 } });
  await goTo(page, '/approvals?status=waiting');
  const row = page.getByRole('row', { name: /Pay 9 EUR\?/ });
  await row.getByRole('button', { name: 'Reject …' }).click();
  await dialog.getByRole('button', { name: 'Decide later' }).click();
  await row.getByRole('button', { name: 'Reject …' }).click();
  await dialog.getByRole('button', { name: 'Reject', exact: true }).click();
  await row.waitFor({ state: 'detached' });

  const decided = await until(
    () => approvals(page),
    (found) => found.every(({ status }) => status !== 'waiting'),
    'something still waits',
  );
  assert.deepEqual(
    decided.map(({ status, comment, ended_by }) => [status, comment, ended_by]),
    [
      ['rejected', null, 'token:admin'],
      ['approved', 'checked the sum', 'token:admin'],
    ],
  );
});
