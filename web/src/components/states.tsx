// What a screen shows instead of data: loading, nothing, or an error.

import type { ComponentChildren } from 'preact';
import { ApiError } from '../api/client';
import type { Resource } from '../api/resource';
import { can } from '../api/session';
import { capitalized } from '../format/text';

interface EmptyProps {
  title: string;
  /** What to do next. */
  children?: ComponentChildren;
}

export function Empty({ title, children }: EmptyProps) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="empty-hint">{children}</div>}
    </div>
  );
}

export function Loading() {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      <span />
      <span />
      <span />
    </div>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  const status = error instanceof ApiError ? error.status : 0;
  if (status === 403) {
    return (
      <Empty title="Your token does not allow this">
        {capitalized(error.message)}. Ask for a token with this scope, or log in with another one.
      </Empty>
    );
  }
  if (status === 404) return <Empty title="Not found">{capitalized(error.message)}.</Empty>;
  return (
    <div class="failure" role="alert">
      <p>{capitalized(error.message)}</p>
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

interface ScopedProps {
  scope: string;
  children: ComponentChildren;
}

/** What needs a scope to be read; without it the reason, and no request that would be refused. */
export function Scoped({ scope, children }: ScopedProps) {
  if (can(scope)) return <>{children}</>;
  return (
    <Empty title="Your token does not allow this">
      It takes the scope <code>{scope}</code>. Log in with a token that has it.
    </Empty>
  );
}

interface LoadedProps<T> {
  resource: Resource<T>;
  children: (data: T) => ComponentChildren;
  /** Shown if the gateway has no such route. */
  missing?: ComponentChildren;
}

/** Shows the data of a resource, or why there is none. Stale data stays visible. */
export function Loaded<T>({ resource, children, missing }: LoadedProps<T>) {
  const { data, error } = resource;
  if (data !== null) return <>{children(data)}</>;
  if (!error) return <Loading />;
  if (missing && error instanceof ApiError && error.status === 404) return <>{missing}</>;
  return <Failure error={error} retry={resource.refetch} />;
}

export function MissingRoute({ what }: { what: string }) {
  return (
    <Empty title={`This gateway does not have ${what}`}>
      Update the gateway to a version that has it.
    </Empty>
  );
}
