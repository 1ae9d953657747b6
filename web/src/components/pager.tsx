import { queryValue, setQuery } from '../router/router';

/** Leads to older rows by the cursor of a page. */
export function CursorPager({ next }: { next: string | null }) {
  const hasCursor = queryValue('before') !== '';
  if (!hasCursor && next === null) return null;
  return (
    <nav class="pager" aria-label="Pages">
      {hasCursor && (
        <button type="button" onClick={() => setQuery({ before: null })}>
          Newest
        </button>
      )}
      <button
        type="button"
        disabled={next === null}
        onClick={() => setQuery({ before: next }, true)}
      >
        Older →
      </button>
    </nav>
  );
}
