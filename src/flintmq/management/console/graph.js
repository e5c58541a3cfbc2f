// Exchanges and queues in layers, from left to right, joined by bindings. Widths are rates.

import { useState } from "./vendor/preact-hooks.js";
import { brief, dig, rate } from "./format.js";
import { html, joined } from "./parts.js";
import { exchangeLink } from "./pages/bindings.js";
import { link } from "./route.js";

const NODES_MAX = 80;
const NODE = { width: 190, height: 40, gapX: 170, gapY: 14 };
const NODE_TEXT_WIDTH = NODE.width - 28;
const pen = document.createElement("canvas").getContext("2d");

/** A name as wide as a node at most: names that begin alike differ at the end, so the middle is left out. */
function fitted(name) {
  pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
  let shown = name;
  for (let kept = Math.min(name.length, 60); pen.measureText(shown).width > NODE_TEXT_WIDTH && kept > 2; kept -= 1) {
    shown = `${name.slice(0, Math.ceil(kept / 2))}…${name.slice(-Math.floor(kept / 2))}`;
  }
  return shown;
}

/** Nodes by id, and one edge for each pair with the keys of its bindings. */
export function graphOf({ bindings, exchanges, queues, around }) {
  const edges = new Map();
  for (const row of bindings) {
    const from = `e:${row.source}`;
    const to = `${row.destination_type === "queue" ? "q" : "e"}:${row.destination}`;
    const edge = edges.get(`${from}\u0000${to}`) || { from, to, keys: [] };
    edge.keys.push(keyText(row));
    edges.set(`${from}\u0000${to}`, edge);
  }
  let kept = [...edges.values()];
  if (around) kept = reachable(kept, `e:${around}`);
  const nodes = new Map();
  const exchangeRows = new Map(exchanges.map((row) => [row.name, row]));
  const queueRows = new Map(queues.map((row) => [row.name, row]));
  const add = (id) => {
    if (nodes.has(id)) return;
    const name = id.slice(2);
    const isQueue = id[0] === "q";
    const row = isQueue ? queueRows.get(name) : exchangeRows.get(name);
    nodes.set(id, {
      id, name, isQueue, row, layer: 0,
      rate: dig(row, `message_stats.${isQueue ? "publish" : "publish_in"}_details.rate`) ?? 0,
    });
  };
  if (around) add(`e:${around}`);
  for (const edge of kept) {
    add(edge.from);
    add(edge.to);
  }
  return { nodes, edges: kept };
}

function keyText(row) {
  const { "x-match": match, ...rest } = row.arguments;
  const pairs = Object.entries(rest).map(([name, value]) => `${name} = ${value}`);
  if (pairs.length) return pairs.join(match === "any" ? " or " : ", ");
  return row.routing_key || "·";
}

function reachable(edges, start) {
  const found = new Set();
  for (const [ahead, behind] of [["from", "to"], ["to", "from"]]) {
    const seen = new Set([start]);
    const waiting = [start];
    while (waiting.length) {
      const id = waiting.pop();
      for (const edge of edges) {
        if (edge[ahead] !== id) continue;
        found.add(edge);
        if (!seen.has(edge[behind])) {
          seen.add(edge[behind]);
          waiting.push(edge[behind]);
        }
      }
    }
  }
  return edges.filter((edge) => found.has(edge));
}

/** Layers by the longest way from a source; queues are all in the last one. Cycles end at the depth of all nodes. */
function layered(nodes, edges) {
  for (let pass = 0; pass < Math.min(nodes.size, 12); pass += 1) {
    let changed = false;
    for (const edge of edges) {
      const to = nodes.get(edge.to);
      const wanted = nodes.get(edge.from).layer + 1;
      if (!to.isQueue && to.layer < wanted && wanted < 12) {
        to.layer = wanted;
        changed = true;
      }
    }
    if (!changed) break;
  }
  const last = 1 + Math.max(0, ...[...nodes.values()].filter((node) => !node.isQueue).map((node) => node.layer));
  const layers = [];
  for (const node of nodes.values()) {
    if (node.isQueue) node.layer = last;
    (layers[node.layer] ||= []).push(node);
  }
  for (const edge of edges) edge.by = passedBy(edge, nodes, layers);
  return layers.filter(Boolean);
}

/** A free place in each layer that an edge passes, so that it goes past nodes and not through them. */
function passedBy(edge, nodes, layers) {
  const by = [];
  for (let layer = nodes.get(edge.from).layer + 1; layer < nodes.get(edge.to).layer; layer += 1) {
    const place = { id: `-:${edge.from}${edge.to}${layer}`, name: nodes.get(edge.to).name, isFree: true };
    by.push(place);
    layers[layer].push(place);
  }
  return by;
}

