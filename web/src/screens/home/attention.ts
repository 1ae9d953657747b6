// What needs the operator, from the gateway's own answers.

import type {
  AlertRules,
  Approvals,
  ClusterNodes,
  Deliveries,
  Health,
  JobFailure,
  JobFailures,
  Overview,
  Pauses,
  Schedules,
  Status,
} from '../../api/types';
import { capitalized, countOf, shortId, stepName } from '../../format/text';

export interface AttentionItem {
  id: string;
  kind: string;
  /** How urgent: `bad` has failed, `warn` may fail. */
  tone: 'bad' | 'warn';
  title: string;
  why: string;
  href: string;
  at: string | null;
  /** The jobs that an operator may leave as they are. */
  failure?: JobFailure;
}

interface Sources {
  overview: Overview | null;
  pauses: Pauses | null;
  failures: JobFailures | null;
  schedules: Schedules | null;
  status: Status | null;
  deliveries: Deliveries | null;
  approvals: Approvals | null;
  alerts: AlertRules | null;
  /** With status 503 it is an error. */
  health: Health | Error | null;
  nodes: ClusterNodes | null;
}

/** States that are wanted, or that another item reports: breakers and plugins. */
const QUIET_SCHEDULES = /^(active|paused|done|exhausted|breaker_.*|refused|unhealthy|disabled)$/;

export function findAttention(sources: Sources): AttentionItem[] {
  return [
    ...failingParts(sources.health),
    ...lostNodes(sources.nodes),
    ...waitingApprovals(sources.approvals),
    ...firingAlerts(sources.alerts),
    ...pausedParts(sources.pauses),
    ...openBreakers(sources.overview),
    ...heldPlugins(sources.overview, sources.status),
    ...failedJobs(sources.failures),
    ...brokenSchedules(sources.schedules),
    ...deadDeliveries(sources.deliveries),
  ];
}

/** The part that `firingAlerts` reports. */
const UNDELIVERED = 'undelivered alerts';

/** What of the gateway itself does not work. */
function failingParts(health: Health | Error | null): AttentionItem[] {
  const failing =
    health instanceof Error
      ? [{ part: 'The gateway cannot work', error: health.message, critical: true }]
      : (health?.failing ?? []);
  return failing
    .filter(({ part }) => part !== UNDELIVERED)
    .map(({ part, error, critical }) => ({
      id: `part ${part}`,
      kind: 'Gateway',
      tone: critical ? ('bad' as const) : ('warn' as const),
      title: capitalized(part),
      why: error,
      href: '/configuration?tab=nodes',
      at: null,
    }));
}

function lostNodes(found: ClusterNodes | null): AttentionItem[] {
  return (found?.nodes ?? [])
    .filter(({ state }) => state === 'lost')
    .map(({ name, seen_at }) => ({
      id: `node ${name}`,
      kind: 'Node',
      tone: 'bad' as const,
      title: name,
      why: 'It does not report itself. Start it again, or let the others forget it.',
      href: '/configuration?tab=nodes',
      at: seen_at,
    }));
}

function openBreakers(overview: Overview | null): AttentionItem[] {
  return (overview?.breakers ?? []).map(({ plugin, command, state, opened_at }) => ({
    id: `breaker ${plugin} ${command}`,
    kind: 'Breaker',
    tone: state === 'open' ? 'bad' : 'warn',
    title: `${plugin}.${command}`,
    why: `The circuit breaker is ${state.replace('_', ' ')}: its schedule does not fire.`,
    href: `/plugins/${encodeURIComponent(plugin)}?tab=breakers`,
    at: opened_at,
  }));
}

function heldPlugins(overview: Overview | null, status: Status | null): AttentionItem[] {
  const held = Object.entries(overview?.held ?? {});
  const sick = (status?.plugins ?? []).flatMap(({ name, health }): [string, string][] =>
    health && !health.healthy ? [[name, health.detail ?? 'Its health command failed.']] : [],
  );
  const reasons = new Map([...sick, ...held]);
  return [...reasons].map(([plugin, why]) => ({
    id: `plugin ${plugin}`,
    kind: 'Plugin',
    tone: 'bad',
    title: plugin,
    why,
    href: `/plugins/${encodeURIComponent(plugin)}`,
    at: null,
  }));
}

function waitingApprovals(found: Approvals | null): AttentionItem[] {
  return (found?.approvals ?? []).map((approval) => ({
    id: `approval ${approval.id}`,
    kind: 'Approval',
    tone: 'warn',
    title: approval.title,
    why: approval.description || `${approval.pipeline} waits at ${approval.step}.`,
    href: approval.instance_id ? `/runs/${approval.instance_id}` : '/approvals?status=waiting',
    at: approval.created_at,
  }));
}

