// Views with large libraries, loaded when they are first shown.

import type { ChartProps } from './chart';
import type { GraphProps } from './graph';
import { lazy } from './lazy';

export const LazyGraph = lazy<GraphProps>(async () => (await import('./graph')).Graph);
export const LazyChart = lazy<ChartProps>(async () => (await import('./chart')).Chart);
