// Connections, channels, consumers: who is there, what they do, and who is held back by what.

import { path, usePoll } from "../api.js";
import { bytes, count, dig, duration, moment, rate, since } from "../format.js";
import { chosenHost, useHost } from "../host.js";
import { Badge, confirmLoss, Empty, Facts, Failure, Figure, Figures, html, List, Loading, PageHead, Panel, Table } from "../parts.js";
import { link } from "../route.js";

const CONNECT = () => `import pika

parameters = pika.ConnectionParameters(
    "${location.hostname}", client_properties={"connection_name": "my program"}
)
connection = pika.BlockingConnection(parameters)`;

const of = (kind) => (chosenHost() ? path("vhosts", chosenHost(), kind) : path(kind));

/** Whoever has given a connection a name knows it by that: it stands first, with the address below. */
const named = (connection, given, full, peer) => html`<a class=${given ? "name" : "name mono"} href=${link("connections", [connection])}>${given || full}</a>
  ${given && html`<div class="quiet mono small nowrap" title=${full}>${peer}</div>`}`;

const peerOf = (ends) => `${ends.peer_host}:${ends.peer_port}`;
const connectionName = (row) => named(row.name, row.user_provided_name, row.name, peerOf(row));
const channelName = (ends, connection, channel) => named(connection, ends.user_provided_name, channel.name, `${peerOf(ends)} (${channel.number})`);

export function stateBadge(row) {
  const why = row.blocked_reason ? `: ${row.blocked_reason}` : "";
  if (row.state === "running") return html`<${Badge} tone="good">running<//>`;
  return html`<${Badge} tone=${row.state === "blocked" ? "bad" : "warn"} title=${row.blocked_reason}>${row.state}${why}<//>`;
}

export function Connections() {
  useHost();
  return html`<${PageHead} title="Connections" />
    <${Panel} flush label="Connections"><${List} label="Connections" base=${of("connections")} defaultSort="connected_at" defaultDesc=${true} keyOf=${(row) => row.name}
      empty=${html`<${Empty} title="Nobody is connected" code=${CONNECT()}>Programs connect over AMQP. Give yours a name: it is shown here.<//>`}
      columns=${[
        { title: "Connection", sort: "name", show: connectionName },
        { title: "User", sort: "user", show: (row) => html`${row.user}${row.vhost !== "/" && html` <span class="quiet">${row.vhost}</span>`}` },
        { title: "State", sort: "state", show: stateBadge },
        { title: "Client", wide: true, sort: "client_properties.product", show: (row) => html`${row.client_properties?.product || "–"} <span class="quiet">${row.client_properties?.version || ""}</span>` },
        { title: "TLS", wide: true, sort: "ssl", show: (row) => (row.ssl ? html`<${Badge} tone="good">${row.ssl_protocol || "TLS"}<//>` : html`<span class="quiet">no</span>`) },
        { title: "Channels", sort: "channels", num: true, show: (row) => count(row.channels) },
        { title: "From client", sort: "recv_oct_details.rate", num: true, show: (row) => `${bytes(Math.round(dig(row, "recv_oct_details.rate") || 0))}/s` },
        { title: "To client", sort: "send_oct_details.rate", num: true, show: (row) => `${bytes(Math.round(dig(row, "send_oct_details.rate") || 0))}/s` },
        { title: "To be sent", sort: "send_pend", num: true, wide: true, show: (row) => (row.send_pend ? bytes(row.send_pend) : html`<span class="quiet">0</span>`) },
        { title: "Since", sort: "connected_at", wide: true, show: (row) => html`<span title=${moment(row.connected_at)}>${duration(Date.now() - row.connected_at)}</span>` },
      ]} /><//>`;
}

