// One queue: how it goes, what is in it, who takes from it, and what can be done with it.

import { useEffect, useState } from "../vendor/preact-hooks.js";
import { get, path, query, request, usePoll } from "../api.js";
import { Chart, ratesOf, timesOf, valuesOf, Waiting } from "../chart.js";
import { brief, bytes, count, dig, duration, moment, rate } from "../format.js";
import { Badge, confirmLoss, Empty, Facts, Failure, Figure, Figures, html, jsonOf, joined, Loading, notify, openDialog, openForm, PageHead, Panel, Table, Tabs } from "../parts.js";
import { link, setQuery } from "../route.js";
import { Bindings, openBindingForm } from "./bindings.js";
import { consumerColumns } from "./connections.js";
import { queueBadges, rateOf } from "./queues.js";

const RATES = [
  ["In", "publish", "--c1", true],
  ["Out", "deliver_get", "--c2"],
  ["Acked", "ack", "--c3"],
];
// Ten minutes of what the charts show, and nothing else.
const SAMPLED = query({
  msg_rates_age: 600, msg_rates_incr: 5, lengths_age: 600, lengths_incr: 5,
  columns: ["messages_ready_details", "messages_unacknowledged_details", "messages_delayed_details", ...RATES.map(([, column]) => `message_stats.${column}_details`)].join(),
});

export function Queue({ rest: [vhost, name], query: asked }) {
  const url = path("queues", vhost, name);
  const { data: queue, error } = usePoll(url, 2000);
  const { data: past } = usePoll(url + SAMPLED, 5000);
  const tab = asked.tab || "messages";
  if (!queue) {
    return error?.status === 404
      ? html`<${Empty} title="There is no queue of this name">“${name}” is not in the virtual host ${vhost}: it was deleted, or never declared. <a href="#/queues">All queues</a><//>`
      : html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  }
  const isStream = queue.type === "stream";
  const samples = past?.messages_ready_details?.samples;
  return html`
    <${PageHead} title=${name} badges=${html`${queueBadges(queue)}${queue.policy && html`<${Badge} title="Policy in force">${queue.policy}<//>`}`}
      crumbs=${html`<a href="#/queues">Queues</a> in ${vhost}`}>
      <${Actions} ...${{ queue, vhost, name, isStream }} />
    <//>
    <${Failure} error=${error} />
    <${Figures}>
      <${Figure} name=${isStream ? "Messages" : "Ready"} value=${brief(queue.messages_ready)} note=${sizeOf(queue)} />
      ${!isStream && html`<${Figure} name="Unacked" value=${brief(queue.messages_unacknowledged)} note="with consumers" />`}
      ${queue.messages_delayed > 0 && html`<${Figure} name="Delayed" value=${brief(queue.messages_delayed)} note="wait for a retry" />`}
      <${Figure} name="In" value=${rate(rateOf(queue, "publish", samples))} note=${`${brief(dig(queue, "message_stats.publish") ?? 0)} in all`} />
      <${Figure} name="Out" value=${rate(rateOf(queue, "deliver_get", samples))} note=${`${brief(dig(queue, "message_stats.deliver_get") ?? 0)} in all`} />
      <${Figure} name="Oldest" value=${queue.oldest_age_ms === undefined || queue.oldest_age_ms === null ? "–" : duration(queue.oldest_age_ms)} tone=${queue.oldest_age_ms > 3_600_000 && !isStream ? "warn" : undefined} note="waiting" />
      <${Figure} name="Consumers" value=${count(queue.consumers)} tone=${!queue.consumers && queue.messages_ready && !isStream ? "warn" : undefined} note=${!queue.consumers && queue.messages_ready && !isStream ? "nobody consumes" : isStream ? "reading" : "taking messages"} />
    <//>
    <div class="columns-2">
      <${Panel} title="Depth">${depthChart(past, isStream, url)}<//>
      <${Panel} title="Messages a second">${rateChart(past, url)}<//>
    </div>
    <${Panel} flush label="Details">
      <${Tabs} active=${tab} onChoose=${(chosen) => setQuery({ tab: chosen })} tabs=${[
        { name: "messages", title: "Messages" },
        { name: "consumers", title: "Consumers", number: count(queue.consumers) },
        { name: "bindings", title: "Bindings" },
        { name: "dead", title: "Dead letters" },
        ...(isStream ? [{ name: "offsets", title: "Offsets" }] : [{ name: "leases", title: "Leases" }]),
        { name: "settings", title: "Settings" },
      ]} />
      <div class="tab-body" role="tabpanel" aria-label=${tab}>
        ${tab === "messages" && html`<${Peek} ...${{ vhost, name, queue }} />`}
        ${tab === "consumers" && html`<${QueueConsumers} queue=${queue} />`}
        ${tab === "bindings" && html`<${Bindings} url=${path("queues", vhost, name, "bindings")} vhost=${vhost} side=${html`<button type="button" class="button" onClick=${() => openBindingForm({ vhost, destination: name, kind: "q" })}>Bind</button>`} />`}
        ${tab === "dead" && html`<${DeadLetters} ...${{ vhost, name, queue }} />`}
        ${tab === "leases" && html`<${QueueLeases} ...${{ vhost, name }} />`}
        ${tab === "offsets" && html`<${Offsets} ...${{ vhost, name, queue }} />`}
        ${tab === "settings" && html`<${Settings} queue=${queue} />`}
      </div>
    <//>`;
}

