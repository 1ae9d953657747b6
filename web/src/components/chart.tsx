// A plot over time, drawn by uPlot. Loaded lazily: see `lazy-views.ts`.

import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatDuration } from '../format/duration';
import { theme } from '../format/theme';
import { formatTime } from '../format/time';

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
/** Pixels per character of a time at the axis, with the gap between two. */
const TICK_CHARACTER = 8;

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
    axes: [
      { ...axis, space: tickSpace, values: (_, ticks) => formatTicks(ticks) },
      {
        ...axis,
        size: 72,
        values: (_, ticks) => ticks.map(format),
        // A half of a job is not a mark of the axis.
        ...(unit === 'count' && { incrs: COUNT_STEPS }),
      },
    ],
    series: [
      { value: (_, time: number | null) => (time === null ? '–' : formatTime(toIso(time))) },
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

/** 1, 2, 5, 10, 20 and so on. */
const COUNT_STEPS = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((power) =>
  [1, 2, 5].map((digit) => digit * 10 ** power),
);

const toIso = (seconds: number) => new Date(seconds * 1000).toISOString();

/** The times of an axis as in the rest of the page, in the viewer's zone and language. */
function formatTicks(ticks: number[]): string[] {
  return ticks.map((seconds) => formatTime(toIso(seconds)));
}

/** Times of an earlier day are longer: their texts must not overlap. */
function tickSpace(_: uPlot, __: number, least: number): number {
  return formatTime(toIso(least)).length * TICK_CHARACTER;
}

function barPaths(): uPlot.Series.PathBuilder {
  const build = uPlot.paths.bars;
  if (!build) throw new Error('this uPlot has no bars');
  return build({ size: [0.7, 40] });
}
