import { beforeEach, expect, it } from 'vitest';
import { reported, takeProgress } from '../../src/api/progress';
import type { GatewayEvent } from '../../src/api/types';

const REPORT = { percent: 40, message: 'copying', seconds_left: 3 };

function eventOf(topic: string, type: string, data: GatewayEvent['data']): GatewayEvent {
  return { id: '1', topic, type, at: '', data };
}

const progress = eventOf('jobs', 'job.progress', { job_id: 'a', ...REPORT });

beforeEach(() => {
  reported.value = new Map();
});

it('keeps progress by job and hides it from the screens, which would fetch again', () => {
  const other = eventOf('jobs', 'job.started', { job_id: 'b' });
  expect(takeProgress([progress, other])).toEqual([other]);
  expect(reported.value.get('a')).toEqual(REPORT);
});

it('forgets the progress of an attempt that ended', () => {
  takeProgress([progress]);
  takeProgress([eventOf('pipelines', 'pipeline.ended', { job_id: 'a' })]);
  expect(reported.value.has('a')).toBe(true);
  takeProgress([eventOf('jobs', 'job.succeeded', { job_id: 'a' })]);
  expect(reported.value.size).toBe(0);
});
