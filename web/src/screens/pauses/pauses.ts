// What an operator has paused: plugins, pipelines, or the whole gateway.

import { ofTopics, type Resource, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Pause, Pauses } from '../../api/types';

export interface PauseTarget {
  kind: Pause['kind'];
  /** The plugin or pipeline; null for the gateway. */
  name: string | null;
}

export const GATEWAY: PauseTarget = { kind: 'system', name: null };

export function usePauses(): Resource<Pauses> {
  return useResource<Pauses>(can('jobs:ro') ? '/pauses' : null, ofTopics('flow'));
}

export function pauseOf(found: Pauses | null, { kind, name }: PauseTarget): Pause | undefined {
  return found?.pauses.find((pause) => pause.kind === kind && pause.name === name);
}

export function describeTarget({ kind, name }: PauseTarget): string {
  return kind === 'system' ? 'the gateway' : `the ${kind} ${name}`;
}
