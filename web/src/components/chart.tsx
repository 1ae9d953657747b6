// A plot over time, drawn by uPlot. Loaded lazily: see `lazy-views.ts`.

import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatDuration } from '../format/duration';
import { theme } from '../format/theme';

export interface Series {
  label: string;
  /** A custom property of the stylesheet. */
  color: string;
  values: (number | null)[];
  isBar?: boolean;
}

export interface ChartProps {
  /** Seconds since 1970. */
  times: number[];
  series: Series[];
  unit: 'duration' | 'count';
  label: string;
}

const HEIGHT = 180;

export function Chart({ times, series, unit, label }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const shade = theme.value;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const options = describePlot(element, series, unit);
    const plot = new uPlot(options, [times, ...series.map(({ values }) => values)], element);
    const observer = new ResizeObserver(() =>
      plot.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [times, series, unit, shade]);
  return <div class="chart" ref={box} role="img" aria-label={label} />;
}

function describePlot(element: HTMLElement, series: Series[], unit: string): uPlot.Options {
  const styles = getComputedStyle(document.documentElement);
  const colorOf = (name: string) => styles.getPropertyValue(name).trim();
  const format = (value: number | null) =>
    value === null ? '–' : unit === 'duration' ? formatDuration(value) : String(value);
  const axis = { stroke: colorOf('--text-muted'), grid: { stroke: colorOf('--line'), width: 1 } };
  return {
    width: element.clientWidth || 600,
    height: HEIGHT,
    legend: { live: true },
    // From zero: a difference should not look larger than it is.
    scales: { y: { range: (_, __, most) => [0, (most || 1) * 1.1] } },
    axes: [axis, { ...axis, size: 72, values: (_, ticks) => ticks.map(format) }],
    series: [
      {},
      ...series.map(({ label, color, isBar }) => ({
        label,
        stroke: colorOf(color),
        width: 1.5,
        spanGaps: true,
        points: { show: !isBar, size: 4 },
        value: (_: uPlot, value: number | null) => format(value),
        ...(isBar && { fill: colorOf(color), paths: barPaths() }),
      })),
    ],
  };
}

function barPaths(): uPlot.Series.PathBuilder {
  const build = uPlot.paths.bars;
  if (!build) throw new Error('this uPlot has no bars');
  return build({ size: [0.7, 40] });
}