// The last ten minutes

function depthChart(past, isStream, sync) {
  const samples = past?.messages_ready_details?.samples;
  const times = timesOf(samples);
  if (times.length < 2) return html`<${Waiting} />`;
  const series = [
    { name: "Ready", color: "--c1", fill: true, values: valuesOf(samples) },
    ...(isStream ? [] : [{ name: "Unacked", color: "--c3", values: valuesOf(past.messages_unacknowledged_details.samples) }]),
    ...(hasValues(past.messages_delayed_details.samples) ? [{ name: "Delayed", color: "--c2", values: valuesOf(past.messages_delayed_details.samples) }] : []),
  ];
  return html`<${Chart} label="Depth" times=${times} series=${series} format=${brief} sync=${sync} height=${160} />`;
}

const hasValues = (samples) => valuesOf(samples).some((value) => value > 0);

/** A queue through which nothing has gone yet has no counts, but the times of its depths. */
function rateChart(past, sync) {
  const times = timesOf(past?.messages_ready_details?.samples).slice(1);
  if (times.length < 2) return html`<${Waiting} />`;
  const series = RATES.map(([name, column, color, fill]) => {
    const samples = dig(past, `message_stats.${column}_details.samples`);
    return { name, color, fill, values: samples ? ratesOf(samples) : times.map(() => 0) };
  });
  return html`<${Chart} label="Rates" times=${times} series=${series} format=${rate} sync=${sync} height=${160} />`;
}

// What can be done

function Actions({ queue, vhost, name, isStream }) {
  const url = path("queues", vhost, name);
  const purged = queue.messages_ready + queue.messages_delayed;
  const deleted = queue.messages + queue.messages_delayed;
  const purge = () => confirmLoss({
    title: `Purge ${name}?`,
    lead: html`<p><strong>${count(purged)} ${queue.messages_delayed ? "" : "ready "}${purged === 1 ? "message is" : "messages are"} lost for good${queue.messages_delayed ? `, with ${count(queue.messages_delayed)} that ${queue.messages_delayed === 1 ? "waits" : "wait"} for a retry` : ""}.</strong> ${queue.messages_unacknowledged ? `${count(queue.messages_unacknowledged)} that consumers hold stay with them.` : ""} The queue and its bindings stay.</p>`,
    button: "Purge", url: path("queues", vhost, name, "contents"), told: `${name} is purged.`,
  });
  const remove = () => confirmLoss({
    title: `Delete ${name}?`,
    lead: html`<p>The queue goes with its bindings${deleted ? html` and <strong>${count(deleted)} ${deleted === 1 ? "message, which is" : "messages, which are"} lost for good</strong>` : ""}.
      ${queue.consumers ? ` ${count(queue.consumers)} ${queue.consumers === 1 ? "consumer is" : "consumers are"} cancelled.` : ""}</p>`,
    button: "Delete", url, typed: deleted ? name : undefined, told: `${name} is deleted.`,
    leadsTo: "#/queues",
  });
  return html`
    <button type="button" class="button button-primary" onClick=${() => openPublish({ vhost, exchange: "", key: name })}>Publish</button>
    ${!isStream && html`<button type="button" class="button" onClick=${() => openGet(vhost, name)}>Get</button>`}
    ${!isStream && html`<button type="button" class="button" onClick=${() => openMove(vhost, name, queue)}>Move</button>`}
    ${!isStream && html`<button type="button" class="button button-warn" onClick=${purge}>Purge</button>`}
    <button type="button" class="button button-warn" onClick=${remove}>Delete</button>`;
}

