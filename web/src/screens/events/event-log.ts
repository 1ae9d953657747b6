// The newest events, kept while the page is open. A burst changes the page once per frame.

import { signal } from '@preact/signals';
import { get } from '../../api/client';
import { onEvents } from '../../api/events';
import type { GatewayEvent, Notices } from '../../api/types';

const MAX_EVENTS = 2000;
const INITIAL_EVENTS = 200;
const REFRESH_MS = 250;

/** Newest first. */
export const eventLog = signal<GatewayEvent[]>([]);
export const isPaused = signal(false);
/** Events that arrived since the view was paused. */
export const heldBack = signal(0);

let pending: GatewayEvent[] = [];
let isScheduled = false;

/** Loads the newest events, also those since the last visit, and adds those of the stream. */
export function startEventLog(): () => void {
  void loadNewest();
  return onEvents((events) => {
    const stored = events.filter(({ id }) => id);
    if (!stored.length) return;
    pending.push(...stored);
    if (isScheduled) return;
    isScheduled = true;
    setTimeout(show, REFRESH_MS);
  });
}

async function loadNewest(): Promise<void> {
  try {
    const { notices } = await get<Notices>(`/notices?last=${INITIAL_EVENTS}`);
    const found = notices.map(({ id, topic, type, created_at, payload }) => ({
      id: String(id),
      topic,
      type,
      at: created_at,
      data: payload as GatewayEvent['data'],
    }));
    merge(found);
  } catch {
    // The stream alone still works; the connection's state is shown by the shell.
  }
}

function show(): void {
  isScheduled = false;
  if (isPaused.value) {
    heldBack.value = pending.length;
    pending = pending.slice(-MAX_EVENTS);
    return;
  }
  merge(pending);
  pending = [];
}

function merge(events: GatewayEvent[]): void {
  const known = new Set(eventLog.value.map(({ id }) => id));
  const added = events.filter(({ id }) => !known.has(id)).reverse();
  if (!added.length) return;
  const all = [...added, ...eventLog.value].sort((a, b) => Number(b.id) - Number(a.id));
  eventLog.value = all.slice(0, MAX_EVENTS);
}

export function setPaused(value: boolean): void {
  isPaused.value = value;
  heldBack.value = 0;
  if (!value) show();
}
