// Data of the gateway that a screen shows: fetched once, and again when an event concerns it.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { get } from './client';
import { onEvents, reconnects } from './events';
import type { GatewayEvent } from './types';

export interface Resource<T> {
  data: T | null;
  error: Error | null;
  isLoading: boolean;
  refetch: () => void;
}

/** Default time between two requests of the same resource, however many events arrive. */
const MIN_INTERVAL_MS = 1000;

/**
 * Fetches `address` (null: nothing), keeps the last data while fetching again, and refetches when
 * `concerns` returns true for an event or the connection was restored.
 */
export function useResource<T>(
  address: string | null,
  concerns?: (event: GatewayEvent) => boolean,
  intervalMs = MIN_INTERVAL_MS,
): Resource<T> {
  const data = useSignal<T | null>(null);
  const error = useSignal<Error | null>(null);
  const isLoading = useSignal(address !== null);
  const reload = useRef<() => void>(() => {});
  const filter = useRef(concerns);
  filter.current = concerns;
  const shownAddress = useRef<string | null>(null);

  useEffect(() => {
    if (address === null) return;
    if (shownAddress.current?.split('?')[0] !== address.split('?')[0]) data.value = null;
    shownAddress.current = address;
    const fetcher = new Throttle(async (signal) => {
      isLoading.value = true;
      try {
        data.value = await get<T>(address, signal);
        error.value = null;
      } catch (failure) {
        if (!signal.aborted) error.value = failure as Error;
      } finally {
        if (!signal.aborted) isLoading.value = false;
      }
    }, intervalMs);
    reload.current = () => fetcher.request();
    fetcher.request();
    const stopEvents = onEvents((events) => {
      if (filter.current && events.some(filter.current)) fetcher.request();
    });
    const stopReconnects = reconnects.subscribe((count) => {
      if (count) fetcher.request();
    });
    return () => {
      stopEvents();
      stopReconnects();
      fetcher.stop();
    };
  }, [address, intervalMs, data, error, isLoading]);

  return {
    data: data.value,
    error: error.value,
    isLoading: isLoading.value,
    refetch: () => reload.current(),
  };
}

/** Time between two looks at the progress of running jobs, which has no events. */
const PROGRESS_MS = 5000;

/** Calls `refetch` from time to time while `isActive` and the page is visible. */
export function useRefresh(isActive: boolean, refetch: () => void): void {
  const latest = useRef(refetch);
  latest.current = refetch;
  useEffect(() => {
    if (!isActive) return;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, PROGRESS_MS);
    return () => clearInterval(timer);
  }, [isActive]);
}

/** Runs a request at once, and again at most once per interval if requested meanwhile. */
class Throttle {
  private readonly abort = new AbortController();
  private isBusy = false;
  private isWanted = false;

  constructor(
    private readonly run: (signal: AbortSignal) => Promise<void>,
    private readonly intervalMs: number,
  ) {}

  request(): void {
    this.isWanted = true;
    if (!this.isBusy) void this.loop();
  }

  stop(): void {
    this.abort.abort();
  }

  private async loop(): Promise<void> {
    this.isBusy = true;
    while (this.isWanted && !this.abort.signal.aborted) {
      this.isWanted = false;
      await this.run(this.abort.signal);
      await new Promise((resolve) => setTimeout(resolve, this.intervalMs));
    }
    this.isBusy = false;
  }
}

/** The topics of the gateway that do not belong to one agent or session. */
export const TOPICS = [
  'jobs',
  'pipelines',
  'approvals',
  'events',
  'breakers',
  'flow',
  'relay',
  'alerts',
  'gateway:messages',
  'gateway:violations',
  'gateway:capabilities',
  'gateway:webhooks',
] as const;

type Topic = (typeof TOPICS)[number];

/** Concerns every event of these topics. */
export function ofTopics(...topics: Topic[]): (event: GatewayEvent) => boolean {
  return (event) => topics.some((topic) => topic === event.topic);
}
