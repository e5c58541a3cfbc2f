// Rates and depths of everything, alarms and why, and what the node has left.

import { useState } from "../vendor/preact-hooks.js";
import { path, usePoll } from "../api.js";
import { Chart, ratesOf, timesOf, valuesOf, Waiting } from "../chart.js";
import { brief, bytes, clock, count, dig, duration, knownRate, moment, rate, since } from "../format.js";
import { useHost } from "../host.js";
import { Badge, Empty, Failure, Facts, Figure, Figures, html, joined, Loading, Meter, PageHead, Panel, Table } from "../parts.js";
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
  const waiting = withoutStreams(data);
  const streams = data.stream_totals;
  const node = nodes.data?.[0];
  return html`
    <${PageHead} title="Overview" lead=${`${data.product_name} ${data.product_version} on ${data.node}${node ? `, up for ${duration(node.uptime)}` : ""}`}>
      <div class="segments" role="group" aria-label="Stretch of time">
        ${Object.entries(RANGES).map(([age, [text]]) => html`<button key=${age} type="button" aria-pressed=${Number(age) === range ? "true" : "false"} onClick=${() => choose(Number(age))}>${text}</button>`)}
      </div>
    <//>
    <${Failure} error=${error} />
    <${Figures}>
      <${Figure} name="Ready" value=${brief(waiting.messages)} note=${change(waiting.rate)} href=${link("queues", [], { sort: "messages_ready", desc: 1 })} />
      <${Figure} name="Unacked" value=${brief(dig(data, "queue_totals.messages_unacknowledged"))} note="with consumers" href=${link("consumers")} />
      ${data.queue_totals.messages_delayed > 0 && html`<${Figure} name="Delayed" value=${brief(data.queue_totals.messages_delayed)} note="wait for a retry" href=${link("queues", [], { sort: "messages_delayed", desc: 1 })} />`}
      ${streams.streams > 0 && html`<${Figure} name="In streams" value=${brief(streams.messages)} note=${`${count(streams.streams)} ${streams.streams === 1 ? "stream" : "streams"}`} href=${link("streams")} />`}
      <${Figure} name="Published" value=${rate(knownRate(stats.publish_details))} note=${`${brief(stats.publish ?? 0)} in all`} />
      <${Figure} name="Delivered" value=${rate(knownRate(stats.deliver_get_details))} note=${`${brief(stats.deliver_get ?? 0)} in all`} />
      <${Figure} name="Connections" value=${count(totals.connections)} note=${`${count(totals.channels)} channels`} href=${link("connections")} />
      <${Figure} name="Queues" value=${count(totals.queues)} note=${`${count(totals.consumers)} consumers`} href=${link("queues")} />
      <${Figure} name="Exchanges" value=${count(totals.exchanges)} note=${`${count(totals.bindings)} bindings`} href=${link("exchanges")} />
    <//>
    ${monitors && html`<${Alarms} /><${Health} />`}
    ${totals.queues === 0
      ? html`<${Panel}><${Empty} title="Nothing is here yet" code=${SNIPPET("hello")}>Any AMQP client can start. This one declares a queue and publishes a message to it:<//><//>`
      : html`<div class="columns-2">
        <${Panel} title="Messages a second">${rateChart(stats)}<//>
        <${Panel} title="Messages in queues" side=${streams.streams > 0 && WITHOUT_STREAMS}>${depthChart(data.queue_totals, waiting)}<//>
      </div>`}
    <div class="columns-3">
      <${Busy} hasStreams=${streams.streams > 0} />
      ${monitors && html`<${Node} node=${node} error=${nodes.error} />`}
      <${Panel} title="Listens on">
        <ul class="plain">${data.listeners.map((each) => html`<li key=${each.protocol + each.ip_address + each.port}><${Badge}>${each.protocol}<//> <span class="mono">${each.ip_address}:${each.port}</span></li>`)}</ul>
        <h3 class="small-head">Since the start</h3>
        <${Facts} facts=${churn(data.churn_rates)} />
      <//>
    </div>`;
}

const WITHOUT_STREAMS = html`<span class="quiet small" title="Streams keep messages by design: nobody has to take them">without streams</span>`;

/** What waits for somebody to take it. The API counts the messages of streams with those of queues, as RabbitMQ does. */
function withoutStreams({ queue_totals: all, stream_totals: streams }) {
  const kept = valuesOf(streams.messages_details.samples);
  const samples = valuesOf(all.messages_ready_details.samples).map((value, place) => Math.max(0, value - (kept[place] ?? 0)));
  const rates = [all, { messages_ready_details: streams.messages_details }].map((each) => knownRate(each.messages_ready_details));
  return { messages: Math.max(0, all.messages_ready - streams.messages), rate: rates[0] === undefined ? undefined : rates[0] - (rates[1] ?? 0), samples };
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

function depthChart(totals, waiting) {
  const times = timesOf(dig(totals, "messages_ready_details.samples"));
  if (times.length < 2) return html`<${Waiting} />`;
  const series = [
    { name: "Ready", color: "--c1", fill: true, values: waiting.samples },
    { name: "Unacked", color: "--c3", values: valuesOf(dig(totals, "messages_unacknowledged_details.samples")) },
  ];
  return html`<${Chart} label="Messages in queues" times=${times} series=${series} format=${brief} sync="overview" />`;
}

function Busy({ hasStreams }) {
  const host = useHost();
  const base = host ? path("queues", host) : path("queues");
  const { data } = usePoll(
    `${base}?page=1&page_size=6&type=classic,quorum&sort=messages&sort_reverse=true&columns=name,vhost,type,messages,messages_ready,messages_unacknowledged,consumers`,
    5000,
  );
  return html`<${Panel} title="Longest queues" flush side=${html`${hasStreams && WITHOUT_STREAMS}<a class="small" href=${link("queues", [], { sort: "messages", desc: 1 })}>All</a>`}>
    ${data?.items.length
      ? html`<${Table} label="Longest queues" rows=${data.items} keyOf=${(row) => row.vhost + row.name} columns=${[
          { title: "Queue", show: (row) => html`<${QueueName} queue=${row} oneLine />` },
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

// What `flintmq doctor` would say

// So many until all are asked for: charts shall be in sight.
const FINDINGS_SHOWN = 3;
const OBJECTS = {
  queue: (finding) => link("queues", [finding.virtual_host, finding.object_name]),
  exchange: (finding) => link("exchanges", [finding.virtual_host, finding.object_name]),
  connection: (finding) => link("connections", [finding.object_name]),
};

function Health() {
  const [isAll, showAll] = useState(false);
  const { data, error } = usePoll(path("doctor"), 10_000);
  if (!data) return error ? html`<${Panel} title="Health"><${Failure} error=${error} /><//>` : null;
  const looked = html`<span class="quiet small" title=${`${moment(data.looked_ms)}: ${count(data.checks)} checks in ${count(data.virtual_hosts)} virtual hosts`}>looked at ${clock(new Date(data.looked_ms))}</span>`;
  const total = Object.values(data.counts).reduce((sum, number) => sum + number, 0);
  const shown = isAll ? data.findings : data.findings.slice(0, FINDINGS_SHOWN);
  if (!total) {
    return html`<section class="panel health-well" aria-label="Health"><p class="all-well"><i class="dot dot-good" />Nothing found</p>
      <span class="quiet small">${count(data.checks)} checks of queues, clients and the node</span><span class="health-looked">${looked}</span></section>`;
  }
  return html`<${Panel} title=${html`Health <span class="tab-number">${count(total)} ${total === 1 ? "finding" : "findings"}</span>`} label="Health" side=${looked} flush>
    <${Failure} error=${error} />
    <ul class="findings">${shown.map((finding) => html`<${Finding} key=${[finding.kind, finding.virtual_host, finding.object_type, finding.object_name, finding.seen].join()} finding=${finding} />`)}</ul>
    ${total > shown.length && html`<div class="findings-more">
      ${data.findings.length > shown.length
        ? html`<button type="button" class="button" onClick=${() => showAll(true)}>${`Show all ${count(data.findings.length)}`}</button>`
        : html`<span class="quiet small">And more: ${Object.entries(data.counts).filter(([kind, number]) => number > shown.filter((each) => each.kind === kind).length).map(([kind, number]) => `${kind}, ${count(number)} in all`).join("; ")}.</span>`}</div>`}
  <//>`;
}

