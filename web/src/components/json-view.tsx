// JSON as a tree that opens and closes. Values are text, and integers are exact.

import { useState } from 'preact/hooks';
import { formatJson, type Json } from '../api/json';
import { countOf } from '../format/text';
import { CopyButton } from './copy-button';

/** Entries shown at once; more on request. */
const PAGE = 100;
const OPEN_DEPTH = 3;
const LONG_TEXT = 2000;

export function JsonView({ value, label = 'JSON' }: { value: unknown; label?: string }) {
  const json = (value ?? null) as Json;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard.
    <section class="json" tabIndex={0} aria-label={label}>
      <CopyButton text={() => formatJson(json)} />
      <Value value={json} depth={0} />
    </section>
  );
}

function Value({ value, depth }: { value: Json; depth: number }) {
  if (value === null) return <span class="json-null">null</span>;
  if (typeof value === 'string') return <TextValue text={value} />;
  if (typeof value === 'object') return <Container value={value} depth={depth} />;
  return <span class={`json-${typeof value}`}>{String(value)}</span>;
}

function TextValue({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(text.length <= LONG_TEXT);
  const shown = isWhole ? text : text.slice(0, LONG_TEXT);
  return (
    <span class="json-string">
      {JSON.stringify(shown)}
      {!isWhole && (
        <button type="button" class="inline" onClick={() => setWhole(true)}>
          show all {countOf(text.length, 'character')}
        </button>
      )}
    </span>
  );
}

function Container({ value, depth }: { value: Json[] | Record<string, Json>; depth: number }) {
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH);
  const [limit, setLimit] = useState(PAGE);
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const [open, close] = isList ? '[]' : '{}';
  if (!entries.length) return <span>{`${open}${close}`}</span>;
  const summary = countOf(entries.length, isList ? 'item' : 'key');
  return (
    <span>
      <button
        type="button"
        class="json-toggle"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        {open}
        {!isOpen && <span class="muted"> {summary} </span>}
        {!isOpen && close}
      </button>
      {isOpen && (
        <>
          <ul>
            {entries.slice(0, limit).map(([key, item]) => (
              <li key={key}>
                {!isList && <span class="json-key">{key}: </span>}
                <Value value={item} depth={depth + 1} />
              </li>
            ))}
          </ul>
          {entries.length > limit && (
            <button type="button" class="inline" onClick={() => setLimit(limit + PAGE)}>
              show {countOf(Math.min(PAGE, entries.length - limit), 'more', 'more')}
            </button>
          )}
          {close}
        </>
      )}
    </span>
  );
}
