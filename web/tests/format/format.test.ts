import { describe, expect, it } from 'vitest';
import { describeCron, describeRule } from '../../src/format/cron';
import { formatDistance, formatDuration } from '../../src/format/duration';
import {
  countOf,
  formatBytes,
  shortId,
  stepName,
  stripTerminalSequences,
} from '../../src/format/text';
import { describeTime, formatTime, withLocalTimes } from '../../src/format/time';

describe('formatDuration', () => {
  it.each([
    [null, '–'],
    [0.4, '0 ms'],
    [840, '840 ms'],
    [2400, '2.4 s'],
    [59_000, '59 s'],
    [200_000, '3 min 20 s'],
    [3_600_000, '1 h'],
    [90_061_000, '1 d 1 h'],
    [86_460_000, '1 d'],
  ])('%s ms is %s', (milliseconds, text) => {
    expect(formatDuration(milliseconds)).toBe(text);
  });
});

describe('formatDistance', () => {
  it.each([
    [300, 'now'],
    [5000, 'in 5 s'],
    [-61_000, '1 min ago'],
    [-90_000_000, '1 d ago'],
  ])('%s ms is %s', (milliseconds, text) => {
    expect(formatDistance(milliseconds)).toBe(text);
  });
});

describe('describeCron', () => {
  it.each([
    ['* * * * *', 'Every minute'],
    ['*/5 * * * *', 'Every 5 minutes'],
    ['30 2 * * *', 'At 02:30'],
    ['0 9,17 * * 1-5', 'At 09:00 and 17:00, Monday to Friday'],
    ['*/5 8-18 * * 1-5', 'Every 5 minutes, 08:00–18:59, Monday to Friday'],
    ['15 * * * *', 'Hourly at minute 15'],
    ['0 */6 * * *', 'Every 6 hours at minute 0'],
    ['0 0 1 * *', 'At 00:00, on day 1 of the month'],
    ['0 0 * 1,7 0', 'At 00:00, on Sunday, in January and July'],
  ])('%s is "%s"', (expression, text) => {
    expect(describeCron(expression)).toBe(text);
  });

  it.each(['0 0 1 * 1', '1-5 * * * *', '0 0 L * *', '* * * *'])(
    'leaves %s as it is, because no short sentence says the same',
    (expression) => {
      expect(describeCron(expression)).toBeNull();
      expect(describeRule(`cron ${expression}`)).toBe(`cron ${expression}`);
    },
  );
});

describe('describeRule', () => {
  it.each([
    ['every 7s', 'Every 7 s'],
    ['every 1h', 'Every hour'],
    ['every 1h30m', 'Every 1 h 30 min'],
    ['after 3s', 'After 3 s'],
    ['at 2026-01-01T00:00:00Z', 'At 2026-01-01T00:00:00Z'],
    ['cron 30 2 * * *', 'At 02:30'],
  ])('%s', (rule, expected) => {
    expect(describeRule(rule)).toBe(expected);
  });
});

describe('texts', () => {
  it('counts', () => {
    expect([countOf(1, 'job'), countOf(1200, 'job'), countOf(2, 'delivery', 'deliveries')]).toEqual(
      ['1 job', '1,200 jobs', '2 deliveries'],
    );
  });

  it('shortens ids to the part that differs', () => {
    expect(shortId('01a1e592-5b03-7078-98fa-02389e83a374')).toBe('9e83a374');
    expect(shortId('short')).toBe('short');
    expect([stepName('copies.1.cloud.copy'), stepName('tell')]).toEqual(['copy', 'tell']);
  });

  it('removes terminal sequences only', () => {
    expect(stripTerminalSequences('\u001b[1;31mred\u001b[0m <b>')).toBe('red <b>');
    expect(stripTerminalSequences('\u001b]0;title\u0007text')).toBe('text');
  });

  it('formats sizes', () => {
    expect([formatBytes(12), formatBytes(2048), formatBytes(10 * 1024 * 1024)]).toEqual([
      '12 B',
      '2.0 KB',
      '10.0 MB',
    ]);
  });

  it("shows the gateway's time next to the viewer's", () => {
    expect(describeTime('2026-11-16T18:15:36Z', 'Asia/Tokyo')).toMatch(
      /Gateway: .*\(Asia\/Tokyo\)/,
    );
    expect(describeTime('2026-11-16T18:15:36Z', 'No/Zone')).toContain('2026-11-16T18:15:36Z');
    expect(describeTime('not a time', undefined)).toBe('not a time');
  });

  it("shows the times within a text in the viewer's zone", () => {
    const at = '2026-11-16T18:15:36.5Z';
    expect(withLocalTimes(`its retry is due at ${at}.`)).toBe(
      `its retry is due at ${formatTime(at)}.`,
    );
    expect(withLocalTimes('not before 2026-11-16 18:15:36+00:00')).toBe(
      `not before ${formatTime('2026-11-16T18:15:36Z')}`,
    );
  });
});
