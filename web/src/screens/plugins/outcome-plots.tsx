// Plots of duration, outcomes and queue wait over time.

import { useMemo } from 'preact/hooks';
import { LazyChart } from '../../components/lazy-views';
import { groupSamples, type Sample } from './statistics';

export function OutcomePlots({ samples, label }: { samples: Sample[]; label: string }) {
  const buckets = useMemo(() => groupSamples(samples), [samples]);
  if (!buckets) return <p class="muted">There are too few results for a plot.</p>;
  const { times, p50, p95, wait, all, failed } = buckets;
  const hasWait = wait.some((value) => value !== null);
  return (
    <div class="plots">
      <figure>
        <figcaption>Duration</figcaption>
        <LazyChart
          label={`Duration of ${label} over time`}
          unit="duration"
          times={times}
          series={[
            { label: 'p50', color: '--info', values: p50 },
            { label: 'p95', color: '--warn', values: p95 },
          ]}
        />
      </figure>
      <figure>
        <figcaption>Outcomes</figcaption>
        <LazyChart
          label={`Outcomes of ${label} over time`}
          unit="count"
          times={times}
          series={[
            { label: 'all', color: '--bar-good', values: all, isBar: true },
            { label: 'failed', color: '--bar-dead', values: failed, isBar: true },
          ]}
        />
      </figure>
      {hasWait && (
        <figure>
          <figcaption>Queue wait</figcaption>
          <LazyChart
            label={`Queue wait of ${label} over time`}
            unit="duration"
            times={times}
            series={[{ label: 'p95', color: '--info', values: wait }]}
          />
        </figure>
      )}
    </div>
  );
}
