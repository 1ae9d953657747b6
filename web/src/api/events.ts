// The page's one connection to the event stream, and who listens to it.

import { signal } from '@preact/signals';
import { parseJson } from './json';
import { reported, takeProgress } from './progress';
import { can, session, startSession } from './session';
import { readStream, type ServerSentEvent, StreamRefused } from './sse';
import type { GatewayEvent } from './types';

export type Connection = 'off' | 'connecting' | 'live' | 'disconnected';
type Listener = (events: GatewayEvent[]) => void;

export const connection = signal<Connection>('off');
/** Counts the times that the stream was opened: what was fetched before may be out of date. */
export const connects = signal(0);
/** When the connection was lost, in milliseconds. */
export const disconnectedAt = signal<number | null>(null);

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 10_000;
/** `GET /events` refuses a subscriber over the limit. */
const REFUSED_FOR_GOOD = new Set([401, 403, 404]);

const listeners = new Set<Listener>();
let lastId = '';
let running: AbortController | null = null;
let wake: () => void = () => {};

/** Calls `listener` with each batch of events until the returned function is called. */
export function onEvents(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Connects, and reconnects after each loss until `stopEvents`. */
export function startEvents(): void {
  if (running || !can('events:ro')) return;
  running = new AbortController();
  connection.value = 'connecting';
  void follow(running.signal);
}

export function stopEvents(): void {
  running?.abort();
  running = null;
  lastId = '';
  connection.value = 'off';
}

/** Tries to connect now instead of after the delay. */
export function reconnectNow(): void {
  wake();
}

async function follow(signal: AbortSignal): Promise<void> {
  let delay = FIRST_DELAY_MS;
  while (!signal.aborted) {
    try {
      await readStream({
        address: addressOfStream(),
        lastId,
        signal,
        onOpen: () => {
          delay = FIRST_DELAY_MS;
          markLive();
        },
        onEvents: publish,
        onId: (id) => {
          lastId = id;
        },
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof StreamRefused && REFUSED_FOR_GOOD.has(error.status)) {
        await handleRefusal();
        return;
      }
    }
    if (signal.aborted) return;
    markLost();
    await pause(delay);
    delay = Math.min(delay * 2, MAX_DELAY_MS);
  }
}

/** With the progress of jobs and what changes without an event, as far as the scopes allow. */
function addressOfStream(): string {
  const changes = [can('agents:ro') && ['agents'], can('system:ro') && ['nodes', 'health']];
  const query = new URLSearchParams();
  if (can('jobs:ro')) query.set('progress', 'true');
  for (const kind of changes.flatMap((kinds) => kinds || [])) query.append('changes', kind);
  return query.size ? `/events?${query}` : '/events';
}

async function handleRefusal(): Promise<void> {
  running = null;
  connection.value = 'off';
  if (session.value) await startSession();
}

function markLive(): void {
  connection.value = 'live';
  disconnectedAt.value = null;
  // The first time too: an event after a screen's first request and before this is not in the stream.
  connects.value += 1;
}

function markLost(): void {
  reported.value = new Map();
  if (connection.value !== 'disconnected') disconnectedAt.value = Date.now();
  connection.value = 'disconnected';
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function publish(received: ServerSentEvent[]): void {
  const events = takeProgress(received.map(toEvent));
  if (!events.length) return;
  for (const listener of listeners) listener(events);
}

function toEvent(event: ServerSentEvent): GatewayEvent {
  const content = parseJson(event.data) as unknown as GatewayEvent;
  // The number of the notice: the id of the stream is a position, which differs on PostgreSQL.
  return { ...content, id: content.id === undefined ? '' : String(content.id) };
}

addEventListener('online', () => reconnectNow());
