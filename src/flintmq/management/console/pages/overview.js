// Rates and depths of everything, alarms and why, and what the node has left.

import { useState } from "../vendor/preact-hooks.js";
import { path, usePoll } from "../api.js";
import { Chart, ratesOf, timesOf, valuesOf, Waiting } from "../chart.js";
import { brief, bytes, count, dig, duration, knownRate, rate } from "../format.js";
import { useHost } from "../host.js";
import { Badge, Empty, Failure, Facts, Figure, Figures, html, Loading, Meter, PageHead, Panel, Table } from "../parts.js";
import { link } from "../route.js";
import { depthBadge, QueueName } from "./queues.js";

const RANGES = { 60: ["1 min", 5], 600: ["10 min", 5], 3600: ["1 h", 20] };
export const SNIPPET = (queue) => `import pika

connection = pika.BlockingConnection(pika.ConnectionParameters("${location.hostname}"))
channel = connection.channel()
channel.queue_declare("${queue}", durable=True)
channel.basic_publish("", "${queue}", b"hello")
connection.close()`;

const RATES = [
  ["Published", "publish", "--c1", true],
  ["Delivered", "deliver_get", "--c2"],
  ["Acked", "ack", "--c3"],
  ["Unroutable", "drop_unroutable", "--c4"],
];

export function Overview({ session }) {
  const [range, choose] = useState(600);
  const [, step] = RANGES[range];
  const sampled = `msg_rates_age=${range}&msg_rates_incr=${step}&lengths_age=${range}&lengths_incr=${step}`;
  const { data, error } = usePoll(`/api/overview?${sampled}`, 5000);
  const monitors = session.tags.some((tag) => tag === "administrator" || tag === "monitoring");
  const nodes = usePoll(monitors ? path("nodes") : null, 5000);
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const totals = data.object_totals || {};
  const stats = data.message_stats || {};
  const node = nodes.data?.[0];
  return html`
    <${PageHead} title="Overview" lead=${`${data.product_name} ${data.product_version} on ${data.node}${node ? `, up for ${duration(node.uptime)}` : ""}`}>
      <div class="segments" role="group" aria-label="Stretch of time">
        ${Object.entries(RANGES).map(([age, [text]]) => html`<button key=${age} type="button" aria-pressed=${Number(age) === range ? "true" : "false"} onClick=${() => choose(Number(age))}>${text}</button>`)}
      </div>
    <//>
    <${Failure} error=${error} />
    <${Figures}>
      <${Figure} name="Ready" value=${brief(dig(data, "queue_totals.messages_ready"))} note=${change(knownRate(dig(data, "queue_totals.messages_ready_details")))} href=${link("queues", [], { sort: "messages_ready", desc: 1 })} />
      <${Figure} name="Unacked" value=${brief(dig(data, "queue_totals.messages_unacknowledged"))} note="with consumers" href=${link("consumers")} />
      <${Figure} name="Published" value=${rate(knownRate(stats.publish_details))} note=${`${brief(stats.publish ?? 0)} in all`} />
      <${Figure} name="Delivered" value=${rate(knownRate(stats.deliver_get_details))} note=${`${brief(stats.deliver_get ?? 0)} in all`} />
      <${Figure} name="Connections" value=${count(totals.connections)} note=${`${count(totals.channels)} channels`} href=${link("connections")} />
      <${Figure} name="Queues" value=${count(totals.queues)} note=${`${count(totals.consumers)} consumers`} href=${link("queues")} />
      <${Figure} name="Exchanges" value=${count(totals.exchanges)} note=${`${count(totals.bindings)} bindings`} href=${link("exchanges")} />
    <//>
    ${totals.queues === 0
      ? html`<${Panel}><${Empty} title="Nothing is here yet" code=${SNIPPET("hello")}>Any AMQP client can start. This one declares a queue and publishes a message to it:<//><//>`
      : html`<div class="columns-2">
        <${Panel} title="Messages a second">${rateChart(stats)}<//>
        <${Panel} title="Messages in queues">${depthChart(data.queue_totals)}<//>
      </div>`}
    <div class="columns-3">
      <${Busy} />
      ${monitors && html`<${Node} node=${node} error=${nodes.error} />`}
      <${Panel} title="Listens on">
        <ul class="plain">${data.listeners.map((each) => html`<li key=${each.protocol + each.ip_address + each.port}><${Badge}>${each.protocol}<//> <span class="mono">${each.ip_address}:${each.port}</span></li>`)}</ul>
        <h3 class="small-head">Since the start</h3>
        <${Facts} facts=${churn(data.churn_rates)} />
      <//>
    </div>
    ${monitors && html`<${Alarms} />`}`;
}

const change = (value) => (value === undefined ? "–" : !value ? "steady" : `${value > 0 ? "+" : "−"}${rate(Math.abs(value))}`);

function churn(rates = {}) {
  const shown = (made, gone) => html`<span class="num">${count(rates[made])} opened, ${count(rates[gone])} closed</span>`;
  return {
    Connections: shown("connection_created", "connection_closed"),
    Channels: shown("channel_created", "channel_closed"),
    Queues: html`<span class="num">${count(rates.queue_created)} made, ${count(rates.queue_deleted)} deleted</span>`,
  };
}

function rateChart(stats) {
  const samples = dig(stats, "publish_details.samples");
  const times = timesOf(samples).slice(1);
  if (times.length < 2) return html`<${Waiting} />`;
  const series = RATES.map(([name, column, color, fill]) => ({ name, color, fill, values: ratesOf(dig(stats, `${column}_details.samples`)) }));
  return html`<${Chart} label="Messages a second" times=${times} series=${series} format=${rate} sync="overview" />`;
}

function depthChart(totals) {
  const samples = dig(totals, "messages_ready_details.samples");
  const times = timesOf(samples);
  if (times.length < 2) return html`<${Waiting} />`;
  const series = [
    { name: "Ready", color: "--c1", fill: true, values: valuesOf(samples) },
    { name: "Unacked", color: "--c3", values: valuesOf(dig(totals, "messages_unacknowledged_details.samples")) },
  ];
  return html`<${Chart} label="Messages in queues" times=${times} series=${series} format=${brief} sync="overview" />`;
}

function Busy() {
  const host = useHost();
  const base = host ? path("queues", host) : path("queues");
  const { data } = usePoll(
    `${base}?page=1&page_size=6&sort=messages&sort_reverse=true&columns=name,vhost,type,messages,messages_ready,messages_unacknowledged,consumers`,
    5000,
  );
  return html`<${Panel} title="Longest queues" flush side=${html`<a href=${link("queues", [], { sort: "messages", desc: 1 })}>All</a>`}>
    ${data?.items.length
      ? html`<${Table} label="Longest queues" rows=${data.items} keyOf=${(row) => row.vhost + row.name} columns=${[
          { title: "Queue", show: (row) => html`<${QueueName} queue=${row} />` },
          { title: "Messages", num: true, show: (row) => depthBadge(row) },
          { title: "Consumers", num: true, show: (row) => count(row.consumers) },
        ]} />`
      : html`<p class="quiet padded">No queues yet.</p>`}
  <//>`;
}