function Finding({ finding }) {
  const href = OBJECTS[finding.object_type]?.(finding);
  const name = finding.object_type === "connection" ? "Open the connection" : `Open ${finding.object_name}`;
  return html`<li class=${joined("finding", finding.is_urgent && "finding-urgent")}>
    <div class="finding-seen"><h3>${finding.kind}</h3>
      <p>${finding.seen}.</p>
      <p class="quiet small">${finding.since_ms ? html`<span title=${moment(finding.since_ms)}>Since ${since(finding.since_ms)}</span>` : html`<span title=${moment(finding.first_seen_ms)}>Seen since ${since(finding.first_seen_ms)}</span>`}${href && html` · <a href=${href}>${name}</a>`}</p></div>
    <div class="finding-next"><p><b>Why</b> ${finding.cause}.</p><p><b>Next</b> ${finding.next_step}.</p></div>
  </li>`;
}

function Alarms() {
  const { data } = usePoll(path("flintmq", "alarms"), 5000);
  if (!data?.alarms.length) return null;
  return html`<${Panel} title="Alarms">
    <ul class="plain">${data.alarms.map((alarm) => html`<li key=${alarm.resource}><${Badge} tone="bad">${alarm.resource}<//> ${alarm.reason}</li>`)}</ul>
    ${data.blocked.length > 0 && html`<h3 class="small-head">Connections that wait because of it</h3>
      <ul class="plain">${data.blocked.map((each) => html`<li key=${each.name}><a class="mono" href=${link("connections", [each.name])}>${each.name}</a> <span class="quiet">${each.user}: ${each.reason}</span></li>`)}</ul>`}
  <//>`;
}
