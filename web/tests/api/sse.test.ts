import { afterEach, describe, expect, it, vi } from 'vitest';
import { readStream, SseParser, StreamRefused } from '../../src/api/sse';

afterEach(() => vi.unstubAllGlobals());

const STREAM =
  ': following\nid: 41\n\nid: 42\nevent: job.dead\ndata: {"a":\ndata: 1}\n\n: alive\nid: 43\n\n';

describe('SseParser', () => {
  it('reads events with type, id and several lines of data', () => {
    const parser = new SseParser();
    expect(parser.push(STREAM)).toEqual([{ type: 'job.dead', id: '42', data: '{"a":\n1}' }]);
  });

  it('takes the position of a heartbeat', () => {
    const parser = new SseParser();
    parser.push(STREAM);
    expect(parser.lastId).toBe('43');
  });

  it('gives the same result wherever the chunks are cut', () => {
    const whole = new SseParser().push(STREAM);
    for (let cut = 1; cut < STREAM.length; cut++) {
      const parser = new SseParser();
      const events = [...parser.push(STREAM.slice(0, cut)), ...parser.push(STREAM.slice(cut))];
      expect(events).toEqual(whole);
    }
  });

  it('accepts the line ends CRLF', () => {
    expect(new SseParser().push('data: x\r\n\r\n')).toEqual([
      { type: 'message', id: '', data: 'x' },
    ]);
  });
});

describe('readStream', () => {
  const options = () => ({
    address: '/events',
    lastId: '7-41',
    signal: new AbortController().signal,
    onOpen: vi.fn(),
    onEvents: vi.fn(),
    onId: vi.fn(),
  });

  it('resumes after the last id and returns at the end', async () => {
    const fetcher = vi.fn(async (_: string, __: RequestInit) => new Response(STREAM));
    vi.stubGlobal('fetch', fetcher);
    const given = options();
    await readStream(given);
    expect(fetcher.mock.calls[0]?.[1].headers).toMatchObject({ 'Last-Event-ID': '7-41' });
    expect(given.onOpen).toHaveBeenCalledOnce();
    expect(given.onEvents.mock.calls[0]?.[0]).toHaveLength(1);
    expect(given.onId).toHaveBeenLastCalledWith('43');
  });

  it('closes the connection if a callback throws', async () => {
    const fetcher = vi.fn(async (_: string, __: RequestInit) => new Response(STREAM));
    vi.stubGlobal('fetch', fetcher);
    const given = options();
    given.onEvents.mockImplementation(() => {
      throw new Error('a screen failed');
    });
    await expect(readStream(given)).rejects.toThrow('a screen failed');
    expect(fetcher.mock.calls[0]?.[1].signal?.aborted).toBe(true);
    expect(given.signal.aborted).toBe(false);
  });

  it('reports the status of a refused stream', async () => {
    vi.stubGlobal('fetch', async () => new Response('', { status: 503 }));
    const given = options();
    await expect(readStream(given)).rejects.toEqual(new StreamRefused(503));
    expect(given.onOpen).not.toHaveBeenCalled();
  });
});
