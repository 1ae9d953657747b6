import { useEffect } from 'preact/hooks';
import { formatJson, type Json } from '../../api/json';
import { can } from '../../api/session';
import type { GatewayEvent } from '../../api/types';
import { Filters, SelectFilter, TextFilter } from '../../components/filters';
import { Page } from '../../components/page';
import { Empty } from '../../components/states';
import { Time } from '../../components/time';
import { countOf } from '../../format/text';
import { Link } from '../../router/link';
import { queryValue } from '../../router/router';
import { eventLog, heldBack, isPaused, setPaused, startEventLog } from './event-log';

const SHOWN = 300;

export function Events() {
  useEffect(() => (can('events:ro') ? startEventLog() : undefined), []);
  if (!can('events:ro')) {
    return (
      <Page title="Events">
        <Empty title="Your token does not allow this">It needs the scope events:ro.</Empty>
      </Page>
    );
  }
  const topic = queryValue('topic');
  const search = queryValue('search').toLowerCase();
  const topics = [...new Set(eventLog.value.map((event) => event.topic))].sort();
  const rows = eventLog.value.filter(
    (event) => (!topic || event.topic === topic) && (!search || textOf(event).includes(search)),
  );
  return (
    <Page title="Events" actions={<PauseButton />}>
      <Filters>
        <SelectFilter name="topic" label="Topic" options={topics} />
        <TextFilter name="search" label="Contains" placeholder="type, plugin, id …" />
      </Filters>
      {rows.length ? (
        <ol class="events" aria-label="Events, newest first">
          {rows.slice(0, SHOWN).map((event) => (
            <EventRow key={event.id} event={event} />
          ))}
        </ol>
      ) : (
        <Empty title="No events">
          {topic || search ? 'Remove a filter to see more.' : 'They appear here as they happen.'}
        </Empty>
      )}
      {rows.length > SHOWN && (
        <p class="muted">{countOf(rows.length - SHOWN, 'older event')} not shown; use a filter.</p>
      )}
    </Page>
  );
}

function PauseButton() {
  const isHeld = isPaused.value;
  return (
    <button type="button" aria-pressed={isHeld} onClick={() => setPaused(!isHeld)}>
      {isHeld ? `Continue (${heldBack.value} new)` : 'Pause'}
    </button>
  );
}

function textOf({ topic, type, data }: GatewayEvent): string {
  return `${topic} ${type} ${formatJson(data, 0)}`.toLowerCase();
}

function EventRow({ event: { type, at, data } }: { event: GatewayEvent }) {
  const { job_id, plugin, command, instance_id, ...rest } = (data ?? {}) as Record<string, Json>;
  const name = plugin ? `${plugin}${command ? `.${command}` : ''}` : String(job_id ?? '');
  const shown = Object.entries(rest)
    .filter(([, value]) => value !== null)
    .map(([key, value]) => `${key}=${formatValue(value)}`)
    .join('  ');
  return (
    <li data-row>
      <Time at={at} />
      <span class={`event-type event-${type.split('.')[1] ?? ''}`}>{type}</span>
      <span>
        {job_id ? <Link to={`/jobs/${job_id}`}>{name}</Link> : name}
        {instance_id && <Link to={`/runs/${instance_id}`}>{String(rest.pipeline)}</Link>}
      </span>
      <span class="event-data" title={shown}>
        {shown}
      </span>
    </li>
  );
}

function formatValue(value: Json): string {
  return typeof value === 'string' ? value : formatJson(value, 0);
}
