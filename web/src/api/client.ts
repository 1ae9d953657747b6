// Requests to the gateway, always to the page's own origin.

import { formatJson, type Json, parseLargeJson } from './json';

/** A response that is not a success, with the gateway's explanation. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The connection failed before there was a response. */
export class NetworkError extends Error {}

/** JSON text that is sent as it is, so that the numbers of an edited payload stay exact. */
export class RawJson {
  constructor(readonly text: string) {}
}

type Body = Record<string, Json | RawJson | undefined>;
export type Query = Record<string, string | number | undefined | null>;

let onUnauthorized: () => void = () => {};

export function setUnauthorizedHandler(handler: () => void): void {
  onUnauthorized = handler;
}

/** Returns `path` with the parameters that have a value. */
export function withQuery(path: string, query: Query): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

/** Returns a path from its parts, each escaped: `path('job', id, 'why')`. */
export function path(...parts: (string | number)[]): string {
  return `/${parts.map((part) => encodeURIComponent(String(part))).join('/')}`;
}

export function get<T>(address: string, signal?: AbortSignal): Promise<T> {
  return send<T>('GET', address, undefined, signal);
}

/** Returns the text of a response as it was sent: for a file, whose numbers must not change. */
export function getText(address: string): Promise<string> {
  return request('GET', address);
}

export function post<T = Json>(address: string, body: Body = {}): Promise<T> {
  return send<T>('POST', address, encodeBody(body));
}

export function remove<T = Json>(address: string): Promise<T> {
  return send<T>('DELETE', address);
}

export function encodeBody(body: Body): string {
  const parts = Object.entries(body).flatMap(([key, value]) => {
    if (value === undefined) return [];
    const text = value instanceof RawJson ? value.text : formatJson(value, 0);
    return [`${JSON.stringify(key)}:${text}`];
  });
  return `{${parts.join(',')}}`;
}

async function send<T>(
  method: string,
  address: string,
  body?: string,
  signal?: AbortSignal,
): Promise<T> {
  return (await readBody(await request(method, address, body, signal))) as T;
}

async function request(
  method: string,
  address: string,
  body?: string,
  signal?: AbortSignal,
): Promise<string> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (method !== 'GET') headers['X-Ductile-UI'] = '1';
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const options: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) options.body = body;
  if (signal) options.signal = signal;
  let response: Response;
  let text: string;
  try {
    response = await fetch(address, options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new NetworkError('The gateway does not respond.');
  }
  if (response.ok) return text;
  if (response.status === 401 && address !== '/ui/session') onUnauthorized();
  throw toError(response.status, await readBody(text));
}

async function readBody(text: string): Promise<Json> {
  if (!text) return null;
  try {
    return await parseLargeJson(text);
  } catch {
    return text;
  }
}

/** Most routes answer `{error, code}`, those under /gateway/ `{reason, detail}`. */
function toError(status: number, content: Json): ApiError {
  const fields = typeof content === 'object' && content !== null ? content : {};
  const { error, code, reason, detail } = fields as Record<string, Json>;
  const message = error ?? detail ?? reason ?? `The gateway answered with status ${status}.`;
  return new ApiError(status, String(code ?? reason ?? status), String(message));
}
