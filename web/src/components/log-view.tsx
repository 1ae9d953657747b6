// A windowed list of log lines: only the visible lines are in the document.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { countOf, formatBytes, stripTerminalSequences } from '../format/text';
import { LogLines } from './log-lines';
import { saveFile } from './save-file';

const LINE_HEIGHT = 18;
const MARGIN_LINES = 20;
/** Browsers limit the height of an element; a longer log is scrolled in proportion. */
const MAX_HEIGHT = 8_000_000;

interface LogViewProps {
  text: string;
  /** The name of the downloaded file. */
  name: string;
  /** More text may follow: keep the end in view. */
  isLive?: boolean;
}

export function LogView({ text, name, isLive = false }: LogViewProps) {
  const lines = useRef(new LogLines());
  const box = useRef<HTMLDivElement>(null);
  const count = useSignal(0);
  const first = useSignal(0);
  const follows = useSignal(isLive);

  useEffect(() => {
    let isStopped = false;
    if (!text.startsWith(lines.current.content)) lines.current = new LogLines();
    const found = lines.current;
    found.append(text.slice(found.content.length));
    const step = () => {
      if (isStopped) return;
      const isMore = found.scan();
      count.value = found.length;
      if (isMore) setTimeout(step);
      else if (follows.value) scrollToEnd(box.current);
    };
    step();
    return () => {
      isStopped = true;
    };
  }, [text, count, follows]);

  const total = count.value;
  const height = Math.min(total * LINE_HEIGHT, MAX_HEIGHT);
  const visible = Math.ceil((box.current?.clientHeight || 480) / LINE_HEIGHT) + 2 * MARGIN_LINES;
  const start = Math.max(0, Math.min(first.value - MARGIN_LINES, total - visible));
  const end = Math.min(total, start + visible);

  const onScroll = (element: HTMLDivElement) => {
    const room = element.scrollHeight - element.clientHeight;
    const share = room > 0 ? element.scrollTop / room : 0;
    const lastFirst = Math.max(0, total - element.clientHeight / LINE_HEIGHT);
    first.value = Math.round(share * lastFirst);
    follows.value = isLive && room - element.scrollTop < 2 * LINE_HEIGHT;
  };

  if (!text) {
    return <p class="muted log-empty">{isLive ? 'Waiting for output …' : 'It printed nothing.'}</p>;
  }
  const isScaled = total * LINE_HEIGHT > MAX_HEIGHT;
  const top = isScaled
    ? (box.current?.scrollTop ?? 0) - (first.value - start) * LINE_HEIGHT
    : start * LINE_HEIGHT;
  return (
    <div class="log">
      <div class="log-bar">
        <span>
          {countOf(total, 'line')} · {formatBytes(text.length)}
          {isLive && (follows.value ? ' · following' : ' · scroll to the end to follow')}
        </span>
        <button type="button" class="quiet" onClick={() => saveFile(text, name, 'text/plain')}>
          Download
        </button>
      </div>
      <section
        class="log-box"
        ref={box}
        style={{ height: `min(60vh, ${Math.min(height, 2000) + LINE_HEIGHT}px)` }}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard.
        tabIndex={0}
        aria-label="Log"
        onScroll={(event) => onScroll(event.currentTarget as HTMLDivElement)}
      >
        <div class="log-space" style={{ height: `${height}px` }}>
          <div class="log-lines" style={{ transform: `translateY(${Math.max(0, top)}px)` }}>
            {Array.from({ length: Math.max(0, end - start) }, (_, offset) => (
              <LogLine key={start + offset} number={start + offset + 1} lines={lines.current} />
            ))}
          </div>
        </div>
      </section>
    </div>
  );
}

function LogLine({ number, lines }: { number: number; lines: LogLines }) {
  return (
    <div class="log-line">
      <span class="log-number" aria-hidden="true">
        {number}
      </span>
      <span>{stripTerminalSequences(lines.line(number - 1))}</span>
    </div>
  );
}

function scrollToEnd(element: HTMLElement | null): void {
  requestAnimationFrame(() => {
    if (element) element.scrollTop = element.scrollHeight;
  });
}
