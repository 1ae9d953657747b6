import { describe, expect, it } from 'vitest';
import { RawJson } from '../../src/api/client';
import { readValues } from '../../src/components/form-dialog';
import { parseDuration } from '../../src/format/duration';
import { reminderRequest } from '../../src/screens/agents/new-reminder-dialog';
import { describeProblem } from '../../src/screens/configuration/config-view';
import { tokenRequest } from '../../src/screens/configuration/tokens';

const FIELDS = [
  { name: 'name', label: 'Name' },
  { name: 'payload', label: 'Payload', isJson: true },
];

function entered(values: Record<string, string>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(values)) form.set(name, value);
  return form;
}

describe('readValues', () => {
  it('leaves out empty fields and keeps JSON as it was typed', () => {
    expect(readValues(FIELDS, entered({ name: '  ' }))).toEqual({});
    const text = '{"id": 9007199254740993}';
    const values = readValues(FIELDS, entered({ name: ' a ', payload: text }));
    expect(values).toEqual({ name: 'a', payload: new RawJson(text) });
  });

  it('names the field that is not JSON', () => {
    expect(() => readValues(FIELDS, entered({ payload: '{' }))).toThrow(/^Payload is not JSON/);
  });
});

describe('requests of forms', () => {
  it('reads a duration as the configuration does', () => {
    expect(['1h30m', '500ms', '2d'].map(parseDuration)).toEqual([5_400_000, 500, 172_800_000]);
    expect(['', '5', '5 m', '-5m', 'soon'].map(parseDuration)).toEqual(Array(5).fill(null));
  });

  it('reminds after a delay, and refuses one that is no duration', () => {
    const values = { agent_id: 'ada', delay: '5m' };
    expect(reminderRequest(values)).toEqual({ agent_id: 'ada', delay_ms: 300_000 });
    expect(reminderRequest({ schedule: '0 9 * * 1' })).toEqual({ schedule: '0 9 * * 1' });
    expect(() => reminderRequest({ delay: 'soon' })).toThrow('soon is not a duration');
  });

  it('makes a token with limits a lease', () => {
    const plain = tokenRequest({ name: 'a', scopes: 'jobs:ro, events:ro' });
    expect(plain.scopes).toEqual(['jobs:ro', 'events:ro']);
    expect(plain.budget).toBeUndefined();
    expect(tokenRequest({ name: 'a', scopes: '*', runs: '20' }).budget).toEqual({ runs: 20 });
  });
});

it('describes a problem of the configuration with its place and what would be right', () => {
  const place = { file: 'config.yaml', line: 3, column: 7, path: 'alerts[0].on' };
  const problem = { ...place, message: 'is wrong', found: "'x'", allowed: 'y', nearest: 'y' };
  expect(describeProblem(problem)).toBe(
    "config.yaml:3:7: alerts[0].on: is wrong; found 'x'; allowed: y; did you mean 'y'?",
  );
});
