import { words } from '../format/text';

/** Which colour a state has; a state that is not listed is neutral. */
const TONES: Record<string, string> = {
  succeeded: 'good',
  delivered: 'good',
  ready: 'good',
  live: 'good',
  closed: 'good',
  active: 'good',
  ok: 'good',
  approved: 'good',
  waiting: 'warn',
  rejected: 'bad',
  expired: 'bad',
  running: 'info',
  pending: 'info',
  retrying: 'warn',
  half_open: 'warn',
  breaker_open: 'bad',
  breaker_half_open: 'warn',
  paused: 'warn',
  draining: 'warn',
  drained: 'warn',
  lost: 'bad',
  firing: 'bad',
  unhealthy: 'warn',
  failed: 'bad',
  timed_out: 'bad',
  dead: 'bad',
  open: 'bad',
  refused: 'bad',
  gone: 'bad',
};

/** A state as text with a coloured mark; the colour is never the only sign. */
export function Badge({ status, label }: { status: string; label?: string }) {
  const tone = TONES[status] ?? 'neutral';
  return <span class={`badge badge-${tone}`}>{label ?? words(status)}</span>;
}
