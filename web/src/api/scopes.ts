// Whether the scopes of a session allow a request; the same rules as the gateway's.

const NOUNS = new Set(['plugin', 'jobs', 'events', 'system', 'agents', 'approvals']);

/** Returns whether `granted` includes `wanted`; `rw` implies `ro`, and `*` is every scope. */
export function allows(granted: readonly string[], wanted: string): boolean {
  if (wanted === 'any' || granted.includes('*') || granted.includes(wanted)) return true;
  return wanted.endsWith(':ro') && granted.includes(`${wanted.slice(0, -3)}:rw`);
}

/** Returns whether a command of a plugin may be run. */
export function allowsCommand(
  granted: readonly string[],
  plugin: string,
  type: 'read' | 'write',
): boolean {
  const level = type === 'read' ? 'ro' : 'rw';
  if (allows(granted, `plugin:${level}`)) return true;
  return !NOUNS.has(plugin) && allows(granted, `${plugin}:${level}`);
}
