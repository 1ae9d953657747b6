// The lists show how far a running job is, by its own report.

import { api, run } from './scenario.mjs';
import { goTo } from './session.mjs';

await run(async (page) => {
  await goTo(page, '/jobs');
  await api(page, '/plugin/copy/poll', {});
  const row = page.getByRole('row', { name: /copy\.poll/ });
  await row.getByText('40 % copying').waitFor();
  await row.getByRole('progressbar', { name: 'Progress' }).waitFor();
  await goTo(page, '/');
  const item = page.getByRole('listitem').filter({ hasText: 'copy.poll' });
  await item.getByText('40 % copying').waitFor();
});
