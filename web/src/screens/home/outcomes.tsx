// The attempts of the last 24 hours: one bar per hour, and one per plugin.

import { ofTopics, useResource } from '../../api/resource';
import type { AnalyticsHours } from '../../api/types';
import { OutcomeBar } from '../../components/outcome-bar';
import { Section } from '../../components/page';
import { Empty, Loaded } from '../../components/states';
import { formatHour, formatTime } from '../../format/time';
import { Link } from '../../router/link';
import { addCounts, type Counts, totalOf } from './counts';

/** The figures of a day change little in this time. */
const INTERVAL_MS = 10_000;

export function Outcomes() {
  const found = useResource<AnalyticsHours>('/analytics/hours', ofTopics('jobs'), INTERVAL_MS);
  return (
    <Section title="Attempts of the last 24 hours">
      <Loaded resource={found}>
        {({ hours }) => {
          const plugins = addCounts(hours.flatMap((hour) => Object.entries(hour.plugins)));
          if (!plugins.size) {
            return (
              <Empty title="Nothing has run in 24 hours">
                Run a command from its <Link to="/plugins">plugin</Link>.
              </Empty>
            );
          }
          return (
            <>
              <HourBars hours={hours} />
              <PluginBars plugins={plugins} />
              <Legend />
            </>
          );
        }}
      </Loaded>
    </Section>
  );
}

function HourBars({ hours }: { hours: AnalyticsHours['hours'] }) {
  const bars = hours.map(({ start, plugins }) => {
    const counts = addCounts(Object.values(plugins).map((own) => ['', own])).get('') ?? {};
    return { start, counts, total: totalOf(counts) };
  });
  const largest = Math.max(1, ...bars.map(({ total }) => total));
  return (
    <ol class="hours" aria-label="Attempts per hour">
      {bars.map(({ start, counts, total }) => (
        <li key={start}>
          <OutcomeBar
            counts={counts}
            share={total / largest}
            label={`From ${formatTime(start)}`}
            isUpright
          />
          <span class="hour" aria-hidden="true">
            {formatHour(start)}
          </span>
        </li>
      ))}
    </ol>
  );
}

function PluginBars({ plugins }: { plugins: Map<string, Counts> }) {
  const rows = [...plugins].map(([plugin, counts]) => ({ plugin, counts, total: totalOf(counts) }));
  rows.sort((a, b) => b.total - a.total);
  const largest = rows[0]?.total ?? 1;
  return (
    <ul class="outcome-list">
      {rows.map(({ plugin, counts, total }) => (
        <li key={plugin} data-row>
          <Link to={`/plugins/${encodeURIComponent(plugin)}`}>{plugin}</Link>
          <OutcomeBar counts={counts} share={total / largest} />
          <span class="list-end">{total.toLocaleString('en')}</span>
        </li>
      ))}
    </ul>
  );
}

function Legend() {
  return (
    <p class="legend">
      <span class="outcome-succeeded">succeeded</span>
      <span class="outcome-skipped">skipped</span>
      <span class="outcome-failed">failed or timed out</span>
      <span class="outcome-dead">dead</span>
    </p>
  );
}
