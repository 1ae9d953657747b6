// The last attempt of each plugin since the screen is open, from the event stream alone.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { onEvents } from '../../api/events';
import type { GatewayEvent } from '../../api/types';

export interface LastAttempt {
  status: string;
  completed_at: string;
}

/** Returns the attempts that ended since the first call, by the name of the plugin. */
export function useLastAttempts(): ReadonlyMap<string, LastAttempt> {
  const found = useSignal<ReadonlyMap<string, LastAttempt>>(new Map());
  useEffect(
    () =>
      onEvents((events) => {
        const ended = lastAttempts(events);
        if (ended.size) found.value = new Map([...found.value, ...ended]);
      }),
    [found],
  );
  return found.value;
}

/** Only the end of an attempt has a duration; a retried one is queued again as `job.retrying`. */
export function lastAttempts(events: GatewayEvent[]): Map<string, LastAttempt> {
  const found = new Map<string, LastAttempt>();
  for (const { topic, type, at, data } of events) {
    if (topic !== 'jobs' || typeof data !== 'object' || data === null) continue;
    const { plugin, duration_ms } = data as Record<string, unknown>;
    if (typeof plugin !== 'string' || typeof duration_ms !== 'number') continue;
    found.set(plugin, { status: type.replace(/^job\./, ''), completed_at: at });
  }
  return found;
}

/** Returns the attempt that ended later; `stored` if both are the same. */
export function laterOf(
  stored: LastAttempt | null | undefined,
  announced: LastAttempt | undefined,
): LastAttempt | null {
  if (!stored || !announced) return stored ?? announced ?? null;
  const isNewer = Date.parse(announced.completed_at) > Date.parse(stored.completed_at);
  return isNewer ? announced : stored;
}
