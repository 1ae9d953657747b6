// Views that are large or seldom needed, loaded when they are first shown.

import type { ChartProps } from './chart';
import type { GraphProps } from './graph';
import { lazy } from './lazy';

const loadComparison = () => import('../screens/compare/comparison');

export const LazyGraph = lazy<GraphProps>(async () => (await import('./graph')).Graph);
export const LazyChart = lazy<ChartProps>(async () => (await import('./chart')).Chart);
export const LazyComparePlugin = lazy<{ name: string }>(
  async () => (await loadComparison()).ComparePlugin,
);
export const LazyComparePipeline = lazy<{ name: string }>(
  async () => (await loadComparison()).ComparePipeline,
);
