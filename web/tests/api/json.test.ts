import { describe, expect, it } from 'vitest';
import { formatJson, parseJson, parseLargeJson } from '../../src/api/json';

describe('parseJson', () => {
  it('keeps integers beyond 2^53', () => {
    expect(parseJson('{"id": 9007199254740993}')).toEqual({ id: 9007199254740993n });
    expect(parseJson('[-9223372036854775808]')).toEqual([-9223372036854775808n]);
  });

  it('reads safe integers and decimals as numbers next to a long one', () => {
    expect(parseJson('[9007199254740993, 12, 0.1234567890123456, 1e20, -0.5]')).toEqual([
      9007199254740993n,
      12,
      0.1234567890123456,
      1e20,
      -0.5,
    ]);
  });

  it('does not treat digits inside a text as a number', () => {
    expect(parseJson('{"a": "9007199254740993"}')).toEqual({ a: '9007199254740993' });
  });

  it('reads escapes, nesting and literals exactly as JSON.parse does', () => {
    const text =
      ' {"a": [true, false, null, {}], "q\\"": "\\\\", "u": "\\u00e9\\n", "n": 1234567890123456} ';
    expect(parseJson(text)).toEqual(JSON.parse(text));
  });

  it.each(['', '{', '[1,]', '{"a" 1}', '1234567890123456 x', '["1234567890123456]', '[nul]'])(
    'refuses %j',
    (text) => {
      expect(() => parseJson(text)).toThrow(SyntaxError);
    },
  );

  it('does not let a key change the prototype', () => {
    const value = parseJson('{"__proto__": {"x": 1}, "n": 12345678901234567}') as object;
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(Object.keys(value)).toEqual(['__proto__', 'n']);
  });
});

describe('parseLargeJson', () => {
  const filler = 'x'.repeat(512 * 1024);

  it('reads a large text as JSON.parse does', async () => {
    const value = { filler, list: [1, 2.5, null] };
    expect(await parseLargeJson(JSON.stringify(value))).toEqual(value);
  });

  it('keeps an integer exact wherever it is', async () => {
    for (let cut = 0; cut < 20; cut++) {
      const text = `["${filler.slice(cut + 10)}",9007199254740993]`;
      expect(((await parseLargeJson(text)) as unknown[])[1]).toBe(9007199254740993n);
    }
  });

  it('refuses what is not JSON', async () => {
    await expect(parseLargeJson(filler)).rejects.toThrow(SyntaxError);
  });
});

describe('formatJson', () => {
  it.each(['{"id":9007199254740993,"list":[1,"a",null,true,{}],"empty":[]}', '"text"', '-1.5'])(
    'writes %s as it was read',
    (text) => {
      expect(formatJson(parseJson(text), 0)).toBe(text);
    },
  );

  it('indents as JSON.stringify does', () => {
    const value = { a: [1, { b: 'c' }], d: {} };
    expect(formatJson(value)).toBe(JSON.stringify(value, null, 2));
  });
});
