// Streams: where each begins and ends, who reads, how far behind, and what is kept.

import { path, usePoll } from "../api.js";
import { count, duration, rate } from "../format.js";
import { listPath, useHost } from "../host.js";
import { Empty, Failure, html, Loading, PageHead, Panel, Table } from "../parts.js";
import { link } from "../route.js";
import { offsetsUrl, retentionOf } from "./queue.js";
import { COLUMNS, rateOf } from "./queues.js";

export function Streams() {
  const host = useHost();
  const { data, error } = usePoll(`${listPath("queues", host)}?page=1&page_size=200&type=stream&sort=name&columns=${COLUMNS},effective_policy_definition&lengths_age=20&lengths_incr=5`, 5000);
  const consumers = usePoll(host ? path("consumers", host) : path("consumers"), 5000);
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const rows = data.items;
  const readers = (row) => (consumers.data || []).filter((each) => each.queue.name === row.name && each.queue.vhost === row.vhost);
  return html`<${PageHead} title="Streams" lead="Messages stay in a stream. Each reader has its own place." />
    <${Failure} error=${error} />
    <${Panel} flush label="Streams">${rows.length === 0
      ? html`<${Empty} title="No streams yet" code=${`channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
channel.basic_publish("", "events", b"happened")

channel.basic_qos(prefetch_count=100)
channel.basic_consume("events", received, arguments={"x-stream-offset": "first"})`}>A stream is a queue that keeps its messages, for any number of readers:<//>`
      : html`<${Table} label="Streams" rows=${rows} keyOf=${(row) => row.vhost + row.name} columns=${[
        { title: "Stream", show: (row) => html`<a class="name" href=${link("queues", [row.vhost, row.name], { tab: "offsets" })}>${row.name}</a>${row.vhost !== "/" && html` <span class="quiet host-note">${row.vhost}</span>`}` },
        { title: "Offsets", show: (row) => html`<${Offsets} row=${row} />` },
        { title: "Messages", num: true, show: (row) => count(row.messages) },
        { title: "In", num: true, show: (row) => rate(rateOf(row, "publish")) },
        { title: "Out", num: true, show: (row) => rate(rateOf(row, "deliver_get")) },
        { title: "Keeps", show: (row) => Object.entries(retentionOf(row)).map(([name, value]) => `${name.toLowerCase()} ${value}`).join(", ") || html`<span class="quiet">everything</span>` },
        { title: "Readers", show: (row) => html`<${Readers} rows=${readers(row)} />` },
      ]} />`}<//>`;
}

function Offsets({ row }) {
  const { data } = usePoll(offsetsUrl(row.vhost, row.name), 5000);
  if (!data) return html`<span class="quiet">–</span>`;
  return html`<span class="num nowrap">${count(data["first-offset"] ?? data.first)} – ${count(data["end-offset"] ?? data.end)}</span>`;
}

function Readers({ rows }) {
  if (!rows.length) return html`<span class="quiet">nobody</span>`;
  return rows.map((row) => html`<div key=${row.consumer_tag} class="nowrap"><a href=${link("connections", [row.channel_details.connection_name])}>${row.arguments?.name || row.consumer_tag}</a>
    <span class="quiet"> ${row.lag !== undefined ? `${count(row.lag)} behind` : `${count(row.unacked)} unacked`}${row.lag_ms !== undefined ? `, ${duration(row.lag_ms)}` : ""}</span></div>`);
}
