// Who is logged in. The page never stores a token: the cookie is not readable by scripts.

import { computed, signal } from '@preact/signals';
import { ApiError, get, post, remove, setUnauthorizedHandler } from './client';
import { allows, allowsCommand } from './scopes';
import type { Session } from './types';

export type SessionState =
  | { kind: 'loading' }
  | { kind: 'anonymous'; message?: string }
  | { kind: 'unreachable'; message: string }
  | { kind: 'active'; session: Session };

export const sessionState = signal<SessionState>({ kind: 'loading' });

export const session = computed(() =>
  sessionState.value.kind === 'active' ? sessionState.value.session : null,
);

/** Returns whether the session has this scope. */
export function can(scope: string): boolean {
  return session.value !== null && allows(session.value.scopes, scope);
}

export function canRun(plugin: string, type: 'read' | 'write'): boolean {
  return session.value !== null && allowsCommand(session.value.scopes, plugin, type);
}

/** Logs in with a one-use code of the address, or continues the session of the cookie. */
export async function startSession(): Promise<void> {
  const code = takeCode();
  try {
    if (code) await post('/ui/session', { code });
    sessionState.value = { kind: 'active', session: await get<Session>('/ui/session') };
  } catch (error) {
    sessionState.value = describeFailure(error, code);
  }
}

function describeFailure(error: unknown, code: string | null): SessionState {
  if (!(error instanceof ApiError)) return { kind: 'unreachable', message: String(error) };
  if (error.status >= 500) return { kind: 'unreachable', message: error.message };
  if (!code) return { kind: 'anonymous' };
  return { kind: 'anonymous', message: 'The link was used already or has expired.' };
}

/** Throws `ApiError` if the token is not valid. */
export async function logIn(token: string): Promise<void> {
  await post('/ui/session', { token });
  sessionState.value = { kind: 'active', session: await get<Session>('/ui/session') };
}

export async function logOut(): Promise<void> {
  await remove('/ui/session');
  sessionState.value = { kind: 'anonymous' };
}

/** Removes the code from the address at once, so that it does not stay in the history. */
function takeCode(): string | null {
  const address = new URL(location.href);
  const inFragment = /^#code=([\w-]+)$/.exec(address.hash)?.[1];
  const code = inFragment ?? address.searchParams.get('code');
  if (code === null) return null;
  address.searchParams.delete('code');
  if (inFragment) address.hash = '';
  history.replaceState(null, '', address);
  return code;
}

setUnauthorizedHandler(() => {
  if (sessionState.value.kind === 'active') {
    sessionState.value = { kind: 'anonymous', message: 'The session has ended. Log in again.' };
  }
});