export function Connection({ rest: [name] }) {
  const { data: row, error } = usePoll(path("connections", name), 3000);
  const channels = usePoll(path("connections", name, "channels"), 3000);
  if (error?.status === 404) return html`<${Empty} title="This connection is closed"><a href="#/connections">All connections</a><//>`;
  if (!row) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const { capabilities, ...properties } = row.client_properties || {};
  const close = () => confirmLoss({
    title: "Close this connection?",
    lead: html`<p>The client gets 320 CONNECTION_FORCED. What it holds unacknowledged goes back to its queues; what it has published and has no confirm for may be lost. Most clients connect again by themselves.</p>`,
    button: "Close it", url: path("connections", name), told: "The connection is closed.", leadsTo: "#/connections",
  });
  return html`
    <${PageHead} title=${row.user_provided_name || row.name} badges=${stateBadge(row)} crumbs=${html`<a href="#/connections">Connections</a> <span class="mono">${row.name}</span>`}>
      <button type="button" class="button button-warn" onClick=${close}>Close</button>
    <//>
    ${row.state === "blocked" && html`<div class="failure" role="status"><strong>The broker does not read from this connection:</strong> ${row.blocked_reason}. Its publishes wait in the client until the alarm is over.</div>`}
    <${Figures}>
      <${Figure} name="From client" value=${`${bytes(Math.round(dig(row, "recv_oct_details.rate") || 0))}/s`} note=${`${bytes(row.recv_oct)} in all`} />
      <${Figure} name="To client" value=${`${bytes(Math.round(dig(row, "send_oct_details.rate") || 0))}/s`} note=${`${bytes(row.send_oct)} in all`} />
      <${Figure} name="To be sent" value=${bytes(row.send_pend)} note=${row.send_pend ? "the client reads slowly" : "the client keeps up"} tone=${row.send_pend > 1_000_000 ? "warn" : undefined} />
      <${Figure} name="Connected for" value=${duration(Date.now() - row.connected_at)} note=${moment(row.connected_at)} />
    <//>
    <div class="columns-2">
      <${Panel} title="Connection"><${Facts} facts=${{ User: row.user, "Virtual host": row.vhost, Protocol: row.protocol, "Login by": row.auth_mechanism, TLS: row.ssl ? `${row.ssl_protocol} ${row.ssl_cipher || ""}` : "no", Heartbeat: `${row.timeout} s`, "Frames of at most": bytes(row.frame_max), "Channels at most": count(row.channel_max) }} /><//>
      <${Panel} title="Client"><${Facts} facts=${properties} />
        <p class="quiet small">${Object.keys(capabilities || {}).join(", ")}</p><//>
    </div>
    <${Panel} title="Channels" flush><${Failure} error=${channels.error} />
      ${channels.data && (channels.data.length ? html`<${Table} label="Channels" rows=${channels.data} keyOf=${(each) => each.name} columns=${channelColumns(false)} />` : html`<${Empty} title="No channels">The connection is open, and idle.<//>`)}<//>`;
}