function Node({ node, error }) {
  return html`<${Panel} title="Node">
    <${Failure} error=${error} />
    ${node && html`
      <${Meter} name="Memory" used=${node.mem_used} total=${node.mem_limit} shown=${`${bytes(node.mem_used)} of ${bytes(node.mem_limit)}`} tone=${node.mem_alarm ? "bad" : undefined} />
      <${Meter} name="Disk" used=${node.disk_free_limit || 0} total=${node.disk_free} shown=${`${bytes(node.disk_free)} free`} tone=${node.disk_free_alarm ? "bad" : "good"} note=${node.disk_free_limit ? `The alarm goes on below ${bytes(node.disk_free_limit)}.` : undefined} />
      <${Meter} name="File descriptors" used=${node.fd_used} total=${node.fd_total} shown=${`${count(node.fd_used)} of ${count(node.fd_total)}`} />
      <${Meter} name="Connections" used=${node.sockets_used} total=${node.sockets_total} shown=${`${count(node.sockets_used)} of ${count(node.sockets_total)}`} />`}
  <//>`;
}

function Alarms() {
  const { data } = usePoll(path("flintmq", "alarms"), 5000);
  if (!data) return null;
  return html`<${Panel} title="Alarms">
    ${data.alarms.length === 0
      ? html`<p class="all-well"><i class="dot dot-good" />No alarm is on. Publishers run freely.</p>`
      : html`<ul class="plain">${data.alarms.map((alarm) => html`<li key=${alarm.resource}><${Badge} tone="bad">${alarm.resource}<//> ${alarm.reason}</li>`)}</ul>`}
    ${data.blocked.length > 0 && html`<h3 class="small-head">Connections that wait because of it</h3>
      <ul class="plain">${data.blocked.map((each) => html`<li key=${each.name}><a class="mono" href=${link("connections", [each.name])}>${each.name}</a> <span class="quiet">${each.user}: ${each.reason}</span></li>`)}</ul>`}
  <//>`;
}
