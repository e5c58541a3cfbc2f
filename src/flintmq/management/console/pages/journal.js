// The journal: what is on disk, and what the broker's own metrics tell of it.

import { path, usePoll } from "../api.js";
import { bytes, count, duration, rate } from "../format.js";
import { useRef } from "../vendor/preact-hooks.js";
import { Empty, Facts, Failure, Figure, Figures, html, Loading, PageHead, Panel, Table } from "../parts.js";

/** The metrics without labels in Prometheus' text: name, value, help. */
export function metricsOf(text) {
  const help = new Map();
  const found = [];
  for (const line of text.split("\n")) {
    const told = line.match(/^# HELP (\S+) (.*)$/);
    if (told) help.set(told[1], told[2]);
    const row = line.match(/^(flintmq_\w+)(\{[^}]*\})? ([-+\d.eE]+|NaN|[+-]Inf)/);
    if (row) found.push({ name: row[1], labels: row[2] || "", value: Number(row[3]), help: help.get(row[1]) || help.get(row[1].replace(/_(bucket|sum|count)$/, "")) || "" });
  }
  return found;
}

/** A histogram in the place of its buckets: how often, the mean, and what 99 of 100 stay below. */
export function foldedOf(rows) {
  const histograms = new Map();
  const found = [];
  for (const row of rows) {
    const part = row.name.match(/^(\w+)_(bucket|sum|count)$/);
    const name = part && (part[2] === "bucket" || histograms.has(part[1])) ? part[1] : null;
    if (!name) {
      found.push(row);
      continue;
    }
    if (!histograms.has(name)) {
      histograms.set(name, { name, labels: "", help: row.help, buckets: [], sum: 0, count: 0 });
      found.push(histograms.get(name));
    }
    const folded = histograms.get(name);
    folded.help ||= row.help;
    if (part[2] === "bucket") folded.buckets.push([row.labels.match(/le="([^"]*)"/)?.[1], row.value]);
    else folded[part[2]] = row.value;
  }
  return found;
}

const seconds = (value) => (value < 1 ? `${Number((value * 1000).toPrecision(2))} ms` : duration(value * 1000));

function metricValue(row) {
  if (row.buckets) {
    if (!row.count) return "never yet";
    const [most] = row.buckets.find(([, below]) => below >= 0.99 * row.count) || [];
    const bound = most === undefined || most === "+Inf" ? "" : `, 99 of 100 within ${seconds(Number(most))}`;
    return `${count(row.count)} times, ${seconds(row.sum / row.count)} each${bound}`;
  }
  if (/_bytes$/.test(row.name)) return bytes(row.value);
  return Number.isInteger(row.value) ? count(row.value) : Number(row.value.toPrecision(4));
}

export function Journal() {
  const { data: node, error } = usePoll(path("nodes"), 5000);
  const alarms = usePoll(path("flintmq", "alarms"), 5000);
  const metrics = usePoll("/metrics", 5000);
  const before = useRef(null);
  if (!alarms.data || !node) return html`<${Failure} error=${error || alarms.error} />${!error && !alarms.error && html`<${Loading} />`}`;
  const { disk_bytes: used, disk_bytes_free: free } = alarms.data;
  const now = { at: Date.now(), used };
  const growth = before.current && now.at > before.current.at ? ((used - before.current.used) * 1000) / (now.at - before.current.at) : null;
  if (!before.current || now.at - before.current.at > 4000) before.current = now;
  const rows = typeof metrics.data === "string" ? foldedOf(metricsOf(metrics.data)) : [];
  return html`<${PageHead} title="Journal" lead=${node[0].db_dir ? `in ${node[0].db_dir}` : undefined} />
    <${Failure} error=${error || metrics.error} />
    ${used === null || used === undefined
      ? html`<${Panel}><${Empty} title="The broker keeps nothing on disk" code="flintmq serve --data /var/lib/flintmq">It runs without a data directory: durable queues and persistent messages last until it ends. With one they survive:<//><//>`
      : html`<${Figures}>
        <${Figure} name="On disk" value=${bytes(used)} note=${growth ? `${growth > 0 ? "+" : "−"}${bytes(Math.abs(Math.round(growth)))}/s` : "steady"} />
        <${Figure} name="Disk has left" value=${bytes(free)} tone=${node[0].disk_free_alarm ? "bad" : undefined} note=${node[0].disk_free_limit ? `alarm below ${bytes(node[0].disk_free_limit)}` : undefined} />
        ${node[0].io_write_count > 0 && html`<${Figure} name="Writes" value=${rate(node[0].io_write_count_details?.rate ?? 0)} note=${`${bytes(node[0].io_write_bytes)} in all`} />`}
        ${node[0].io_sync_count > 0 && html`<${Figure} name="Syncs" value=${rate(node[0].io_sync_count_details?.rate ?? 0)} note=${node[0].io_sync_avg_time ? `${node[0].io_sync_avg_time.toFixed(1)} ms each` : `${count(node[0].io_sync_count)} in all`} />`}
      <//>`}
    <${Panel} title="The broker's own metrics" flush>
      ${rows.length === 0 ? html`<p class="quiet padded">None.</p>` : html`<${Table} label="Metrics" cards rows=${rows} keyOf=${(row) => row.name + row.labels} columns=${[
        { title: "Metric", show: (row) => html`<span class="mono">${row.name}${row.labels}</span>` },
        { title: "Value", num: true, show: metricValue },
        { title: "", wide: true, show: (row) => html`<span class="quiet">${row.help}</span>` },
      ]} />`}
    <//>
    <${Panel} title="For Prometheus"><${Facts} facts=${{ "All totals": html`<span class="mono">${location.origin}/metrics</span>`, "Each queue": html`<span class="mono">${location.origin}/metrics/per-object</span>` }} /><//>`;
}
