// Pause a plugin, a pipeline and the gateway with a reason; the home page shows it; resume.

import assert from 'node:assert/strict';
import { api, run, until } from './scenario.mjs';
import { goTo } from './session.mjs';

const pausesOf = async (page) => (await api(page, '/pauses')).pauses.length;

async function pause(page, button, reason) {
  await page.getByRole('button', { name: button }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Reason').fill(reason);
  await dialog.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('region', { name: 'Pause' }).getByText(reason).waitFor();
}

async function resume(page) {
  const notice = page.getByRole('region', { name: 'Pause' });
  await notice.getByRole('button', { name: 'Resume' }).click();
  await notice.waitFor({ state: 'detached' });
}

await run(async (page) => {
  await goTo(page, '/plugins/quick');
  await pause(page, 'Pause …', 'the disk is moved');
  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  assert.equal((await api(page, `/job/${id}`)).status, 'queued');

  await goTo(page, '/pipelines/photos');
  await page.getByRole('heading', { name: 'photos' }).waitFor();
  await pause(page, 'Pause …', 'new sizes');
  await goTo(page, '/');
  await page.getByRole('heading', { name: 'Home' }).waitFor();
  await pause(page, 'Pause the gateway …', 'an upgrade');
  await page.getByRole('link', { name: /Paused pipeline photos .*new sizes/ }).waitFor();
  await resume(page);

  await page.getByRole('link', { name: /Paused plugin quick .*the disk is moved/ }).click();
  await resume(page);
  const job = await api(page, `/job/${id}?wait=30`);
  assert.equal(job.status, 'succeeded');
  await goTo(page, '/pipelines/photos');
  await resume(page);
  await until(
    () => pausesOf(page),
    (count) => count === 0,
    'something is still paused',
  );
});
