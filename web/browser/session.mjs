// Opens the dashboard of a running gateway in Debian's Chromium.

import { chromium } from 'playwright-core';

const EXECUTABLE = process.env.CHROMIUM ?? '/usr/bin/chromium';
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Milliseconds until a wait is given up; far longer than anything takes on a busy machine. */
export const WAIT_LIMIT = 120_000;

const options = { executablePath: EXECUTABLE, args: FLAGS, timeout: WAIT_LIMIT };

/** Connects to the browser that the suite has started, or starts one. */
export function launch() {
  const address = process.env.DUCTILE_BROWSER;
  return address ? chromium.connect(address, { timeout: WAIT_LIMIT }) : chromium.launch(options);
}

/** Starts a browser that several programs use. */
export function launchServer() {
  return chromium.launchServer(options);
}

/** Returns a page and the list of its problems: console errors, CSP reports, foreign requests. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1360, height: 860 },
    timezoneId: 'Europe/Vienna',
    ...options,
  });
  context.setDefaultTimeout(WAIT_LIMIT);
  const page = await context.newPage();
  const problems = [];
  page.on('console', (message) => {
    if (message.type() !== 'error') return;
    const text = message.text();
    // The page asks whether there is a session; the browser reports the 401 by itself.
    if (text.includes('status of 401') && message.location().url.endsWith('/ui/session')) return;
    problems.push(`console: ${text} ${message.location().url}`);
  });
  page.on('pageerror', (error) => problems.push(`exception: ${error.message}`));
  page.on('request', (request) => {
    const address = request.url();
    if (!/^(data|blob):/.test(address) && !address.startsWith(url)) {
      problems.push(`foreign request: ${address}`);
    }
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      console.error(`CSP ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  return { context, page, problems };
}

export async function logIn(page, url, token) {
  await page.goto(`${url}/ui/`);
  await page.getByLabel('API token').fill(token);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('navigation', { name: 'Screens' }).waitFor();
}

/** Shows another screen of the page, without loading it again. */
export async function goTo(page, path) {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, path);
}
