// Data of the gateway that a screen shows: fetched once, and again when an event concerns it.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { get } from './client';
import { connects, onEvents } from './events';
import type { Json } from './json';
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
 * `concerns` returns true for an event or the event stream was opened.
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
        const found = await get<T>(address, signal);
        // The address may have changed after the response arrived.
        if (signal.aborted) return;
        data.value = found;
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
    const connectsBefore = connects.peek();
    const stopConnects = connects.subscribe((count) => {
      if (count !== connectsBefore) fetcher.request();
    });
    return () => {
      stopEvents();
      stopConnects();
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

/** Returns whether an event is about one of these jobs, or one that they start; null: any job. */
export function concernsJobs(
  { topic, data }: GatewayEvent,
  jobs: readonly { job_id?: string | null }[] | null,
): boolean {
  if (topic !== 'jobs' || !jobs) return topic === 'jobs';
  const { job_id, parent_job_id } = (data ?? {}) as Record<string, Json>;
  return jobs.some(({ job_id: id }) => id && (id === job_id || id === parent_job_id));
}

/** Concerns what changes without a stored event: see `changes` of `GET /events`. */
export function ofChanges(kind: 'agents' | 'nodes' | 'health'): (event: GatewayEvent) => boolean {
  return ({ type }) => type === `${kind}.changed`;
}

/** Concerns every event of these topics. */
export function ofTopics(...topics: Topic[]): (event: GatewayEvent) => boolean {
  return (event) => topics.some((topic) => topic === event.topic);
}
