// Writes a screenshot of every screen, light and dark, for docs/dashboard.md.
//
//   DUCTILE_URL=http://127.0.0.1:8080 DUCTILE_TOKEN=... node browser/screenshots.mjs [FOLDER]

import { mkdir } from 'node:fs/promises';
import { goTo, launch, logIn, openPage } from './session.mjs';

const { DUCTILE_URL: url, DUCTILE_TOKEN: token } = process.env;
const folder = process.argv[2] ?? '../docs/images/dashboard';
const SETTLE_MS = 1200;

async function findScreens(page) {
  const read = (path) => page.evaluate(async (address) => (await fetch(address)).json(), path);
  const { jobs } = await read('/jobs?limit=200');
  const { pipelines } = await read('/pipelines');
  const { runs } = await read('/pipeline-runs?limit=50');
  const { schedules } = await read('/scheduler/jobs');
  const job = jobs.find(({ status }) => status === 'dead') ?? jobs[0];
  const run = runs.find(({ status }) => status === 'failed') ?? runs[0];
  const [schedule] = schedules;
  return {
    home: '/',
    jobs: '/jobs',
    ...(job && { job: `/jobs/${job.job_id}`, plugin: `/plugins/${job.plugin}?tab=plots` }),
    runs: '/runs',
    ...(run && { run: `/runs/${run.instance_id}` }),
    approvals: '/approvals',
    ...(schedule && { schedules: `/schedules?name=${schedule.plugin}%2F${schedule.schedule}` }),
    ...(pipelines[0] && { pipeline: `/pipelines/${pipelines[0].name}` }),
    plugins: '/plugins',
    webhooks: '/webhooks',
    agents: '/agents',
    alerts: '/alerts',
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
  for (const [name, path] of Object.entries(await findScreens(page))) {
    await goTo(page, path);
    await page.waitForTimeout(SETTLE_MS);
    await page.screenshot({ path: `${folder}/${name}-${colorScheme}.png` });
  }
  for (const problem of problems) console.error(problem);
  await context.close();
}
await browser.close();
