// The first question is whether anything needs the operator; the rest follows.

import { ofTopics, useResource } from '../../api/resource';
import { can } from '../../api/session';
import type { Overview } from '../../api/types';
import { Badge } from '../../components/badge';
import { Page, Section } from '../../components/page';
import { JobProgress } from '../../components/progress-bar';
import { Empty, Failure, Loading } from '../../components/states';
import { Elapsed, Time } from '../../components/time';
import { describeRule } from '../../format/cron';
import { countOf } from '../../format/text';
import { Link } from '../../router/link';
import { PauseButton, PauseNotice } from '../pauses/pause-control';
import { GATEWAY, usePauses } from '../pauses/pauses';
import { acknowledge } from './acknowledge';
import type { AttentionItem } from './attention';
import { Outcomes } from './outcomes';
import { useAttention } from './use-attention';

export function Home() {
  const ofJobs = ofTopics('jobs', 'breakers');
  const overview = useResource<Overview>(can('system:ro') ? '/system/overview' : null, ofJobs);
  const pauses = usePauses();
  const items = useAttention(overview.data, pauses.data);
  return (
    <Page title="Home" actions={<PauseButton target={GATEWAY} pauses={pauses} />}>
      <PauseNotice target={GATEWAY} pauses={pauses} />
      {overview.error && !overview.data && (
        <Failure error={overview.error} retry={overview.refetch} />
      )}
      {items ? <Attention items={items} /> : <Loading />}
      {overview.data && <Figures overview={overview.data} />}
      <div class="columns">
        {overview.data && <Running overview={overview.data} />}
        {overview.data && <NextFires overview={overview.data} />}
      </div>
      {can('jobs:ro') && <Outcomes />}
    </Page>
  );
}

function Attention({ items }: { items: AttentionItem[] }) {
  if (!items.length) {
    return (
      <div class="verdict verdict-good">
        {can('system:ro') && can('jobs:ro') ? (
          <>
            <strong>Nothing needs you.</strong>
            <span>No dead or failed jobs, open breakers, held plugins or broken schedules.</span>
          </>
        ) : (
          <>
            <strong>Nothing that your token shows needs you.</strong>
            <span>All of it takes the scopes jobs:ro and system:ro.</span>
          </>
        )}
      </div>
    );
  }
  return (
    <section class="attention" aria-labelledby="attention">
      <h2 id="attention">{countOf(items.length, 'thing needs', 'things need')} you</h2>
      <ul>
        {items.map(({ id, kind, tone, title, why, href, at, failure }) => (
          <li key={id} data-row class="attention-row">
            <Link to={href} class={`attention-item attention-${tone}`}>
              <span class="attention-kind">{kind}</span>
              <span class="attention-title">{title}</span>
              <span class="attention-why">{why}</span>
              <span class="attention-at">{at && <Time at={at} relative />}</span>
            </Link>
            {failure && can('jobs:rw') && (
              <button
                type="button"
                class="quiet"
                aria-label={`Acknowledge ${title}`}
                title="They stay as they are, and leave this page."
                onClick={() => acknowledge(failure)}
              >
                Acknowledge
              </button>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Figures({ overview }: { overview: Overview }) {
  const { queue, workers, plugins } = overview;
  const figures: [string, number | string, string][] = [
    ['Running', `${queue.running} of ${workers}`, '/jobs?status=running'],
    ['Queued', queue.ready, '/jobs?status=queued'],
    ['Waiting for a retry', queue.retrying, '/jobs?status=queued'],
    ['Plugins', plugins, '/plugins'],
  ];
  return (
    <ul class="figures">
      {figures.map(([name, value, href]) => (
        <li key={name}>
          <Link to={href}>
            <span class="figure-name">{name}</span>
            <span class="figure-value">{value}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Running({ overview }: { overview: Overview }) {
  return (
    <Section title="Running now">
      {overview.running.length ? (
        <ul class="list">
          {overview.running.map(({ job_id, plugin, command, started_at, attempt, progress }) => (
            <li key={job_id} data-row>
              <Link to={`/jobs/${job_id}`}>
                {plugin}.{command}
              </Link>
              {attempt > 1 && <span class="muted">attempt {attempt}</span>}
              <JobProgress id={job_id} known={progress} />
              <span class="list-end">
                <Elapsed from={started_at} />
              </span>
            </li>
          ))}
        </ul>
      ) : (
        <Empty title="No job is running">
          Run a command from its <Link to="/plugins">plugin</Link>.
        </Empty>
      )}
    </Section>
  );
}

const SHOWN_FIRES = 8;

function NextFires({ overview }: { overview: Overview }) {
  return (
    <Section title="Next" aside={<Link to="/schedules">All schedules</Link>}>
      {overview.next.length ? (
        <ul class="list">
          {overview.next
            .slice(0, SHOWN_FIRES)
            .map(({ plugin, schedule, rule, next_run, state }) => (
              <li key={`${plugin}/${schedule}`} data-row>
                <Link to={`/schedules?name=${encodeURIComponent(`${plugin}/${schedule}`)}`}>
                  {plugin}/{schedule}
                </Link>
                <span class="muted wide-only">{describeRule(rule)}</span>
                <span class="list-end">
                  {state === 'active' ? <Time at={next_run} relative /> : <Badge status={state} />}
                </span>
              </li>
            ))}
        </ul>
      ) : (
        <Empty title="Nothing is scheduled">
          Add <code>schedules:</code> to a plugin in the configuration.
        </Empty>
      )}
    </Section>
  );
}