export function openPublish({ vhost, exchange, key = "" }) {
  openForm({
    title: exchange ? `Publish to ${exchange}` : `Publish to ${key}`,
    button: "Publish",
    fields: [
      ...(exchange ? [{ name: "key", title: "Routing key", value: key }] : []),
      { name: "payload", title: "Body", kind: "area", rows: 5, value: "" },
      { name: "content_type", title: "Content type", value: "text/plain" },
      { name: "headers", title: "Headers", kind: "json", rows: 2, value: "", placeholder: '{"region": "eu"}' },
      { name: "persistent", title: "Persistent: survives a restart in a durable queue", kind: "check", value: true },
    ],
    send: ({ key: given, payload, content_type, headers, persistent }) => request("POST", path("exchanges", vhost, exchange || "amq.default", "publish"), {
      routing_key: exchange ? given : key,
      payload,
      payload_encoding: "string",
      properties: { delivery_mode: persistent ? 2 : 1, ...(content_type ? { content_type } : {}), headers: jsonOf(headers, "Headers") },
    }),
    done: (result) => {
      if (result.routed) notify("Published, and routed to at least one queue.");
      else notify("Published, but no queue took it: no binding matches.", "bad");
    },
  });
}

function openGet(vhost, name) {
  openForm({
    title: `Get from ${name}`,
    lead: html`<p>To look without taking, use the Messages tab. A message that is put back counts as redelivered.</p>`,
    button: "Get",
    fields: [
      { name: "count", title: "Messages", kind: "number", value: "1", required: true },
      { name: "mode", title: "Afterwards", kind: "choice", value: "ack_requeue_true", options: [
        { value: "ack_requeue_true", title: "Put them back" },
        { value: "ack_requeue_false", title: "Remove them from the queue: they are lost" },
        { value: "reject_requeue_false", title: "Reject them: to the dead-letter exchange, or lost" },
      ] },
    ],
    send: ({ count: wanted, mode }) => request("POST", path("queues", vhost, name, "get"), { count: Number(wanted), ackmode: mode, encoding: "auto", truncate: 65_536 }),
    done: (messages) => {
      openDialog(({ close }) => html`<div class="dialog dialog-wide" role="document"><h2>${messages.length ? `${messages.length} ${messages.length === 1 ? "message" : "messages"}` : "The queue is empty"}</h2>
        ${messages.map((message, place) => html`<${Message} key=${place} message=${message} />`)}
        <div class="dialog-buttons"><button class="button" onClick=${close}>Close</button></div></div>`);
    },
  });
}

function openMove(vhost, name, queue) {
  openForm({
    title: `Move messages of ${name}`,
    lead: html`<p>${count(queue.messages_ready)} are ready. They go to the end of the other queue in the order they have here. Nothing is lost, whatever happens on the way.</p>`,
    button: "Move",
    fields: [
      { name: "to", title: "To queue", required: true },
      { name: "limit", title: "At most", kind: "number", placeholder: "all" },
      { name: "keep", title: "Copy: they stay here as well", kind: "check", value: false },
    ],
    send: ({ to, limit, keep }) => request("POST", path("flintmq", "queues", vhost, name, keep ? "copy" : "move"), { to, ...(limit ? { limit: Number(limit) } : {}) }),
    done: (result, { to, keep }) => {
      notify(`${count(result.moved ?? result.copied ?? result.messages ?? 0)} ${keep ? "copied" : "moved"} to ${to}${result.stopped ? `, then it stopped: ${result.stopped}` : ""}.`);
    },
  });
}

// What is in it

export function bodyOf(message) {
  if (message.payload_encoding === "base64") return `${message.payload_bytes} octets, base64:\n${message.payload}`;
  try {
    return JSON.stringify(JSON.parse(message.payload), null, 2);
  } catch {
    return message.payload;
  }
}