function firingAlerts(found: AlertRules | null): AttentionItem[] {
  const [lost] = found?.undelivered ?? [];
  const firing = (found?.alerts ?? [])
    .filter(({ state, silenced_until }) => state === 'firing' && !silenced_until)
    .map(({ rule, last_error, since }) => ({
      id: `alert ${rule}`,
      kind: 'Alert',
      tone: 'bad' as const,
      title: rule,
      why: last_error ?? 'It is firing.',
      href: `/alerts?name=${encodeURIComponent(rule)}`,
      at: since,
    }));
  if (!lost) return firing;
  const unreached = {
    id: 'undelivered alerts',
    kind: 'Alert',
    tone: 'bad' as const,
    title: 'A message did not arrive',
    why: `${lost.rule} to ${lost.to}: ${lost.error ?? 'it failed.'}`,
    href: '/alerts',
    at: lost.created_at,
  };
  return [unreached, ...firing];
}

/** The pause of the gateway has a notice of its own. */
function pausedParts(found: Pauses | null): AttentionItem[] {
  return (found?.pauses ?? []).flatMap(({ kind, name, reason, paused_by, paused_at }) =>
    name === null
      ? []
      : {
          id: `pause ${kind} ${name}`,
          kind: `Paused ${kind}`,
          tone: 'warn' as const,
          title: name,
          why: `${paused_by} paused it${reason ? `: ${reason}` : '.'}`,
          href: `/${kind}s/${encodeURIComponent(name)}`,
          at: paused_at,
        },
  );
}

/** A step that waits has no plugin that an operator knows. */
function nameOf({ plugin, command, pipeline, step_path }: JobFailure): string {
  const isWait = plugin === 'core.wait' && pipeline;
  return isWait ? `${pipeline} · ${stepName(step_path)}` : `${plugin}.${command}`;
}

/** The gateway counts no more jobs of a command. */
const MAX_COUNTED = 1000;

function failedJobs(found: JobFailures | null): AttentionItem[] {
  const items = (found?.failures ?? []).map((failure): AttentionItem => {
    const { status, plugin, command, pipeline, jobs, job_id, last_error, completed_at } = failure;
    const name = nameOf(failure);
    const isOne = jobs === 1;
    const count = countOf(jobs, `${status} job`);
    const query = new URLSearchParams({ status, plugin, command, acknowledged: 'false' });
    if (plugin === 'core.wait') query.set('pipeline', pipeline);
    return {
      id: `${status} ${name}`,
      kind: jobs < MAX_COUNTED ? count : count.replace(' ', '+ '),
      tone: 'bad',
      title: isOne ? `${name} ${shortId(job_id)}` : name,
      why: last_error ?? 'It failed without a message.',
      href: isOne ? `/jobs/${job_id}` : `/jobs?${query}`,
      at: completed_at,
      failure,
    };
  });
  if (!found?.more) return items;
  const more: AttentionItem = {
    id: 'more failures',
    kind: 'Dead jobs',
    tone: 'bad',
    title: 'Other commands',
    why: `More than ${items.length} commands have failed or dead jobs.`,
    href: '/jobs?status=dead&acknowledged=false',
    at: null,
  };
  return [...items, more];
}

function brokenSchedules(found: Schedules | null): AttentionItem[] {
  return (found?.schedules ?? [])
    .filter(({ state }) => !QUIET_SCHEDULES.test(state))
    .map(({ plugin, schedule, state, reason, last_fire }) => ({
      id: `schedule ${plugin}/${schedule}`,
      kind: 'Schedule',
      tone: 'warn',
      title: `${plugin}/${schedule}`,
      why: reason ?? `It does not fire: ${state.replaceAll('_', ' ')}.`,
      href: `/schedules?name=${encodeURIComponent(`${plugin}/${schedule}`)}`,
      at: last_fire,
    }));
}

function deadDeliveries(found: Deliveries | null): AttentionItem[] {
  const rows = found?.deliveries ?? [];
  const [newest] = rows;
  if (!newest) return [];
  return [
    {
      id: 'deliveries',
      kind: 'Deliveries',
      tone: 'bad',
      title: `${countOf(rows.length, 'dead delivery', 'dead deliveries')}`,
      why: newest.error_detail ?? 'The receiver did not accept them.',
      href: '/webhooks?tab=deliveries&status=dead',
      at: newest.last_attempted_at,
    },
  ];
}
