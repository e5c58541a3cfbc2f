// Bindings of a queue or an exchange, and how to make and take away one.

import { path, request, usePoll } from "../api.js";
import { Badge, confirmLoss, Empty, Failure, html, jsonOf, Loading, notify, openForm, Table } from "../parts.js";
import { link } from "../route.js";

export const exchangeName = (name) => name || "(default)";
export const exchangeLink = (vhost, name) => link("exchanges", [vhost, name || "amq.default"]);

export function destinationLink(row) {
  return row.destination_type === "queue" ? link("queues", [row.vhost, row.destination]) : exchangeLink(row.vhost, row.destination);
}

export function Bindings({ url, vhost, side, none }) {
  const { data, error } = usePoll(`${url}?page=1&page_size=500`, 5000);
  if (!data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const unbind = (row) => confirmLoss({
    title: "Take this binding away?",
    lead: html`<p>Messages that come to ${exchangeName(row.source)} with the key <b class="mono">${row.routing_key || "(empty)"}</b> no longer go to ${row.destination} by it. Without another way there they are dropped, or returned to publishers that ask for it.</p>`,
    button: "Unbind",
    url: path("bindings", vhost, "e", row.source, row.destination_type === "queue" ? "q" : "e", row.destination, row.properties_key),
    told: "The binding is gone.",
  });
  return html`<div>
    ${(side || data.filtered_count > 500) && html`<div class="row-head padded-sides"><span class="quiet">${data.filtered_count > 500 ? `The first 500 of ${data.filtered_count}` : ""}</span>${side}</div>`}
    ${data.items.length === 0
      ? none || html`<${Empty} title="No bindings">Without a binding no message is routed.<//>`
      : html`<${Table} label="Bindings" rows=${data.items} keyOf=${(row) => [row.source, row.destination_type, row.destination, row.properties_key].join("\u0000")} columns=${[
        { title: "From exchange", show: (row) => html`<a href=${exchangeLink(vhost, row.source)}>${exchangeName(row.source)}</a>` },
        { title: "Routing key", show: (row) => html`<span class="mono">${row.routing_key || html`<span class="quiet">empty</span>`}</span>` },
        { title: "Arguments", show: (row) => (Object.keys(row.arguments).length ? html`<span class="mono">${JSON.stringify(row.arguments)}</span>` : "") },
        { title: "To", show: (row) => html`<a href=${destinationLink(row)}>${row.destination}</a> ${row.destination_type === "exchange" && html`<${Badge}>exchange<//>`}` },
        { title: "", slim: true, show: (row) => (row.source ? html`<button type="button" class="button button-quiet" onClick=${() => unbind(row)} aria-label=${`Unbind ${row.destination} from ${row.source}`}>Unbind</button>` : html`<span class="quiet">always</span>`) },
      ]} />`}
  </div>`;
}

export function openBindingForm({ vhost, source = "", destination = "", kind = "q" }) {
  openForm({
    title: "New binding",
    button: "Bind",
    fields: [
      { name: "source", title: "From exchange", required: true, value: source },
      { name: "kind", title: "To a", kind: "choice", value: kind, options: [{ value: "q", title: "Queue" }, { value: "e", title: "Exchange" }] },
      { name: "destination", title: "Named", required: true, value: destination },
      { name: "key", title: "Routing key", help: "In a topic exchange * is one word and # is any number of words." },
      { name: "arguments", title: "Arguments", kind: "json", rows: 2, placeholder: '{"x-match": "all", "type": "invoice"}' },
    ],
    send: ({ source: from, kind: to, destination: name, key, arguments: given }) => request("POST", path("bindings", vhost, "e", from, to, name), { routing_key: key, arguments: jsonOf(given, "Arguments") }),
    done: () => {
      notify("Bound.");
    },
  });
}
