// The address of the page: the path and the query of a screen are in the fragment, because the
// gateway serves one page. Filters, sort and tab are in the query: `/ui/#/jobs?status=dead`.

import { computed, signal } from '@preact/signals';

interface Place {
  path: string;
  query: URLSearchParams;
}

function readPlace(): Place {
  // Another fragment, such as the code of a link from `ductile ui`, is no screen.
  const fragment = location.hash.startsWith('#/') ? location.hash.slice(1) : '/';
  const [path = '', query = ''] = fragment.split(/\?(.*)/s);
  return { path: path.replace(/\/+$/, '') || '/', query: new URLSearchParams(query) };
}

const place = signal<Place>(readPlace());

export const currentPath = computed(() => place.value.path);
export const currentQuery = computed(() => place.value.query);

addEventListener('popstate', () => {
  place.value = readPlace();
});

/** Returns the address of a path of the page, such as `/jobs?status=dead`. */
export function hrefOf(path: string): string {
  return `#${path}`;
}

/** Shows another screen and adds it to the history. */
export function navigate(path: string): void {
  history.pushState(null, '', hrefOf(path));
  place.value = readPlace();
  scrollTo(0, 0);
}

/**
 * Changes query parameters of this screen. A change of a filter is not a step of the history; a
 * page of a list is (`isStep`).
 */
export function setQuery(changes: Record<string, string | null>, isStep = false): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  const path = place.value.path + (text ? `?${text}` : '');
  if (isStep) history.pushState(null, '', hrefOf(path));
  else history.replaceState(null, '', hrefOf(path));
  place.value = readPlace();
}

/** Returns a query parameter, or the default. */
export function queryValue(name: string, fallback = ''): string {
  return currentQuery.value.get(name) ?? fallback;
}

/** Returns the parameters of `path` by `pattern`, such as `/jobs/:id`, or null. */
export function matchPath(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? '';
    if (!part.startsWith(':')) {
      if (part !== value) return null;
      continue;
    }
    const decoded = decode(value);
    if (decoded === null) return null;
    found[part.slice(1)] = decoded;
  }
  return found;
}

/** Returns null for a text that is not a valid part of an address. */
function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
