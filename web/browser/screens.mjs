// The addresses of every screen, with the ids of things that exist.

import { api } from './scenario.mjs';

export async function findScreens(page) {
  const { jobs } = await api(page, '/jobs?limit=1');
  const { runs } = await api(page, '/pipeline-runs?limit=1');
  const job = jobs[0] ? [`/jobs/${jobs[0].job_id}`] : [];
  return [
    '/',
    '/jobs',
    ...job,
    ...job.flatMap((path) => ['attempts', 'run', 'data'].map((tab) => `${path}?tab=${tab}`)),
    '/runs',
    ...(runs[0] ? [`/runs/${runs[0].instance_id}`] : []),
    '/approvals',
    '/schedules?name=slow%2Fnightly',
    '/pipelines',
    '/pipelines/photos',
    '/plugins',
    '/plugins/slow',
    '/plugins/quick?tab=plots',
    '/plugins/broken?tab=breakers',
    '/plugins/quick?tab=state',
    '/webhooks',
    '/webhooks?tab=deliveries',
    '/webhooks?tab=relays',
    '/agents',
    '/alerts?name=broken',
    '/events',
    '/configuration',
    '/configuration?tab=history',
    '/configuration?tab=tokens',
    '/configuration?tab=audit',
    '/configuration?tab=nodes',
    '/nowhere',
  ];
}