function Message({ message }) {
  const { headers, ...properties } = message.properties || {};
  return html`<article class="message">
    <div class="message-line"><span>exchange <b>${message.exchange || "(default)"}</b></span><span>routing key <b class="mono">${message.routing_key || "–"}</b></span><span>${bytes(message.payload_bytes)}</span>${message.arrived_ms && html`<span>arrived ${moment(message.arrived_ms)}</span>`}${message.redelivered && html`<${Badge} tone="warn">redelivered<//>`}</div>
    <pre class="code" tabindex="0" aria-label="Body">${bodyOf(message)}</pre>
    <${Facts} facts=${properties} none="No properties" />
    ${headers && Object.keys(headers).length > 0 && html`<h3 class="small-head">Headers</h3><${Facts} facts=${headers} />`}
  </article>`;
}

function Peek({ vhost, name, queue }) {
  const [asked, ask] = useState({ selector: "", contains: "" });
  const [found, show] = useState({ rows: [], last: null, more: false, looked: 0, error: null, busy: true });
  const [open, unfold] = useState(null);
  const look = async (from, wanted) => {
    show((before) => ({ ...before, busy: true, error: null, ...(from === null ? { rows: [] } : {}) }));
    try {
      const page = await get(path("flintmq", "queues", vhost, name, "peek") + query({ limit: 25, truncate: 4096, after: from, ...wanted }));
      show((before) => ({
        rows: [...(from === null ? [] : before.rows), ...page.messages], last: page.last, more: page.more,
        looked: (from === null ? 0 : before.looked) + page.looked_at, error: null, busy: false,
      }));
    } catch (error) {
      show((before) => ({ ...before, busy: false, error }));
    }
  };
  useEffect(() => {
    look(null, asked);
  }, [vhost, name]);
  const search = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const wanted = { selector: form.get("selector"), contains: form.get("contains") };
    ask(wanted);
    look(null, wanted);
  };
  const isSearch = Boolean(asked.selector || asked.contains);
  return html`
    <form class="filter" onSubmit=${search} role="search" aria-label="Search messages">
      <input class="filter-box mono" name="selector" data-filter aria-label="Selector" placeholder="Selector, such as region = 'eu.de' AND n < 100" />
      <input class="filter-box" name="contains" aria-label="Body has" placeholder="Body has the text" />
      <button class="button" disabled=${found.busy}>${found.busy ? "…" : "Look"}</button>
      <span class="quiet num" aria-live="polite">${found.busy || found.error ? "" : isSearch ? `${count(found.rows.length)} found in ${count(found.looked)} looked at` : `first ${count(found.rows.length)} of ${count(queue.messages_ready)}`}</span>
    </form>
    <${Failure} error=${found.error} />
    ${found.busy && !found.rows.length && html`<${Loading} />`}
    ${!found.busy && !found.error && !found.rows.length && (isSearch
      ? html`<${Empty} title="No message matches">${found.more ? "There is more to look at: go on below." : "All messages that wait were looked at."}<//>`
      : html`<${Empty} title="No message waits here" code=${publishSnippet(name)}>${queue.messages_delayed ? `${count(queue.messages_delayed)} wait for a retry, and are shown here once it is due.` : "Consumers have taken all of them, or none came."} Looking takes nothing from the queue. To see one, publish it:<//>`)}
    ${found.rows.length > 0 && html`<div class="table-scroll"><table class="messages" aria-label="Messages"><thead><tr><th scope="col" class="num">Place</th><th scope="col">Arrived</th><th scope="col">Routing key</th><th scope="col">Body</th><th scope="col" class="num">Size</th></tr></thead>
      <tbody>${found.rows.map((row) => html`
        <tr key=${row.place} class=${joined("unfolds", open === row.place && "unfolded")}>
          <td class="num"><button type="button" class="sort" aria-expanded=${open === row.place ? "true" : "false"} aria-label=${`Message ${row.place}`} onClick=${() => unfold(open === row.place ? null : row.place)}>${open === row.place ? "▾" : "▸"} ${count(row.place)}</button></td>
          <td class="nowrap">${moment(row.arrived_ms)}</td><td class="mono">${row.routing_key}</td>
          <td class="mono body-cell">${row.payload_encoding === "base64" ? `${row.payload_bytes} octets` : row.payload.slice(0, 160)}</td><td class="num">${bytes(row.payload_bytes)}</td>
        </tr>
        ${open === row.place && html`<tr key=${`${row.place}+`} class="inner"><td colspan="5"><${Message} message=${row} /></td></tr>`}`)}</tbody></table></div>`}
    ${found.more && html`<div class="pager"><button type="button" class="button" disabled=${found.busy} onClick=${() => look(found.last, asked)}>${isSearch ? "Look further" : "More"}</button></div>`}`;
}

const publishSnippet = (name) => `channel.basic_publish("", "${name}", b"hello")`;

function QueueConsumers({ queue }) {
  const rows = queue.consumer_details || [];
  if (!rows.length) {
    return html`<${Empty} title="Nobody consumes from this queue" code=${`def received(channel, method, properties, body):
    print(body)
    channel.basic_ack(method.delivery_tag)

channel.basic_qos(prefetch_count=100)
channel.basic_consume("${queue.name}", received)
channel.start_consuming()`}>Messages wait until somebody does:<//>`;
  }
  return html`<${Table} label="Consumers" rows=${rows} keyOf=${(row) => row.channel_details.name + row.consumer_tag} columns=${consumerColumns(false)} />`;
}