function channelColumns(withConnection) {
  const stat = (title, column) => ({ title, num: true, sort: `message_stats.${column}_details.rate`, show: (row) => rate(dig(row, `message_stats.${column}_details.rate`) ?? 0) });
  return [
    { title: "Channel", sort: "name", show: (row) => (withConnection ? channelName(row.connection_details, row.connection_details.name, row) : count(row.number)) },
    ...(withConnection ? [{ title: "User", sort: "user", show: (row) => html`${row.user}${row.vhost !== "/" && html` <span class="quiet">${row.vhost}</span>`}` }] : []),
    { title: "State", sort: "state", show: (row) => (row.state === "flow" ? html`<${Badge} tone="warn" title="The client has said channel.flow: nothing is delivered">paused by the client<//>` : stateBadge(row)) },
    { title: "Held back by", show: heldBackBy },
    { title: "Mode", wide: true, show: (row) => html`<span class="badges">${row.confirm && html`<${Badge}>confirms<//>`}${row.transactional && html`<${Badge} tone="info">tx<//>`}</span>` },
    { title: "Prefetch", num: true, sort: "prefetch_count", show: (row) => row.global_prefetch_count ? `${count(row.global_prefetch_count)} in all` : row.prefetch_count ? count(row.prefetch_count) : html`<span class="quiet">no limit</span>` },
    { title: "Unacked", num: true, sort: "messages_unacknowledged", show: (row) => count(row.messages_unacknowledged) },
    { title: "Unconfirmed", num: true, wide: true, sort: "messages_unconfirmed", show: (row) => count(row.messages_unconfirmed) },
    stat("Published", "publish"),
    stat("Delivered", "deliver_get"),
    stat("Acks", "ack"),
  ];
}

function heldBackBy(row) {
  if (row.state === "flow") return "its client";
  const limit = row.global_prefetch_count || row.prefetch_count;
  if (limit && row.consumer_count && row.messages_unacknowledged >= limit * (row.global_prefetch_count ? 1 : row.consumer_count)) {
    const isStill = !dig(row, "message_stats.ack_details.rate");
    return html`<${Badge} tone=${isStill ? "warn" : undefined} title=${isStill ? "No more is delivered until the consumer acknowledges, and it does not" : "As much is on its way as the consumer allows: it is the slow one"}>prefetch is full<//>`;
  }
  return html`<span class="quiet">nothing</span>`;
}

export function Channels() {
  useHost();
  return html`<${PageHead} title="Channels" lead="Publishers are held back by alarms, consumers by their prefetch or by themselves." />
    <${Panel} flush label="Channels"><${List} label="Channels" base=${of("channels")} keyOf=${(row) => row.name} columns=${channelColumns(true)} defaultSort="messages_unacknowledged" defaultDesc=${true}
      empty=${html`<${Empty} title="No channels" code=${CONNECT() + "\nchannel = connection.channel()"}>All work is done on channels of a connection:<//>`} /><//>`;
}

const HELD_BACK = {
  alarm: ["bad", () => "blocked by an alarm"],
  flow: ["warn", () => "paused by the client"],
  client: ["warn", () => "the client reads slowly"],
  acks: ["warn", (row) => `waits for acks since ${since(row.held_back_since)}`],
};

function consumerState(row) {
  const [tone, text] = HELD_BACK[row.held_back_by] || [];
  if (text) return html`<${Badge} tone=${tone} title=${`${row.held_back_reason}${row.held_back_since ? `, for ${duration(Date.now() - row.held_back_since)}` : ""}`}>${text(row)}<//>`;
  return row.active ? html`<${Badge} tone="good">${row.activity_status}<//>` : html`<${Badge} title="Another consumer of the queue is the active one">${row.activity_status}<//>`;
}

export function consumerColumns(withQueue) {
  return [
    ...(withQueue ? [{ title: "Queue", sort: "queue.name", show: (row) => html`<a class="name" href=${link("queues", [row.queue.vhost, row.queue.name])}>${row.queue.name}</a>` }] : []),
    { title: "Consumer tag", wide: withQueue, sort: "consumer_tag", show: (row) => html`<span class="mono cut" title=${row.consumer_tag}>${row.consumer_tag}</span>` },
    { title: "Connection", full: true, sort: "channel_details.name", show: (row) => channelName(row.channel_details, row.channel_details.connection_name, row.channel_details) },
    { title: "Acks", sort: "ack_required", show: (row) => (row.ack_required ? html`<span class="nowrap">by the client</span>` : html`<${Badge} tone="warn" title="Messages that are on their way when the client dies are lost">automatic<//>`) },
    { title: "Prefetch", num: true, sort: "prefetch_count", show: (row) => (row.prefetch_count ? count(row.prefetch_count) : html`<span class="quiet">no limit</span>`) },
    { title: "Unacked", num: true, sort: "unacked", show: (row) => (row.held_back_by === "acks" ? html`<${Badge} tone="warn">${count(row.unacked)}<//>` : count(row.unacked)) },
    { title: "State", sort: "held_back_since", show: (row) => html`<span class="badges">${consumerState(row)}${row.exclusive && html`<${Badge}>exclusive<//>`}</span>` },
  ];
}

export function Consumers() {
  const host = useHost();
  return html`<${PageHead} title="Consumers" lead="Who takes messages, what each holds unacknowledged, and what keeps it from more." />
    <${Panel} flush label="Consumers"><${List} label="Consumers" base=${host ? path("consumers", host) : path("consumers")} keyOf=${(row) => row.channel_details.name + row.consumer_tag} defaultSort="unacked" defaultDesc=${true} filter=${false}
      columns=${consumerColumns(true)}
      empty=${html`<${Empty} title="No consumers" code=${`def received(channel, method, properties, body):
    print(body)
    channel.basic_ack(method.delivery_tag)

channel.basic_consume("hello", received)
channel.start_consuming()`}>A consumer gets messages as they come:<//>`} /><//>`;
}
