// The page's one connection to the event stream, and who listens to it.

import { signal } from '@preact/signals';
import { parseJson } from './json';
import { can, session, startSession } from './session';
import { readStream, type ServerSentEvent, StreamRefused } from './sse';
import type { GatewayEvent } from './types';

export type Connection = 'off' | 'connecting' | 'live' | 'disconnected';
type Listener = (events: GatewayEvent[]) => void;

export const connection = signal<Connection>('off');
/** Changes when the connection is restored: everything on the page may be out of date. */
export const reconnects = signal(0);
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
        address: '/events',
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

async function handleRefusal(): Promise<void> {
  running = null;
  connection.value = 'off';
  if (session.value) await startSession();
}

function markLive(): void {
  const wasLost = connection.value === 'disconnected';
  connection.value = 'live';
  disconnectedAt.value = null;
  if (wasLost) reconnects.value += 1;
}

function markLost(): void {
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
  const events = received.map(toEvent);
  for (const listener of listeners) listener(events);
}

function toEvent(event: ServerSentEvent): GatewayEvent {
  const content = parseJson(event.data) as unknown as GatewayEvent;
  // The number of the notice: the id of the stream is a position, which differs on PostgreSQL.
  return { ...content, id: String(content.id) };
}

addEventListener('online', () => reconnectNow());