/** Each layer in the order of the middle of its neighbours, to and fro; the order with the fewest crossings is kept. */
function ordered(layers, edges) {
  const joins = edges.flatMap((edge) => {
    const way = [edge.from, ...edge.by.map((each) => each.id), edge.to];
    return way.slice(1).map((to, at) => ({ from: way[at], to }));
  });
  const before = new Map();
  const after = new Map();
  for (const { from, to } of joins) {
    before.set(to, [...(before.get(to) || []), from]);
    after.set(from, [...(after.get(from) || []), to]);
  }
  layers.forEach((layer) => layer.sort((a, b) => a.name.localeCompare(b.name)));
  const place = new Map();
  const number = (layer) => layer.forEach((node, at) => place.set(node.id, at / Math.max(1, layer.length - 1)));
  layers.forEach(number);
  let best = { crossings: Infinity };
  for (let pass = 0; pass < 12; pass += 1) {
    const isBack = pass % 2 === 0;
    const near = isBack ? after : before;
    for (const layer of isBack ? [...layers].reverse() : layers) {
      const middles = new Map(layer.map((node) => {
        const places = (near.get(node.id) || []).map((id) => place.get(id));
        return [node.id, places.length ? places.reduce((sum, each) => sum + each, 0) / places.length : place.get(node.id)];
      }));
      layer.sort((a, b) => middles.get(a.id) - middles.get(b.id) || place.get(a.id) - place.get(b.id));
      number(layer);
    }
    const crossings = crossed(joins, layers, place);
    if (crossings < best.crossings) best = { crossings, order: layers.map((layer) => [...layer]) };
  }
  layers.forEach((layer, at) => layer.splice(0, layer.length, ...best.order[at]));
}

function crossed(joins, layers, place) {
  const layerOf = new Map(layers.flatMap((layer, at) => layer.map((node) => [node.id, at])));
  let crossings = 0;
  joins.forEach((one, at) => {
    for (const other of joins.slice(at + 1)) {
      if (layerOf.get(one.from) !== layerOf.get(other.from) || layerOf.get(one.to) !== layerOf.get(other.to)) continue;
      if ((place.get(one.from) - place.get(other.from)) * (place.get(one.to) - place.get(other.to)) < 0) crossings += 1;
    }
  });
  return crossings;
}

/** What goes over an edge: known where it is the only way into a queue, or out of a fanout; else the most it can be. */
export function edgeRate(edge, nodes, edges) {
  const from = nodes.get(edge.from);
  const to = nodes.get(edge.to);
  if (from.row?.type === "fanout") return { value: from.rate, exact: true };
  if (to.isQueue && edges.filter((each) => each.to === edge.to).length === 1) return { value: to.rate, exact: true };
  return { value: Math.min(from.rate, to.rate || from.rate), exact: false };
}

export function Graph({ vhost, bindings, exchanges, queues, around, isCut }) {
  const [lit, light] = useState(null);
  const whole = graphOf({ bindings, exchanges, queues, around });
  const { nodes } = whole;
  let { edges } = whole;
  const left = nodes.size - NODES_MAX;
  if (left > 0) {
    const byRate = [...nodes.values()].sort((a, b) => Number(a.isQueue) - Number(b.isQueue) || b.rate - a.rate || (b.row?.messages ?? 0) - (a.row?.messages ?? 0));
    byRate.slice(NODES_MAX).forEach((node) => nodes.delete(node.id));
    edges = edges.filter((edge) => nodes.has(edge.from) && nodes.has(edge.to));
  }
  const layers = layered(nodes, edges);
  ordered(layers, edges);
  const tallest = Math.max(...layers.map((layer) => layer.length));
  const height = tallest * (NODE.height + NODE.gapY) + NODE.gapY;
  const width = layers.length * NODE.width + (layers.length - 1) * NODE.gapX + 24;
  layers.forEach((layer, column) => {
    const free = height - layer.length * NODE.height;
    const gap = free / (layer.length + 1);
    layer.forEach((node, at) => {
      node.x = 12 + column * (NODE.width + NODE.gapX);
      node.y = gap + at * (NODE.height + gap);
    });
  });
  const most = Math.max(1, ...[...nodes.values()].map((node) => node.rate));
  const isLit = (edge) => lit === null || edge.from === lit || edge.to === lit;
  return html`<div class="graph-place">
    <svg class="graph" viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="group" aria-label="Exchanges and queues, joined by bindings">
      ${edges.map((edge) => html`<${Edge} key=${edge.from + edge.to} edge=${edge} nodes=${nodes} edges=${edges} most=${most} isLit=${isLit(edge)} isNamed=${lit !== null && isLit(edge)} />`)}
      ${[...nodes.values()].map((node) => html`<${Node} key=${node.id} node=${node} vhost=${vhost} isHere=${node.id === `e:${around}`}
        isLit=${lit === null || node.id === lit || edges.some((edge) => isLit(edge) && (edge.from === node.id || edge.to === node.id))} onLight=${light} />`)}
    </svg>
    <p class="quiet small padded-sides">Rates on edges are exact where a queue has one way in; “≤” is the most it can be. Point at a node to see its routing keys.
      ${left > 0 && ` ${left} quieter queues are not drawn: open an exchange to see all of its own.`}${isCut && " The first 500 bindings are drawn."}</p>
  </div>`;
}

