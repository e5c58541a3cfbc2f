// All queues: sorted and filtered by the server, with a line of the last minutes for each.

import { path, request } from "../api.js";
import { valuesOf } from "../chart.js";
import { brief, bytes, count, dig, rate } from "../format.js";
import { listPath, useHost } from "../host.js";
import { Badge, Empty, html, jsonOf, List, notify, openForm, PageHead, Panel, Spark } from "../parts.js";
import { link } from "../route.js";
import { SNIPPET } from "./overview.js";

export const COLUMNS = "name,vhost,type,state,durable,auto_delete,exclusive,policy,arguments,consumers,leases,messages,messages_ready,messages_unacknowledged,messages_delayed,messages_ready_details,message_bytes,message_stats,idle_since";
// Ten minutes for a line as wide as a word.
const SAMPLED = { lengths_age: 600, lengths_incr: 10 };

// Names that begin alike differ at the end: a name that is cut keeps so many letters of it.
const TAIL = 14;

/** With `oneLine` a name that does not fit is cut in its middle. */
export function QueueName({ queue, withHost = true, oneLine }) {
  const name = oneLine && queue.name.length > 2 * TAIL
    ? html`<span class="head">${queue.name.slice(0, -TAIL)}</span><span>${queue.name.slice(-TAIL)}</span>`
    : queue.name;
  return html`<a class=${oneLine ? "name one-line" : "name"} title=${oneLine ? queue.name : undefined} aria-label=${oneLine ? queue.name : undefined} href=${link("queues", [queue.vhost, queue.name])}>${name}</a>${withHost && queue.vhost !== "/" && html` <span class="quiet host-note">${queue.vhost}</span>`}`;
}

export function depthBadge(queue) {
  return html`<span class="num" title=${`${count(queue.messages)} messages`}>${brief(queue.messages)}</span>`;
}

export function queueBadges(queue) {
  const found = [];
  if (queue.type !== "classic") found.push([queue.type, "info"]);
  if (queue.exclusive) found.push(["exclusive"]);
  if (queue.auto_delete) found.push(["auto-delete"]);
  if (!queue.durable) found.push(["transient"]);
  if (queue.arguments?.["x-dead-letter-exchange"] !== undefined) found.push(["DLX"]);
  if (queue.arguments?.["x-message-ttl"] !== undefined) found.push(["TTL"]);
  if (queue.arguments?.["x-max-length"] !== undefined || queue.arguments?.["x-max-length-bytes"] !== undefined) found.push(["max"]);
  if (queue.arguments?.["x-max-priority"] !== undefined) found.push(["priority"]);
  if (queue.leases) found.push(["leased", "info"]);
  return found.map(([text, tone]) => html`<${Badge} key=${text} tone=${tone}>${text}<//>`);
}

/** The rate of a count of a queue; undefined until there are two samples of the queue. */
export const rateOf = (queue, column, samples = queue.messages_ready_details?.samples) =>
  samples?.length > 1 ? (dig(queue, `message_stats.${column}_details.rate`) ?? 0) : undefined;

const stat = (column) => ({ sort: `message_stats.${column}_details.rate`, num: true, show: (row) => html`<span class=${rateOf(row, column) ? "" : "quiet"}>${rate(rateOf(row, column))}</span>` });

export function Queues() {
  const host = useHost();
  const columns = [
    { title: "Queue", sort: "name", show: (row) => html`<${QueueName} queue=${row} /> <span class="badges">${queueBadges(row)}${row.policy && html`<${Badge} title="Policy in force">${row.policy}<//>`}</span>` },
    { title: "Depth", show: (row) => html`<${Spark} values=${valuesOf(row.messages_ready_details?.samples)} label=${`Ready messages in ${row.name}: ${row.messages_ready}`} />` },
    { title: "Ready", sort: "messages_ready", num: true, show: (row) => html`<span class=${row.messages_ready ? "" : "quiet"}>${count(row.messages_ready)}</span>` },
    { title: "Unacked", sort: "messages_unacknowledged", num: true, show: (row) => html`<span class=${row.messages_unacknowledged ? "" : "quiet"}>${count(row.messages_unacknowledged)}</span>` },
    { title: "Delayed", sort: "messages_delayed", num: true, wide: true, show: (row) => html`<span class=${row.messages_delayed ? "" : "quiet"} title="Wait for a retry">${count(row.messages_delayed)}</span>` },
    { title: "In", ...stat("publish") },
    { title: "Out", ...stat("deliver_get") },
    { title: "Acks", ...stat("ack"), wide: true },
    { title: "Size", sort: "message_bytes", num: true, wide: true, show: (row) => html`<span class=${row.message_bytes ? "" : "quiet"}>${bytes(row.message_bytes)}</span>` },
    { title: "Consumers", sort: "consumers", num: true, show: (row) => (row.consumers ? count(row.consumers) : row.messages_ready && row.type !== "stream" ? html`<${Badge} tone="warn" title="Messages wait, and nobody consumes">none<//>` : html`<span class="quiet">0</span>`) },
  ];
  return html`
    <${PageHead} title="Queues">
      <button type="button" class="button button-primary" onClick=${() => openQueueForm(host)}>New queue</button>
    <//>
    <${Panel} flush label="Queues">
      <${List} label="Queues" base=${listPath("queues", host)} ask=${{ columns: COLUMNS, ...SAMPLED }} columns=${columns} defaultSort="messages" defaultDesc=${true}
        keyOf=${(row) => row.vhost + "\u0000" + row.name}
        empty=${html`<${Empty} title="No queues yet" code=${SNIPPET("hello")}>A queue holds messages until a consumer takes them. Declare one with “New queue”, or from a program:<//>`} />
    <//>`;
}

export function openQueueForm(host) {
  openForm({
    title: "New queue",
    button: "Declare",
    fields: [
      { name: "name", title: "Name", required: true },
      { name: "vhost", title: "Virtual host", value: host || "/", required: true },
      { name: "type", title: "Type", kind: "choice", value: "classic", options: [{ value: "classic", title: "Classic: messages go when they are acknowledged" }, { value: "stream", title: "Stream: messages stay, consumers have offsets" }] },
      { name: "durable", title: "Durable: survives a restart", kind: "check", value: true },
      { name: "arguments", title: "Arguments", kind: "json", rows: 3, value: "", placeholder: '{"x-message-ttl": 60000, "x-dead-letter-exchange": "dead-letters"}' },
    ],
    send: ({ name, vhost, type, durable, arguments: given }) => {
      const table = jsonOf(given, "Arguments");
      if (type === "stream") table["x-queue-type"] = "stream";
      return request("PUT", path("queues", vhost, name), { durable, arguments: table });
    },
    done: (_, { vhost, name }) => {
      notify(`Queue ${name} is declared.`);
      location.hash = link("queues", [vhost, name]);
    },
  });
}
