// Writes a screenshot of every screen, light and dark, for docs/how-to/dashboard.md.
//
//   DUCTILE_URL=http://127.0.0.1:8080 DUCTILE_TOKEN=... node browser/screenshots.mjs [FOLDER]
//
// The gateway is the demo, after some minutes: a copy has to have failed for good. `service.node` in
// its configuration keeps the host's name out of the images.

import { mkdir } from 'node:fs/promises';
import { goTo, launch, logIn, openPage } from './session.mjs';

const { DUCTILE_URL: url, DUCTILE_TOKEN: token } = process.env;
const folder = process.argv[2] ?? '../docs/images/dashboard';
const SETTLE_MS = 1200;

const WEBHOOKS = [
  {
    source_identifier: 'shop',
    event_type: 'order.paid',
    target_session: 'stock',
    plugin: 'announce',
  },
  { source_identifier: 'weather', event_type: 'storm', target_session: 'stock', pipeline: 'order' },
];

/** Adds what the demo lacks: webhooks for agents, an agent with capabilities, a reminder. */
async function prepare(page) {
  const send = (path, body) =>
    page.evaluate(
      async ([address, content]) => {
        const headers = { 'Content-Type': 'application/json', 'X-Ductile-UI': '1' };
        await fetch(address, { method: 'POST', headers, body: JSON.stringify(content) });
      },
      [path, body],
    );
  const { webhooks } = await page.evaluate(async () =>
    (await fetch('/gateway/webhook-configs')).json(),
  );
  if (webhooks.length) return;
  for (const webhook of WEBHOOKS) await send('/gateway/webhook-configs', webhook);
  const heartbeat = { type: 'heartbeat', agent_id: 'forecaster', cluster_id: 'demo' };
  await send('/gateway/heartbeat', heartbeat);
  await send('/gateway/cron', {
    agent_id: 'stock-keeper',
    schedule: '0 9 * * 1',
    payload: { note: 'count the umbrellas' },
  });
}

async function findScreens(page) {
  const read = (path) => page.evaluate(async (address) => (await fetch(address)).json(), path);
  const { jobs } = await read('/jobs?status=dead&limit=1');
  const { pipelines } = await read('/pipelines');
  const { runs } = await read('/pipeline-runs?status=failed&limit=1');
  const { schedules } = await read('/scheduler/jobs');
  const { alerts } = await read('/alerts');
  const [job] = jobs;
  const [run] = runs;
  const [schedule] = schedules;
  const [rule] = alerts;
  const pipeline = run?.pipeline ?? pipelines[0]?.name;
  return {
    home: '/',
    jobs: '/jobs',
    ...(job && { job: `/jobs/${job.job_id}`, plugin: `/plugins/${job.plugin}?tab=plots` }),
    runs: '/runs',
    ...(run && { run: `/runs/${run.instance_id}` }),
    approvals: '/approvals',
    ...(schedule && { schedules: `/schedules?name=${schedule.plugin}%2F${schedule.schedule}` }),
    ...(pipeline && { pipeline: `/pipelines/${pipeline}` }),
    plugins: '/plugins',
    webhooks: '/webhooks',
    agents: '/agents',
    alerts: rule ? `/alerts?name=${rule.rule}` : '/alerts',
    events: '/events',
    configuration: '/configuration',
    nodes: '/configuration?tab=nodes',
  };
}

await mkdir(folder, { recursive: true });
const browser = await launch();
for (const colorScheme of ['light', 'dark']) {
  const viewport = { width: 1280, height: 800 };
  const { page, context, problems } = await openPage(browser, url, { colorScheme, viewport });
  await logIn(page, url, token);
  await prepare(page);
  // Away from anything that shows that the pointer is on it.
  await page.mouse.move(8, 600);
  for (const [name, path] of Object.entries(await findScreens(page))) {
    await goTo(page, path);
    await page.waitForTimeout(SETTLE_MS);
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
    await page.screenshot({ path: `${folder}/${name}-${colorScheme}.png` });
  }
  for (const problem of problems) console.error(problem);
  await context.close();
}
await browser.close();
