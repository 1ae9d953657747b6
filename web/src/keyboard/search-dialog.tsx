// Jump to a job by the beginning or the end of its id, or to a plugin, pipeline or screen by its name.

import { useEffect, useState } from 'preact/hooks';
import { get, withQuery } from '../api/client';
import { can } from '../api/session';
import type { Pipelines, Plugins } from '../api/types';
import { Dialog } from '../components/dialog';
import { navigate } from '../router/router';
import { isSearchOpen, SCREENS } from './shortcuts';

interface Hit {
  kind: string;
  name: string;
  path: string;
}

const MAX_HITS = 12;
const MAX_IDS = 6;
const ID_PART = /^[0-9a-f]{4,}[0-9a-f-]*$/i;

export function SearchDialog() {
  return isSearchOpen.value ? <Search /> : null;
}

function Search() {
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const named = useNames();
  const ids = useJobIds(text.trim());
  const wanted = text.trim().toLowerCase();
  const hits = [...ids, ...named.filter(({ name }) => name.toLowerCase().includes(wanted))];
  const shown = hits.slice(0, MAX_HITS);
  const close = () => {
    isSearchOpen.value = false;
  };
  const open = (hit: Hit | undefined) => {
    if (!hit) return;
    close();
    navigate(hit.path);
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setChosen((chosen + step + shown.length) % Math.max(1, shown.length));
    else if (event.key === 'Enter') open(shown[chosen]);
    // Otherwise the browser only empties the field.
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Search" onClose={close} isLight>
      <div class="dialog-body search">
        <input
          type="search"
          autofocus
          aria-label="Search"
          placeholder="Job id, plugin, pipeline or screen"
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setChosen(0);
          }}
          onKeyDown={onKey}
        />
        <ul>
          {shown.map((hit, index) => (
            <li key={hit.path}>
              <button type="button" aria-current={index === chosen} onClick={() => open(hit)}>
                <span>{hit.name}</span>
                <small>{hit.kind}</small>
              </button>
            </li>
          ))}
        </ul>
        {!shown.length && <p class="muted">Nothing has this name or id.</p>}
      </div>
    </Dialog>
  );
}

function useNames(): Hit[] {
  const screens = SCREENS.map(({ name, path }) => ({ kind: 'screen', name, path }));
  const [hits, setHits] = useState<Hit[]>(screens);
  useEffect(() => {
    const load = async () => {
      const [{ plugins }, { pipelines }] = await Promise.all([
        get<Plugins>('/plugins'),
        get<Pipelines>('/pipelines'),
      ]);
      setHits([
        ...screens,
        ...pipelines.map(({ name }) => hitOf('pipeline', name)),
        ...plugins
          .filter(({ state }) => state !== 'available')
          .map(({ name }) => hitOf('plugin', name)),
      ]);
    };
    // Without the names the screens can still be found.
    load().catch(() => {});
  }, []);
  return hits;
}

function hitOf(kind: string, name: string): Hit {
  return { kind, name, path: `/${kind}s/${encodeURIComponent(name)}` };
}

function useJobIds(part: string): Hit[] {
  const [hits, setHits] = useState<Hit[]>([]);
  useEffect(() => {
    setHits([]);
    if (!ID_PART.test(part) || !can('jobs:ro')) return;
    const abort = new AbortController();
    const find = async (side: 'begins' | 'ends') => {
      const address = withQuery('/job-ids', { [side]: part.toLowerCase(), limit: MAX_IDS });
      return (await get<{ job_ids: string[] }>(address, abort.signal)).job_ids;
    };
    Promise.all([find('begins'), find('ends')]).then(
      (found) => {
        const ids = [...new Set(found.flat())];
        setHits(ids.map((id) => ({ kind: 'job', name: id, path: `/jobs/${id}` })));
      },
      () => {},
    );
    return () => abort.abort();
  }, [part]);
  return hits;
}
