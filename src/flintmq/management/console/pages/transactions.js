// Branches of distributed transactions, and leases of readers that take batches.

import { path, usePoll } from "../api.js";
import { bytes, count, duration, moment } from "../format.js";
import { listPath, useHost } from "../host.js";
import { Badge, Empty, Failure, html, Loading, PageHead, Panel, Table } from "../parts.js";
import { LeaseTable } from "./queue.js";

const TONES = { open: "good", preparing: "good", prepared: "info", committing: "info", "rollback-only": "warn", "heuristic-commit": "bad", "heuristic-rollback": "bad" };

export function Transactions() {
  const host = useHost() || "/";
  const { data, error } = usePoll(path("flintmq", "branches", host), 3000);
  const channels = usePoll(path("vhosts", host, "channels") + "?columns=name,transactional,user,messages_uncommitted,acks_uncommitted,connection_details", 5000);
  const local = (channels.data || []).filter((row) => row.transactional);
  return html`<${PageHead} title="Transactions" lead=${`Virtual host ${host}`} />
    <${Failure} error=${error} />
    <${Panel} title="Branches of distributed transactions" flush>
      ${!data && !error && html`<${Loading} />`}
      ${data && (data.length === 0
        ? html`<${Empty} title="No branches" code=${`from flintmq.client import connect

with connect("amqp://${location.hostname}") as connection, connection.channel(transactional=True) as channel:
    channel.publish(b"one of two", routing_key="hello")
    channel.publish(b"two of two", routing_key="hello")
    channel.commit()`}>Messages and acknowledgements of a transaction are done together. Prepared branches of dtx are shown here until they are committed or rolled back. A transaction on one channel needs no branch:<//>`
        : html`<${Table} label="Branches" rows=${data} keyOf=${(row) => row.xid} columns=${[
          { title: "Branch", show: (row) => html`<span class="mono">${row.xid}</span>` },
          { title: "State", show: (row) => html`<${Badge} tone=${TONES[row.state]}>${row.state}<//>` },
          { title: "User", show: (row) => row.user },
          { title: "Since", show: (row) => html`<span title=${moment(row["since-ms"])}>${duration(Date.now() - row["since-ms"])}</span>` },
          { title: "Messages", num: true, show: (row) => count(row.messages) },
          { title: "Operations", num: true, show: (row) => count(row.operations) },
          { title: "Size", num: true, show: (row) => bytes(row.octets) },
          { title: "Ends after", show: (row) => (row["timeout-s"] ? `${row["timeout-s"]} s` : "–") },
        ]} />`)}
    <//>
    ${local.length > 0 && html`<${Panel} title="Channels in tx mode" flush><${Table} label="Channels in tx mode" rows=${local} keyOf=${(row) => row.name} columns=${[
      { title: "Channel", show: (row) => html`<span class="mono">${row.name}</span>` },
      { title: "User", show: (row) => row.user },
      { title: "Publishes to commit", num: true, show: (row) => count(row.messages_uncommitted) },
      { title: "Acks to commit", num: true, show: (row) => count(row.acks_uncommitted) },
    ]} /><//>`}`;
}

export function Leases() {
  const host = useHost();
  const { data, error } = usePoll(`${listPath("queues", host)}?page=1&page_size=100&sort=leases&sort_reverse=true&columns=name,vhost,leases`, 5000);
  const leased = (data?.items || []).filter((row) => row.leases > 0);
  return html`<${PageHead} title="Leases" lead="Readers that take messages in batches, such as Spark, hold a lease instead of consuming." />
    <${Failure} error=${error} />
    ${!data && !error && html`<${Loading} />`}
    ${data && leased.length === 0 && html`<${Panel}><${Empty} title="No leases" code=${`stream = (
    spark.readStream.format("amqp")
    .option("uri", "amqp://${location.hostname}")
    .option("queue", "orders")
    .load()
)`}>Nobody reads a queue in batches now. A Spark stream does:<//><//>`}
    ${leased.map((queue) => html`<${QueueLeases} key=${queue.vhost + queue.name} queue=${queue} />`)}`;
}

function QueueLeases({ queue }) {
  const { data, error } = usePoll(path("flintmq", "queues", queue.vhost, queue.name, "leases"), 3000);
  return html`<${Panel} title=${queue.name} flush><${Failure} error=${error} />
    ${data && html`<${LeaseTable} rows=${data.map((row) => ({ ...row, queue: queue.name, vhost: queue.vhost }))} withQueue />`}<//>`;
}
