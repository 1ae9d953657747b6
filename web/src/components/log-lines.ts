// The lines of a long text: found in slices, so that the page stays responsive.

const SLICE = 256 * 1024;
/** A line of the page is cut here; the download has all of it. */
export const MAX_LINE = 4000;

export class LogLines {
  private text = '';
  private starts = new Uint32Array(1024);
  private count = 0;
  private scanned = 0;

  /** The number of lines known so far. */
  get length(): number {
    return this.count;
  }

  get content(): string {
    return this.text;
  }

  append(text: string): void {
    this.text += text;
  }

  /** Finds the lines of the next slice; returns whether there is more. */
  scan(): boolean {
    const { text } = this;
    const end = Math.min(text.length, this.scanned + SLICE);
    // A line begins only once it has a character.
    if (this.scanned < end && (this.scanned === 0 || text[this.scanned - 1] === '\n')) {
      this.add(this.scanned);
    }
    for (let place = this.scanned; ; ) {
      place = text.indexOf('\n', place) + 1;
      if (place === 0 || place >= end) break;
      this.add(place);
    }
    this.scanned = end;
    return end < text.length;
  }

  line(index: number): string {
    const start = this.starts[index] ?? 0;
    const next = index + 1 < this.count ? (this.starts[index + 1] ?? 0) - 1 : this.text.length;
    const line = this.text.slice(start, Math.min(next, start + MAX_LINE)).replace(/\r$|\n$/, '');
    return next - start > MAX_LINE ? `${line} … (${next - start} characters)` : line;
  }

  private add(start: number): void {
    if (this.count === this.starts.length) {
      const larger = new Uint32Array(this.starts.length * 2);
      larger.set(this.starts);
      this.starts = larger;
    }
    this.starts[this.count++] = start;
  }
}
