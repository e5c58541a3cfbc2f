// Exchanges, and how they reach queues: a list, and a drawing to click through.

import { path, request, usePoll } from "../api.js";
import { count, dig, rate } from "../format.js";
import { Graph } from "../graph.js";
import { listPath, useHost } from "../host.js";
import { Badge, confirmLoss, Empty, Facts, Failure, Figure, Figures, html, jsonOf, List, Loading, notify, openForm, PageHead, Panel, Tabs } from "../parts.js";
import { link, setQuery } from "../route.js";
import { Bindings, exchangeLink, exchangeName, openBindingForm } from "./bindings.js";
import { openPublish } from "./queue.js";

const TYPES = ["direct", "fanout", "topic", "headers", "selector", "x-consistent-hash", "x-delayed-message", "x-random", "x-recent-history"];

export function Exchanges({ query }) {
  const host = useHost();
  const tab = query.view || "list";
  return html`<${PageHead} title="Exchanges"><button type="button" class="button button-primary" onClick=${() => openExchangeForm(host)}>New exchange</button><//>
    <${Panel} flush label="Exchanges">
      <${Tabs} active=${tab} onChoose=${(view) => setQuery({ view })} tabs=${[{ name: "list", title: "List" }, { name: "graph", title: "Graph" }]} />
      ${tab === "graph"
        ? html`${!host && html`<p class="quiet small graph-note">The graph is of the virtual host /. Choose another one above.</p>`}<${HostGraph} vhost=${host || "/"} />`
        : html`<${List} label="Exchanges" base=${listPath("exchanges", host)} keyOf=${(row) => row.vhost + "\u0000" + row.name} defaultSort="message_stats.publish_in" defaultDesc=${true}
          empty=${html`<${Empty} title="No exchanges">There is always the default exchange.<//>`}
          columns=${[
            { title: "Exchange", sort: "name", show: (row) => html`<a class="name" href=${exchangeLink(row.vhost, row.name)}>${exchangeName(row.name)}</a>${row.vhost !== "/" && html` <span class="quiet host-note">${row.vhost}</span>`}` },
            { title: "Type", sort: "type", show: (row) => row.type },
            { title: "", show: (row) => html`<span class="badges">${!row.durable && html`<${Badge}>transient<//>`}${row.internal && html`<${Badge}>internal<//>`}${row.auto_delete && html`<${Badge}>auto-delete<//>`}${row.policy && html`<${Badge}>${row.policy}<//>`}</span>` },
            { title: "In", num: true, sort: "message_stats.publish_in_details.rate", show: (row) => shownRate(row, "publish_in") },
            { title: "Out", num: true, sort: "message_stats.publish_out_details.rate", show: (row) => shownRate(row, "publish_out") },
            { title: "Messages in", num: true, wide: true, sort: "message_stats.publish_in", show: (row) => count(dig(row, "message_stats.publish_in") ?? 0) },
            { title: "Messages out", num: true, wide: true, sort: "message_stats.publish_out", show: (row) => count(dig(row, "message_stats.publish_out") ?? 0) },
          ]} />`}
    <//>`;
}

const shownRate = (row, column) => {
  const found = dig(row, `message_stats.${column}_details.rate`);
  return html`<span class=${found ? "" : "quiet"}>${rate(found ?? 0)}</span>`;
};

const GRAPH_BINDINGS = 500;

function HostGraph({ vhost, around }) {
  const bindings = usePoll(path("bindings", vhost) + `?page=1&page_size=${GRAPH_BINDINGS}&sort=source&sort_reverse=true`, 10_000);
  const exchanges = usePoll(path("exchanges", vhost) + "?page=1&page_size=500&columns=name,type,message_stats", 5000);
  const queues = usePoll(path("queues", vhost) + "?page=1&page_size=500&sort=messages&sort_reverse=true&columns=name,vhost,messages,consumers,type,message_stats", 5000);
  const error = bindings.error || exchanges.error || queues.error;
  if (!bindings.data || !exchanges.data || !queues.data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const rows = bindings.data.items.filter((row) => row.source);
  if (!rows.length) return html`<${Empty} title=${`No bindings in the virtual host ${vhost}`} code=${`channel.exchange_declare("orders", "topic", durable=True)
channel.queue_declare("orders.europe", durable=True)
channel.queue_bind("orders.europe", "orders", "order.eu.#")`}>Only the default exchange routes here, to each queue by its name. Bind a queue to an exchange:<//>`;
  return html`<${Graph} vhost=${vhost} bindings=${rows} exchanges=${exchanges.data.items} queues=${queues.data.items} around=${around} isCut=${bindings.data.filtered_count > GRAPH_BINDINGS} />`;
}

export function Exchange({ rest: [vhost, name] }) {
  const isDefault = name === "amq.default" || name === "";
  const shown = isDefault ? "" : name;
  const url = path("exchanges", vhost, name || "amq.default");
  const { data: row, error } = usePoll(url, 3000);
  if (error?.status === 404) return html`<${Empty} title="There is no exchange of this name"><a href="#/exchanges">All exchanges</a><//>`;
  if (!row) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const isOurs = isDefault || name.startsWith("amq.");
  const remove = () => confirmLoss({
    title: `Delete ${name}?`, lead: html`<p>The exchange goes with all its bindings. What is published to it afterwards fails with 404 and closes the publisher's channel. Queues and their messages stay.</p>`,
    button: "Delete", url, typed: dig(row, "message_stats.publish_in") ? name : undefined, told: `${name} is deleted.`, leadsTo: "#/exchanges",
  });
  return html`
    <${PageHead} title=${exchangeName(shown)} badges=${html`<${Badge} tone="info">${row.type}<//>${!row.durable && html`<${Badge}>transient<//>`}${row.internal && html`<${Badge}>internal<//>`}${row.auto_delete && html`<${Badge}>auto-delete<//>`}`}
      crumbs=${html`<a href="#/exchanges">Exchanges</a> in ${vhost}`}>
      ${!row.internal && html`<button type="button" class="button button-primary" onClick=${() => openPublish({ vhost, exchange: isDefault ? "amq.default" : name })}>Publish</button>`}
      ${!isDefault && html`<button type="button" class="button" onClick=${() => openBindingForm({ vhost, source: name })}>Bind</button>`}
      ${!isOurs && html`<button type="button" class="button button-warn" onClick=${remove}>Delete</button>`}
    <//>
    <${Figures}>
      <${Figure} name="In" value=${rate(dig(row, "message_stats.publish_in_details.rate") ?? 0)} note=${`${count(dig(row, "message_stats.publish_in") ?? 0)} in all`} />
      <${Figure} name="Out" value=${rate(dig(row, "message_stats.publish_out_details.rate") ?? 0)} note="a message to two queues counts twice" />
      <${Figure} name="Policy" value=${row.policy || "none"} />
    <//>
    ${!isDefault && html`<${Panel} title="Where messages go" flush><${HostGraph} vhost=${vhost} around=${name} /><//>`}
    ${Object.keys(row.arguments).length > 0 && html`<${Panel} title="Arguments"><${Facts} facts=${row.arguments} /><//>`}
    <${Panel} title="Bindings from here" flush><${Bindings} url=${path("exchanges", vhost, name || "amq.default", "bindings", "source")} vhost=${vhost}
      none=${html`<${Empty} title="Nothing is bound to this exchange" code=${`channel.queue_bind("hello", "${shown}", "key")`}>Messages published to it are dropped, or returned to publishers that ask for it.<//>`} /><//>
    ${!isDefault && html`<${Panel} title="Bindings to here" flush><${Bindings} url=${path("exchanges", vhost, name, "bindings", "destination")} vhost=${vhost} none=${html`<p class="quiet padded">No exchange routes to this one. Publishers do.</p>`} /><//>`}`;
}

function openExchangeForm(host) {
  openForm({
    title: "New exchange", button: "Declare",
    fields: [
      { name: "name", title: "Name", required: true },
      { name: "vhost", title: "Virtual host", value: host || "/", required: true },
      { name: "type", title: "Type", kind: "choice", value: "topic", options: TYPES },
      { name: "durable", title: "Durable: survives a restart", kind: "check", value: true },
      { name: "internal", title: "Internal: only other exchanges publish to it", kind: "check", value: false },
      { name: "arguments", title: "Arguments", kind: "json", rows: 2, placeholder: '{"alternate-exchange": "unrouted"}' },
    ],
    send: ({ name, vhost, type, durable, internal, arguments: given }) => request("PUT", path("exchanges", vhost, name), { type, durable, internal, auto_delete: false, arguments: jsonOf(given, "Arguments") }),
    done: (_, { vhost, name }) => {
      notify(`Exchange ${name} is declared.`);
      location.hash = link("exchanges", [vhost, name]);
    },
  });
}
