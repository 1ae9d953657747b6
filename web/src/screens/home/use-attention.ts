import { ApiError } from '../../api/client';
import { ofChanges, ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type {
  AlertRules,
  Approvals,
  ClusterNodes,
  Deliveries,
  Health,
  JobFailures,
  Overview,
  Pauses,
  Schedules,
  Status,
} from '../../api/types';
import { LAST_STATUS } from '../plugins/health-checks';
import { type AttentionItem, findAttention } from './attention';

const ofHealth = ofChanges('health');
const ofNodes = ofChanges('nodes');

function isUnavailable(error: Error | null): boolean {
  return error instanceof ApiError && error.status === 503;
}

/** What needs the operator, as far as the session's scopes show it; null while it is unknown. */
export function useAttention(
  overview: Overview | null,
  pauses: Pauses | null,
): AttentionItem[] | null {
  const ofJobs = ofTopics('jobs', 'breakers');
  const addressOf = (scope: string, address: string) => (can(scope) ? address : null);
  const status = useResource<Status>(addressOf('system:ro', LAST_STATUS));
  const failures = useResource<JobFailures>(addressOf('jobs:ro', '/jobs/failures'), ofJobs);
  const schedules = useResource<Schedules>(addressOf('jobs:ro', '/scheduler/jobs'), ofJobs);
  const deliveries = useResource<Deliveries>(
    addressOf('agents:ro', '/gateway/deliveries?status=dead&limit=50'),
    ofTopics('gateway:webhooks'),
  );
  const approvals = useResource<Approvals>(
    addressOf('approvals:ro', '/approvals?status=waiting'),
    ofTopics('approvals'),
  );
  const alerts = useResource<AlertRules>(addressOf('jobs:ro', '/alerts'), ofTopics('alerts'));
  const health = useResource<Health>(addressOf('system:ro', '/healthz'), ofHealth);
  const nodes = useResource<ClusterNodes>(addressOf('system:ro', '/nodes'), ofNodes);
  const isMissing = (can('system:ro') && !overview) || (can('jobs:ro') && !failures.data);
  if (isMissing) return null;
  return findAttention({
    overview,
    pauses,
    status: status.data,
    failures: failures.data,
    schedules: schedules.data,
    deliveries: deliveries.data,
    approvals: approvals.data,
    alerts: alerts.data,
    health: isUnavailable(health.error) ? health.error : health.data,
    nodes: nodes.data,
  });
}
