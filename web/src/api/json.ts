// Reads and writes JSON without changing integers: one that a JavaScript number cannot hold
// exactly becomes a BigInt.

export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** What the gateway shows instead of a secret. */
export const REDACTED = '[REDACTED]';

/** Digits that a number may lose; only a text with such a run needs the exact reader. */
const LONG_NUMBER = /[0-9]{16}/;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
const SPACE = /[ \t\r\n]*/y;
const LITERALS: readonly [string, null | boolean][] = [
  ['null', null],
  ['true', true],
  ['false', false],
];

/** Parses JSON; throws `SyntaxError` on anything that is not JSON. */
export function parseJson(text: string): Json {
  return LONG_NUMBER.test(text) ? new ExactReader(text).readDocument() : JSON.parse(text);
}

const LARGE = 512 * 1024;

/** Parses JSON of any size; a large text is read in several tasks, so that the page can respond. */
export async function parseLargeJson(text: string): Promise<Json> {
  if (text.length <= LARGE) return parseJson(text);
  let isExact = false;
  for (let place = 0; place < text.length && !isExact; place += LARGE) {
    await nextTask();
    // A run of digits may begin in one slice and end in the next.
    isExact = LONG_NUMBER.test(text.slice(Math.max(0, place - 16), place + LARGE));
  }
  await nextTask();
  return isExact ? new ExactReader(text).readDocument() : JSON.parse(text);
}

function nextTask(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

/** Writes JSON that `parseJson` reads back unchanged; `indent` spaces per level, or one line. */
export function formatJson(value: Json | undefined, indent = 2): string {
  return write(value ?? null, indent, '');
}

function write(value: Json, indent: number, margin: string): string {
  if (typeof value === 'bigint') return String(value);
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const isList = Array.isArray(value);
  const inner = margin + ' '.repeat(indent);
  const gap = indent ? ' ' : '';
  const parts = isList
    ? value.map((item) => write(item, indent, inner))
    : Object.entries(value).map(
        ([key, item]) => `${JSON.stringify(key)}:${gap}${write(item, indent, inner)}`,
      );
  const [open, close] = isList ? '[]' : '{}';
  if (!parts.length) return `${open}${close}`;
  if (!indent) return `${open}${parts.join(',')}${close}`;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${margin}${close}`;
}

class ExactReader {
  private place = 0;

  constructor(private readonly text: string) {}

  readDocument(): Json {
    const value = this.readValue();
    this.skipSpace();
    if (this.place < this.text.length) this.fail();
    return value;
  }

  private readValue(): Json {
    this.skipSpace();
    const first = this.text[this.place];
    if (first === '{') return this.readObject();
    if (first === '[') return this.readList();
    if (first === '"') return this.readString();
    for (const [word, value] of LITERALS) {
      if (this.text.startsWith(word, this.place)) {
        this.place += word.length;
        return value;
      }
    }
    return this.readNumber();
  }

  private readNumber(): number | bigint {
    const digits = this.match(NUMBER);
    const value = Number(digits);
    return /^-?[0-9]+$/.test(digits) && !Number.isSafeInteger(value) ? BigInt(digits) : value;
  }

  private readString(): string {
    const start = this.place;
    if (this.text[start] !== '"') this.fail();
    let end = start;
    do {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) this.fail();
    } while (this.isEscaped(end));
    this.place = end + 1;
    return JSON.parse(this.text.slice(start, this.place)) as string;
  }

  /** Returns whether an odd number of backslashes is in front of a character. */
  private isEscaped(place: number): boolean {
    let first = place;
    while (this.text[first - 1] === '\\') first -= 1;
    return (place - first) % 2 === 1;
  }

  private readList(): Json[] {
    const items: Json[] = [];
    this.readItems(']', () => items.push(this.readValue()));
    return items;
  }

  private readObject(): { [key: string]: Json } {
    const items: [string, Json][] = [];
    this.readItems('}', () => {
      this.skipSpace();
      const key = this.readString();
      this.expect(':');
      items.push([key, this.readValue()]);
    });
    return Object.fromEntries(items);
  }

  private readItems(end: string, readItem: () => void): void {
    this.place += 1;
    this.skipSpace();
    if (this.text[this.place] === end) {
      this.place += 1;
      return;
    }
    for (;;) {
      readItem();
      this.skipSpace();
      if (this.text[this.place] === end) break;
      this.expect(',');
    }
    this.place += 1;
  }

  private expect(mark: string): void {
    this.skipSpace();
    if (this.text[this.place] !== mark) this.fail();
    this.place += 1;
  }

  private skipSpace(): void {
    this.match(SPACE);
  }

  private match(pattern: RegExp): string {
    pattern.lastIndex = this.place;
    const found = pattern.exec(this.text);
    if (found === null) this.fail();
    this.place += found[0].length;
    return found[0];
  }

  private fail(): never {
    throw new SyntaxError(`unexpected text at character ${this.place + 1}`);
  }
}
