// Reads server-sent events from a response body.
//
// `EventSource` is not used for two reasons: it delivers only event types that are named in
// advance, and it hides the status of a refused connection.

export interface ServerSentEvent {
  type: string;
  data: string;
  id: string;
}

/** Splits a stream of text into events; `push` accepts chunks cut at any place. */
export class SseParser {
  lastId = '';
  private rest = '';
  private type = '';
  private data: string[] = [];

  push(chunk: string): ServerSentEvent[] {
    const lines = (this.rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    const events: ServerSentEvent[] = [];
    for (const line of lines) {
      if (line) this.readField(line);
      else this.finish(events);
    }
    return events;
  }

  private readField(line: string): void {
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'data') this.data.push(value);
    else if (name === 'event') this.type = value;
    else if (name === 'id') this.lastId = value;
  }

  private finish(events: ServerSentEvent[]): void {
    if (this.data.length) {
      events.push({ type: this.type || 'message', data: this.data.join('\n'), id: this.lastId });
    }
    this.type = '';
    this.data = [];
  }
}

export class StreamRefused extends Error {
  constructor(readonly status: number) {
    super(`the stream was refused with status ${status}`);
  }
}

export interface StreamOptions {
  address: string;
  /** Resume after this id. */
  lastId: string;
  signal: AbortSignal;
  onOpen: () => void;
  onEvents: (events: ServerSentEvent[]) => void;
  /** Called with the newest id, also by heartbeats without an event. */
  onId: (id: string) => void;
}

/** The gateway sends a heartbeat every 15 s; a longer silence means a dead connection. */
const MAX_SILENCE_MS = 40_000;

/** Reads one connection until it ends; throws if it was refused or lost. */
export async function readStream(options: StreamOptions): Promise<void> {
  const abort = new AbortController();
  try {
    await readConnection(options, abort);
  } finally {
    // Also after an exception of a callback: the next connection must not be a second one.
    abort.abort();
  }
}

async function readConnection(options: StreamOptions, abort: AbortController): Promise<void> {
  const headers: Record<string, string> = { Accept: 'text/event-stream' };
  if (options.lastId) headers['Last-Event-ID'] = options.lastId;
  const response = await fetch(options.address, {
    headers,
    credentials: 'same-origin',
    cache: 'no-store',
    signal: AbortSignal.any([options.signal, abort.signal]),
  });
  if (!response.ok || !response.body) throw new StreamRefused(response.status);
  options.onOpen();
  const parser = new SseParser();
  parser.lastId = options.lastId;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const timer = setTimeout(() => abort.abort(), MAX_SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const events = parser.push(value);
    options.onId(parser.lastId);
    if (events.length) options.onEvents(events);
  }
}