// Dead letters: why messages came here, and back to where they came from

/** One request sends some thousands back; so many requests as it takes, as long as they do. */
async function requeueAll(url, limit) {
  let requeued = 0;
  for (;;) {
    const part = await request("POST", url, limit - requeued < Infinity ? { limit: limit - requeued } : {});
    requeued += part.requeued;
    if (!part.more || !part.requeued || requeued >= limit) return { requeued, kept: part.kept };
  }
}

function DeadLetters({ vhost, name, queue }) {
  const { data, error } = usePoll(path("flintmq", "queues", vhost, name, "peek") + "?limit=500&truncate=0", 0);
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const groups = new Map();
  for (const message of data.messages) {
    const death = message.properties.headers?.["x-death"]?.[0];
    if (!death) continue;
    const key = `${death.queue}\u0000${death.reason}`;
    const group = groups.get(key) || { queue: death.queue, reason: death.reason, exchange: death.exchange, messages: 0, again: 0 };
    group.messages += 1;
    group.again = Math.max(group.again, Number(death.count) || 1);
    groups.set(key, group);
  }
  const target = queue.arguments["x-dead-letter-exchange"] ?? queue.effective_policy_definition?.["dead-letter-exchange"];
  const requeue = () => openForm({
    title: "Back to where they came from?",
    lead: html`<p>Each message of ${name} that died in another queue goes back to the end of that queue. What does not say where it came from, or whose queue is gone, stays here. Nothing is lost.</p>`,
    button: "Requeue", fields: [{ name: "limit", title: "At most", kind: "number", placeholder: "all" }],
    send: ({ limit }) => requeueAll(path("flintmq", "queues", vhost, name, "requeue"), limit ? Number(limit) : Infinity),
    done: ({ requeued, kept }) => notify(`${count(requeued)} went back${kept ? `, ${count(kept)} stay` : ""}.`),
  });
  return html`<div class="padded">
    <p>${target === undefined ? "What expires or is rejected here is dropped: the queue has no dead-letter exchange." : html`What expires or is rejected here goes to <a href=${link("exchanges", [vhost, target || "amq.default"])}>${target || "the default exchange"}</a>.`}</p>
    ${groups.size === 0
      ? html`<p class="quiet">None of the first ${count(data.messages.length)} messages died in another queue.</p>`
      : html`<div class="row-head"><h3 class="small-head">Why messages came here</h3><button type="button" class="button" onClick=${requeue}>Requeue to where they came from</button></div>
        <${Table} label="Dead letters" rows=${[...groups.values()].sort((a, b) => b.messages - a.messages)} keyOf=${(row) => row.queue + row.reason} columns=${[
          { title: "Died in", show: (row) => html`<a href=${link("queues", [vhost, row.queue])}>${row.queue}</a>` },
          { title: "Why", show: (row) => html`<${Badge} tone=${row.reason === "rejected" ? "bad" : "warn"}>${row.reason}<//>` },
          { title: "Was published to", show: (row) => row.exchange || "(default)" },
          { title: "Messages", num: true, show: (row) => count(row.messages) },
          { title: "Deaths, at most", num: true, show: (row) => count(row.again) },
        ]} /><p class="quiet small">${data.more ? `Of the first ${count(data.messages.length)} messages.` : "Of all messages that wait."}</p>`}
  </div>`;
}

