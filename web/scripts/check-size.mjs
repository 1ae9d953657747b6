// Fails if the files that load before the first lazy chunk exceed the budget.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const BUDGET = 60 * 1024;
const build = join(dirname(fileURLToPath(import.meta.url)), '../../src/ductile/http/static/ui');

const seen = new Map();

/** Adds a file and, for scripts, every file that it imports statically. */
function add(path) {
  if (seen.has(path)) return;
  const content = readFileSync(join(build, path));
  seen.set(path, gzipSync(content, { level: 9 }).length);
  if (!path.endsWith('.js')) return;
  const text = content.toString('utf8');
  for (const [, name] of text.matchAll(/(?:from|import)\s*["']\.\/([^"']+\.js)["']/g)) {
    add(join(dirname(path), name));
  }
}

add('index.html');
const html = readFileSync(join(build, 'index.html'), 'utf8');
for (const [, path] of html.matchAll(/(?:src|href)="\/ui\/([^"]+)"/g)) add(path);

let total = 0;
for (const [path, size] of seen) {
  total += size;
  console.log(`${String(size).padStart(7)}  ${path}`);
}
console.log(`${String(total).padStart(7)}  before the first lazy chunk; the budget is ${BUDGET}`);
if (total > BUDGET) {
  console.error('The first load is over its budget: load a part of it lazily.');
  process.exit(1);
}
if (/<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=/.test(html)) {
  console.error('index.html has an inline script or style, which the CSP refuses.');
  process.exit(1);
}