function Edge({ edge, nodes, edges, most, isLit, isNamed }) {
  const from = nodes.get(edge.from);
  const to = nodes.get(edge.to);
  const { value, exact } = edgeRate(edge, nodes, edges);
  const x1 = from.x + NODE.width;
  const x2 = to.x;
  const y1 = from.y + NODE.height / 2;
  const y2 = to.y + NODE.height / 2;
  const keys = from.row?.type === "fanout" ? "" : edge.keys.slice(0, 2).join("  ") + (edge.keys.length > 2 ? ` +${edge.keys.length - 2}` : "");
  // Labels sit at the end of an edge, where edges of one exchange have parted.
  const at = { x: x2 - 8, y: y2 };
  return html`<g class=${joined("edge", !isLit && "dim")}>
    <title>${`${from.name} → ${to.name}: ${edge.keys.join(", ")}`}</title>
    <path d=${wayOf(x1, y1, x2, y2, edge.by)} stroke-width=${(1 + (value / most) * 5).toFixed(1)} class=${value > 0 ? "edge-line flowing" : "edge-line"} />
    <text x=${at.x} y=${at.y - 6} class="edge-key">${keys.length > 26 && !isNamed ? keys.slice(0, 25) + "…" : keys}</text>
    ${value > 0 && html`<text x=${at.x} y=${at.y + 14} class="edge-rate">${exact ? "" : "≤ "}${rate(value)}</text>`}
  </g>`;
}

function wayOf(x1, y1, x2, y2, by) {
  const curve = (fromX, fromY, toX, toY) => {
    const bend = Math.max(50, Math.abs(toX - fromX) / 2);
    return `C${fromX + bend} ${fromY} ${toX - bend} ${toY} ${toX} ${toY}`;
  };
  let way = `M${x1} ${y1}`;
  let x = x1;
  let y = y1;
  for (const each of by) {
    const middle = each.y + NODE.height / 2;
    way += `${curve(x, y, each.x, middle)}L${each.x + NODE.width} ${middle}`;
    x = each.x + NODE.width;
    y = middle;
  }
  return way + curve(x, y, x2, y2);
}

function Node({ node, vhost, isLit, isHere, onLight }) {
  const href = node.isQueue ? link("queues", [vhost, node.name]) : exchangeLink(vhost, node.name);
  const side = node.isQueue
    ? `${brief(node.row?.messages ?? 0)} messages${node.row && !node.row.consumers && node.row.type !== "stream" ? ", no consumer" : ""}`
    : `${node.row?.type ?? ""}${node.rate ? `, ${rate(node.rate)}` : ""}`;
  return html`<a href=${href} class=${joined("node", node.isQueue ? "node-queue" : "node-exchange", !isLit && "dim", isHere && "node-here")} aria-label=${`${node.isQueue ? "Queue" : "Exchange"} ${node.name}, ${side}`}
    onMouseEnter=${() => onLight(node.id)} onMouseLeave=${() => onLight(null)} onFocus=${() => onLight(node.id)} onBlur=${() => onLight(null)}>
    <rect x=${node.x} y=${node.y} width=${NODE.width} height=${NODE.height} rx=${node.isQueue ? 6 : 20} />
    <text x=${node.x + 16} y=${node.y + 17} class="node-name">${fitted(node.name)}</text>
    <text x=${node.x + 16} y=${node.y + 31} class="node-side">${side}</text>
  </a>`;
}
