import { describe, expect, it } from 'vitest';
import { LogLines, MAX_LINE } from '../../src/components/log-lines';

function read(...texts: string[]): string[] {
  const lines = new LogLines();
  for (const text of texts) {
    lines.append(text);
    while (lines.scan());
  }
  return Array.from({ length: lines.length }, (_, index) => lines.line(index));
}

describe('LogLines', () => {
  it('has no line for the end of the last one', () => {
    expect(read('a\nb\n')).toEqual(['a', 'b']);
    expect(read('a\n\nb')).toEqual(['a', '', 'b']);
    expect(read('')).toEqual([]);
    expect(read('\n')).toEqual(['']);
  });

  it('gives the same lines wherever the text is cut', () => {
    const text = 'one\ntwo\n\nthree\r\nfour';
    const whole = read(text);
    expect(whole).toEqual(['one', 'two', '', 'three', 'four']);
    for (let cut = 0; cut <= text.length; cut++) {
      expect(read(text.slice(0, cut), text.slice(cut))).toEqual(whole);
    }
  });

  it('cuts a very long line', () => {
    const [line = ''] = read('x'.repeat(MAX_LINE + 10));
    expect(line.length).toBeLessThan(MAX_LINE + 40);
    expect(line).toContain(`${MAX_LINE + 10} characters`);
  });

  it('scans a long text in slices', () => {
    const lines = new LogLines();
    lines.append('0123456789abcde\n'.repeat(100_000));
    let slices = 1;
    while (lines.scan()) slices += 1;
    expect(slices).toBeGreaterThan(5);
    expect(lines.length).toBe(100_000);
    expect(lines.line(99_999)).toBe('0123456789abcde');
  });
});
