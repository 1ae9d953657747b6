import { expect, it } from 'vitest';
import source from '../../../src/ductile/store/notices.py?raw';
import { ofTopics, TOPICS } from '../../src/api/resource';

it('knows exactly the topics of the gateway', () => {
  const [, list = ''] = source.match(/^TOPICS = \(([^)]*)\)/m) ?? [];
  expect([...list.matchAll(/"([^"]+)"/g)].map(([, topic]) => topic)).toEqual([...TOPICS]);
});

it('compares whole topics', () => {
  const concerns = ofTopics('gateway:webhooks');
  const event = (topic: string) => ({ id: '1', topic, type: 'x', at: '', data: {} });
  expect(concerns(event('gateway:webhooks'))).toBe(true);
  expect(concerns(event('webhooks'))).toBe(false);
});
