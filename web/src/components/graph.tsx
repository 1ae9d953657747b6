// A directed graph, laid out by dagre. Loaded lazily: see `lazy-views.ts`.

import { graphlib, layout } from '@dagrejs/dagre';
import { signal } from '@preact/signals';
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
const MAX_SUBTITLE = 28;
/** A graph that is a little too wide is drawn smaller; a wider one scrolls. */
const MIN_SCALE = 0.75;

/** Of the corners of a box, and the width of the coloured mark at its left side. */
const RADIUS = 8;
const MARK = 5;

interface Point {
  x: number;
  y: number;
}

const phone = matchMedia('(max-width: 560px)');
/** On a phone a graph grows downwards, and its reader scrolls the page as usual. */
const isDownwards = signal(phone.matches);
phone.addEventListener('change', () => {
  isDownwards.value = phone.matches;
});

function computeLayout(nodes: GraphNode[], edges: GraphEdge[], isDown: boolean) {
  const graph = new graphlib.Graph();
  const direction = isDown ? { rankdir: 'TB', ranksep: 34 } : { rankdir: 'LR', ranksep: 56 };
  graph.setGraph({ ...direction, nodesep: 18, marginx: 8, marginy: 8 });
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
  const isDown = isDownwards.value;
  const shape = nodes.map(({ id }) => id).join() + edges.map(({ from, to }) => from + to).join();
  const { width, height, places, lines } = useMemo(
    () => computeLayout(nodes, edges, isDown),
    [shape, isDown],
  );
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
              d={drawPath(placeOf(from), placeOf(to), points, isDown)}
              marker-end="url(#arrow)"
            />
            {text && (
              <EdgeLabel from={placeOf(from)} to={placeOf(to)} text={text} isDown={isDown} />
            )}
          </g>
        ))}
        {nodes.map((node) => (
          <NodeBox key={node.id} node={node} place={placeOf(node.id)} />
        ))}
      </svg>
    </section>
  );
}

interface EdgeLabelProps {
  from: Point;
  to: Point;
  text: string;
  isDown: boolean;
}

/** In front of the box that the edge leads to, on the side that the edge leaves free. */
function EdgeLabel({ from, to, text, isDown }: EdgeLabelProps) {
  if (isDown) {
    const isLeft = to.x < from.x;
    return (
      <text
        class={isLeft ? 'graph-label' : 'graph-label graph-label-right'}
        x={to.x + (isLeft ? -8 : 8)}
        y={to.y - NODE_HEIGHT / 2 - 6}
      >
        {text}
      </text>
    );
  }
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
      <rect x={x} y={y} width={NODE_WIDTH} height={NODE_HEIGHT} rx={RADIUS} />
      <path class="graph-mark" d={MARK_PATH} transform={`translate(${x} ${y})`} />
      <text class="graph-title" x={x + 15} y={y + 22}>
        {cut(title, MAX_TITLE)}
      </text>
      <text class="graph-subtitle" x={x + 15} y={y + 39}>
        {cut(subtitle, MAX_SUBTITLE)}
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

/** The left side of a box, cut off along its round corners. */
const MARK_PATH = (() => {
  const inset = RADIUS - Math.sqrt(RADIUS ** 2 - (RADIUS - MARK) ** 2);
  const arc = `A${RADIUS} ${RADIUS} 0 0 0`;
  return `M${MARK} ${inset}${arc} 0 ${RADIUS}V${NODE_HEIGHT - RADIUS}${arc} ${MARK} ${NODE_HEIGHT - inset}Z`;
})();

/** From one side of a box to the opposite side of the next, through the bends of the layout. */
function drawPath(from: Point, to: Point, points: Point[], isDown: boolean): string {
  const [right, down] = isDown ? [0, NODE_HEIGHT / 2] : [NODE_WIDTH / 2, 0];
  const start = { x: from.x + right, y: from.y + down };
  const end = { x: to.x - right, y: to.y - down };
  let path = `M${start.x} ${start.y}`;
  let last = start;
  for (const point of [...points.slice(2, -2), end]) {
    const middle = isDown ? (last.y + point.y) / 2 : (last.x + point.x) / 2;
    path += isDown
      ? ` C${last.x} ${middle} ${point.x} ${middle} ${point.x} ${point.y}`
      : ` C${middle} ${last.y} ${middle} ${point.y} ${point.x} ${point.y}`;
    last = point;
  }
  return path;
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