function QueueLeases({ vhost, name }) {
  const { data, error } = usePoll(path("flintmq", "queues", vhost, name, "leases"), 3000);
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  if (!data.length) return html`<${Empty} title="No leases">A reader that takes messages in batches, such as a Spark stream, holds a lease. Nobody does now.<//>`;
  return html`<${LeaseTable} rows=${data} />`;
}

export function LeaseTable({ rows, withQueue }) {
  return html`<${Table} label="Leases" rows=${rows} keyOf=${(row) => (row.queue || "") + row.consumer} columns=${[
    ...(withQueue ? [{ title: "Queue", show: (row) => html`<a href=${link("queues", [row.vhost, row.queue])}>${row.queue}</a>` }] : []),
    { title: "Reader", show: (row) => row.consumer },
    { title: "Epoch", num: true, show: (row) => count(row.epoch) },
    { title: "Acknowledged to", num: true, show: (row) => count(row.acked) },
    { title: "Leased to", num: true, show: (row) => count(row.last) },
    { title: "Out", num: true, show: (row) => count(row.last - row.acked) },
    { title: "Size", num: true, show: (row) => bytes(row.octets) },
    { title: "Ends", show: (row) => moment(row["expires-ms"]) },
  ]} />`;
}

// Streams

export const offsetsUrl = (vhost, name) => path("flintmq", "queues", vhost, name, "offsets");

export function retentionOf(queue) {
  const given = { ...queue.effective_policy_definition, ...queue.arguments };
  const found = {};
  const size = given["x-max-length-bytes"] ?? given["max-length-bytes"];
  const age = given["x-max-age"] ?? given["max-age"];
  if (size !== undefined) found["At most"] = bytes(size);
  if (age !== undefined) found["For"] = String(age);
  return found;
}

function Offsets({ vhost, name, queue }) {
  const { data, error } = usePoll(offsetsUrl(vhost, name), 3000);
  return html`<div class="padded"><${Failure} error=${error} />
    ${data && html`<${Facts} facts=${{ "First offset": count(data["first-offset"] ?? data.first), "Next offset": count(data["end-offset"] ?? data.end ?? data["next-offset"]), ...retentionOf(queue) }} />`}
    <h3 class="small-head">Readers</h3>
    ${queue.consumer_details?.length
      ? html`<${Table} label="Readers" rows=${queue.consumer_details} keyOf=${(row) => row.consumer_tag} columns=${consumerColumns(false)} />`
      : html`<${Empty} title="Nobody reads this stream" code=${`channel.basic_qos(prefetch_count=100)
channel.basic_consume("${name}", received, arguments={"x-stream-offset": "first"})`}>A consumer says where it starts: first, last, next, an offset or a time.<//>`}
  </div>`;
}

/** How large the messages are that wait, and where they lie: in memory, on disk, or both. */
function sizeOf(queue) {
  const all = bytes(queue.message_bytes_ready);
  if (!queue.message_bytes_ready) return all;
  if (queue.type === "stream" || !queue.message_bytes_ram) return `${all} on disk`;
  return queue.message_bytes_ram < queue.message_bytes_ready ? `${all}, ${bytes(queue.message_bytes_ram)} of it in memory` : `${all} in memory`;
}

function Settings({ queue }) {
  return html`<div class="padded columns-3">
    <div><h3 class="small-head">Arguments</h3><${Facts} facts=${queue.arguments} none="Declared without arguments" /></div>
    <div><h3 class="small-head">Policy in force</h3>
      <${Facts} facts=${{ Policy: queue.policy ? html`<a href="#/policies">${queue.policy}</a>` : "none", "Operator policy": queue.operator_policy || "none" }} />
      <${Facts} facts=${queue.effective_policy_definition} none="Policies ask for nothing here" /></div>
    <div><h3 class="small-head">Kept</h3><${Facts} facts=${{
      Durable: queue.durable, Exclusive: queue.exclusive, "Auto-delete": queue.auto_delete,
      "In memory": count(queue.messages_ram), "Paged out": count(queue.messages_paged_out), Size: bytes(queue.message_bytes), "Size in memory": bytes(queue.message_bytes_ram), "Idle since": queue.idle_since ? `${queue.idle_since} UTC` : undefined,
    }} /></div>
  </div>`;
}
