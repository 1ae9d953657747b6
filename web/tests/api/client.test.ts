import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  ApiError,
  encodeBody,
  get,
  getText,
  NetworkError,
  path,
  post,
  RawJson,
  setUnauthorizedHandler,
  withQuery,
} from '../../src/api/client';

afterEach(() => vi.unstubAllGlobals());

function respond(status: number, text: string) {
  const fetcher = vi.fn(async (_address: string, _options: RequestInit) => {
    return new Response(text, { status });
  });
  vi.stubGlobal('fetch', fetcher);
  return fetcher;
}

describe('addresses', () => {
  it('escapes each part of a path', () => {
    expect(path('plugin', 'a/b', 'run me')).toBe('/plugin/a%2Fb/run%20me');
  });

  it('leaves out parameters without a value', () => {
    expect(withQuery('/jobs', { status: 'dead', plugin: '', limit: 0, before: null })).toBe(
      '/jobs?status=dead&limit=0',
    );
  });
});

describe('requests', () => {
  it('sends the header of the page with every unsafe request', async () => {
    const fetcher = respond(202, '{"job_id": "x"}');
    await post('/plugin/a/poll', { dry_run: true });
    const options = fetcher.mock.calls[0]?.[1];
    expect(options?.method).toBe('POST');
    expect(options?.headers).toMatchObject({ 'X-Ductile-UI': '1' });
    expect(options?.credentials).toBe('same-origin');
  });

  it('does not send it with a read', async () => {
    const fetcher = respond(200, '{}');
    await get('/jobs');
    expect(fetcher.mock.calls[0]?.[1].headers).not.toHaveProperty('X-Ductile-UI');
  });

  it('sends edited JSON as it was typed', () => {
    const body = { payload: new RawJson('{"id": 9007199254740993}'), step: undefined };
    expect(encodeBody(body)).toBe('{"payload":{"id": 9007199254740993}}');
  });

  it('explains errors of both forms', async () => {
    respond(409, '{"error": "the job runs", "code": "conflict"}');
    await expect(get('/job/1')).rejects.toMatchObject({ message: 'the job runs', status: 409 });
    respond(404, '{"status": "error", "reason": "webhook_not_found", "detail": "no webhook 1"}');
    await expect(get('/gateway/x')).rejects.toMatchObject({
      message: 'no webhook 1',
      code: 'webhook_not_found',
    });
    respond(502, '<html>');
    await expect(get('/jobs')).rejects.toThrow(ApiError);
  });

  it('returns a file as it was sent, or why there is none', async () => {
    respond(200, '{"id": 9007199254740993, "share": 1.0}');
    await expect(getText('/job/1/bundle')).resolves.toBe('{"id": 9007199254740993, "share": 1.0}');
    respond(409, '{"error": "the bundle would exceed 32 MiB", "code": "refused"}');
    await expect(getText('/job/1/bundle')).rejects.toThrow('the bundle would exceed 32 MiB');
  });

  it('reports a gateway that does not respond', async () => {
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('Failed to fetch')));
    await expect(get('/jobs')).rejects.toThrow(NetworkError);
  });

  it('reports the end of the session, but not a refused login', async () => {
    const ended = vi.fn();
    setUnauthorizedHandler(ended);
    respond(401, '{"error": "no", "code": "unauthorized"}');
    await expect(post('/ui/session', { token: 'x' })).rejects.toThrow('no');
    expect(ended).not.toHaveBeenCalled();
    await expect(get('/jobs')).rejects.toThrow('no');
    expect(ended).toHaveBeenCalledOnce();
  });
});
