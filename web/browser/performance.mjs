// A log of 10 MB and 200 events per second leave the page responsive; an idle page sends nothing.
//
// Durations are compared with limits only if DUCTILE_MEASURE is set: they depend on the machine.
// A small server between the browser and the gateway replaces one response and the event stream.

import assert from 'node:assert/strict';
import { createServer, request as forward } from 'node:http';
import { api, run, until, url } from './scenario.mjs';
import { goTo, logIn, openPage } from './session.mjs';

const LOG_BYTES = 10 * 1024 * 1024;
const EVENTS_PER_SECOND = 200;
const IDLE_SCREENS = ['/', '/jobs', '/plugins', '/configuration?tab=nodes'];
const IS_MEASURED = process.env.DUCTILE_MEASURE === '1';
const SETTLE_MS = IS_MEASURED ? 2000 : 500;
const IDLE_MS = IS_MEASURED ? 6000 : 1500;
const WATCHED_MS = IS_MEASURED ? 4000 : 500;
/** Limits of one task of the main thread. */
const MAX_LOG_TASK_MS = 50;
const MAX_EVENT_TASK_MS = 100;
const ROUNDS = IS_MEASURED ? 6 : 1;

const line = `2026-11-16T18:00:00Z block copied ${'x'.repeat(60)}\n`;
const log = line.repeat(Math.ceil(LOG_BYTES / line.length));
let eventNumber = 0;
let changeJob = (text) => text;

function streamEvents(response) {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  const timer = setInterval(() => {
    let text = '';
    for (let n = 0; n < EVENTS_PER_SECOND / 20; n++) {
      eventNumber += 1;
      const data = { job_id: `job-${eventNumber}`, plugin: 'quick', command: 'poll', attempt: 1 };
      const event = { id: eventNumber, topic: 'jobs', type: 'job.succeeded', at: new Date(), data };
      text += `id: 9-${eventNumber}\nevent: job.succeeded\ndata: ${JSON.stringify(event)}\n\n`;
    }
    response.write(text);
  }, 50);
  response.on('close', () => clearInterval(timer));
}

const gateway = new URL(url);
const proxy = createServer((incoming, response) => {
  if (incoming.url.startsWith('/events')) return streamEvents(response);
  const { host, ...headers } = incoming.headers;
  const origin = headers.origin && { origin: url };
  const options = {
    hostname: gateway.hostname,
    port: gateway.port,
    method: incoming.method,
    path: incoming.url,
    headers: { ...headers, ...origin, host: gateway.host },
  };
  incoming.pipe(
    forward(options, async (answer) => {
      const parts = [];
      for await (const part of answer) parts.push(part);
      const isJob = /^\/job\/[^/]+$/.test(incoming.url);
      const body = Buffer.concat(parts);
      const { 'content-length': _, 'transfer-encoding': __, ...kept } = answer.headers;
      response.writeHead(answer.statusCode, kept);
      response.end(isJob ? changeJob(body.toString()) : body);
    }),
  );
});
await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
const proxyUrl = `http://127.0.0.1:${proxy.address().port}`;

/**
 * Returns the longest task of the main thread while `work` runs, in milliseconds: the least of
 * several runs, because other programs on the machine only ever make a task longer.
 */
async function longestTask(page, work, limit) {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS && least > limit; round++) {
    least = Math.min(least, await longestTaskOnce(page, work));
  }
  return least;
}

async function longestTaskOnce(page, work) {
  await page.evaluate(() => {
    globalThis.longTasks = [];
    globalThis.observer?.disconnect();
    globalThis.observer = new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) globalThis.longTasks.push(duration);
    });
    globalThis.observer.observe({ type: 'longtask' });
  });
  await work();
  return page.evaluate(() => Math.max(0, ...globalThis.longTasks));
}

await run(async (page, _context, browser) => {
  const requests = [];
  page.on('request', (request) => requests.push(request.url()));
  for (const screen of IDLE_SCREENS) {
    await goTo(page, screen);
    await page.waitForTimeout(SETTLE_MS);
    await until(
      async () => {
        requests.length = 0;
        await page.waitForTimeout(IDLE_MS);
        return requests;
      },
      (sent) => !sent.length,
      `the idle page at ${screen} sends requests`,
    );
  }

  const { job_id: id } = await api(page, '/plugin/quick/poll', {});
  await api(page, `/job/${id}?wait=30`);

  const busy = await openPage(browser, proxyUrl);
  await logIn(busy.page, proxyUrl, process.env.DUCTILE_ADMIN_TOKEN);
  await goTo(busy.page, '/events');
  await busy.page.waitForTimeout(SETTLE_MS);
  const eventTask = await longestTask(
    busy.page,
    () => busy.page.waitForTimeout(WATCHED_MS),
    MAX_EVENT_TASK_MS,
  );
  console.log(`longest task, 200 events per second: ${Math.round(eventTask)} ms`);
  await goTo(busy.page, '/jobs');
  await busy.page.waitForTimeout(SETTLE_MS);
  const listTask = await longestTask(
    busy.page,
    () => busy.page.waitForTimeout(WATCHED_MS),
    MAX_EVENT_TASK_MS,
  );
  console.log(`longest task, 200 events per second, list of jobs: ${Math.round(listTask)} ms`);
  await goTo(busy.page, '/plugins');

  changeJob = (text) => {
    const job = JSON.parse(text);
    job.attempts[0].stderr = log;
    return JSON.stringify(job);
  };
  const openLog = async () => {
    await goTo(busy.page, '/plugins');
    await busy.page.getByRole('heading', { name: 'Plugins' }).waitFor();
    await goTo(busy.page, `/jobs/${id}`);
    const count = (log.length / line.length).toLocaleString('en');
    await busy.page.getByText(`${count} lines`).waitFor();
    const box = busy.page.getByRole('region', { name: 'Log' });
    for (const share of [0.1, 0.5, 0.9, 1]) {
      await box.evaluate((element, part) => {
        element.scrollTop = part * element.scrollHeight;
      }, share);
      await busy.page.waitForTimeout(150);
    }
    await box.getByText(line.trim()).first().waitFor();
    assert.ok((await box.locator('.log-line').count()) < 200, 'the log is not windowed');
  };
  const logTask = await longestTask(busy.page, openLog, MAX_LOG_TASK_MS);
  console.log(`longest task, opening and scrolling a log of 10 MB: ${Math.round(logTask)} ms`);
  if (!IS_MEASURED) return;
  assert.ok(eventTask <= MAX_EVENT_TASK_MS, `${eventTask} ms for events`);
  assert.ok(listTask <= MAX_EVENT_TASK_MS, `${listTask} ms for the list`);
  assert.ok(logTask <= MAX_LOG_TASK_MS, `${logTask} ms for the log`);
});
