// A directed graph, laid out by dagre. Loaded lazily: see `lazy-views.ts`.

import { graphlib, layout } from '@dagrejs/dagre';
import { useMemo } from 'preact/hooks';
import { Link } from '../router/link';

export interface GraphNode {
  id: string;
  title: string;
  subtitle: string;
  status: string;
  href?: string | undefined;
  isCurrent?: boolean;
}

export interface GraphEdge {
  from: string;
  to: string;
  label?: string | undefined;
}

export interface GraphProps {
  nodes: GraphNode[];
  edges: GraphEdge[];
  label: string;
}

const NODE_WIDTH = 196;
const NODE_HEIGHT = 52;
const MAX_TITLE = 21;
/** A graph that is a little too wide is drawn smaller; a wider one scrolls. */
const MIN_SCALE = 0.8;

interface Point {
  x: number;
  y: number;
}

function computeLayout(nodes: GraphNode[], edges: GraphEdge[]) {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: 'LR', nodesep: 18, ranksep: 56, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id } of nodes) graph.setNode(id, { width: NODE_WIDTH, height: NODE_HEIGHT });
  const known = new Set(nodes.map(({ id }) => id));
  const drawn = edges.filter(({ from, to }) => known.has(from) && known.has(to));
  for (const { from, to } of drawn) graph.setEdge(from, to);
  layout(graph);
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return {
    width,
    height,
    places: new Map(nodes.map(({ id }) => [id, graph.node(id) as Point])),
    lines: drawn.map((edge) => ({
      ...edge,
      points: (graph.edge(edge.from, edge.to) as { points: Point[] }).points,
    })),
  };
}

export function Graph({ nodes, edges, label }: GraphProps) {
  const shape = nodes.map(({ id }) => id).join() + edges.map(({ from, to }) => from + to).join();
  const { width, height, places, lines } = useMemo(() => computeLayout(nodes, edges), [shape]);
  const placeOf = (id: string) => places.get(id) ?? { x: 0, y: 0 };
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard.
    <section class="graph" tabIndex={0} aria-label={label}>
      <svg
        width={width}
        viewBox={`0 0 ${width} ${height}`}
        style={{ minWidth: `${width * MIN_SCALE}px` }}
      >
        <title>{label}</title>
        <defs>
          <marker
            id="arrow"
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerWidth="7"
            markerHeight="7"
            orient="auto-start-reverse"
          >
            <path d="M0 0 8 4 0 8z" class="graph-arrow" />
          </marker>
        </defs>
        {lines.map(({ from, to, points, label: text }) => (
          <g key={`${from} ${to}`}>
            <path
              class="graph-edge"
              d={drawPath(placeOf(from), placeOf(to), points)}
              marker-end="url(#arrow)"
            />
            {text && <EdgeLabel from={placeOf(from)} to={placeOf(to)} text={text} />}
          </g>
        ))}
        {nodes.map((node) => (
          <NodeBox key={node.id} node={node} place={placeOf(node.id)} />
        ))}
      </svg>
    </section>
  );
}

/** In front of the box that the edge leads to, on the side that the edge leaves free. */
function EdgeLabel({ from, to, text }: { from: Point; to: Point; text: string }) {
  const offset = to.y > from.y ? 18 : -10;
  return (
    <text class="graph-label" x={to.x - NODE_WIDTH / 2 - 8} y={to.y + offset}>
      {text}
    </text>
  );
}

function NodeBox({ node, place }: { node: GraphNode; place: Point }) {
  const { title, subtitle, status, href, isCurrent } = node;
  const x = place.x - NODE_WIDTH / 2;
  const y = place.y - NODE_HEIGHT / 2;
  const box = (
    <>
      <rect x={x} y={y} width={NODE_WIDTH} height={NODE_HEIGHT} rx="8" />
      <rect class="graph-mark" x={x} y={y} width="5" height={NODE_HEIGHT} rx="2.5" />
      <text class="graph-title" x={x + 15} y={y + 22}>
        {cut(title)}
      </text>
      <text class="graph-subtitle" x={x + 15} y={y + 39}>
        {cut(subtitle)}
      </text>
    </>
  );
  const kind = `graph-node graph-${status}${isCurrent ? ' graph-current' : ''}`;
  return href ? (
    <Link to={href} class={kind} title={`${title} · ${subtitle}`}>
      {box}
    </Link>
  ) : (
    <g class={kind}>{box}</g>
  );
}

/** From the right side of a box to the left side of the next, through the bends of the layout. */
function drawPath(from: Point, to: Point, points: Point[]): string {
  const start = { x: from.x + NODE_WIDTH / 2, y: from.y };
  const end = { x: to.x - NODE_WIDTH / 2, y: to.y };
  const bends = points.slice(2, -2);
  let path = `M${start.x} ${start.y}`;
  let last = start;
  for (const point of [...bends, end]) {
    const middle = (last.x + point.x) / 2;
    path += ` C${middle} ${last.y} ${middle} ${point.y} ${point.x} ${point.y}`;
    last = point;
  }
  return path;
}

function cut(text: string): string {
  return text.length > MAX_TITLE ? `${text.slice(0, MAX_TITLE - 1)}…` : text;
}
