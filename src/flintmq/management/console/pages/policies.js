// Policies, with what each of them matches now.

import { path, query, request, usePoll } from "../api.js";
import { count } from "../format.js";
import { listPath, useHost } from "../host.js";
import { Badge, confirmLoss, Empty, Facts, Failure, html, jsonOf, Loading, notify, openForm, PageHead, Panel, Table } from "../parts.js";
import { link } from "../route.js";

const KINDS = ["queues", "exchanges", "all", "classic_queues", "quorum_queues", "streams"];

export function Policies({ session }) {
  const host = useHost();
  const maySet = session.tags.some((tag) => tag === "administrator" || tag === "policymaker");
  return html`<${PageHead} title="Policies" lead="A policy gives queues and exchanges arguments by the pattern of their names. The one of the highest priority that matches is in force.">
      ${maySet && html`<button type="button" class="button button-primary" onClick=${() => openPolicyForm("policies", { vhost: host || "/" })}>New policy</button>`}
    <//>
    <${PolicyList} kind="policies" title="Policies" maySet=${maySet} />
    <${PolicyList} kind="operator-policies" title="Operator policies" maySet=${session.tags.includes("administrator")} lead=${html`An operator policy caps what users ask for: with <span class="mono">max-length</span> of 1000 here, no queue that matches holds more, whatever its arguments or other policies say.`} />`;
}

function PolicyList({ kind, title, maySet, lead }) {
  const host = useHost();
  const { data, error } = usePoll(listPath(kind, host), 5000);
  const remove = (row) => confirmLoss({
    title: `Delete ${row.name}?`, lead: html`<p>Queues and exchanges that it is in force for go back to the next policy that matches, or to their own arguments, at once. A limit that is gone drops nothing; messages without a time to live stay.</p>`,
    button: "Delete", url: path(kind, row.vhost, row.name), told: `${row.name} is out of force.`,
  });
  const side = maySet && kind !== "policies" && html`<button type="button" class="button" onClick=${() => openPolicyForm(kind, { vhost: host || "/" })}>New</button>`;
  return html`<${Panel} title=${title} flush side=${side}><${Failure} error=${error} />
    ${!data && !error && html`<${Loading} />`}
    ${data && (data.length === 0
      ? html`<${Empty} title=${`No ${title.toLowerCase()}`}>${lead || "A policy changes queues while they are in use, which arguments of a declare cannot. Try the pattern ^jobs with the definition {\"message-ttl\": 3600000}."}<//>`
      : html`<${Table} label=${title} rows=${data} keyOf=${(row) => row.vhost + "\u0000" + row.name} columns=${[
        { title: "Policy", show: (row) => html`<span class="name">${row.name}</span>${row.vhost !== "/" && html` <span class="quiet host-note">${row.vhost}</span>`}` },
        { title: "Pattern", show: (row) => html`<span class="mono">${row.pattern}</span>` },
        { title: "For", show: (row) => row["apply-to"] },
        { title: "Priority", num: true, show: (row) => row.priority },
        { title: "Asks for", full: true, show: (row) => html`<${Facts} facts=${row.definition} />` },
        { title: "Matches now", full: true, show: (row) => html`<${Matches} row=${row} kind=${kind} />` },
        { title: "", slim: true, show: (row) => maySet && html`<button type="button" class="button button-quiet" onClick=${() => openPolicyForm(kind, row)} aria-label=${`Change ${row.name}`}>Change</button>
          <button type="button" class="button button-quiet" onClick=${() => remove(row)} aria-label=${`Delete ${row.name}`}>Delete</button>` },
      ]} />`)}
  <//>`;
}

// Policies for queues of one type: the server finds queues by name, and their types are looked at here.
const TYPES = { classic_queues: "classic", quorum_queues: "quorum", streams: "stream" };
const TYPED_MAX = 500;
const NAMED_MAX = 5;

/** The server matches the pattern, as it does for the policy itself. */
function Matches({ row, kind }) {
  const what = row["apply-to"] === "exchanges" ? "exchanges" : "queues";
  const type = TYPES[row["apply-to"]];
  const { data } = usePoll(path(what, row.vhost) + query({ page: 1, page_size: type ? TYPED_MAX : NAMED_MAX, name: row.pattern, use_regex: "true", columns: "name,type,policy,operator_policy" }), 10_000);
  if (!data) return html`<span class="quiet">–</span>`;
  const found = type ? data.items.filter((each) => each.type === type) : data.items;
  const total = type ? found.length : data.filtered_count;
  const isMore = type && data.filtered_count > TYPED_MAX;
  if (!total) return html`<${Badge} tone="warn">no ${what}<//>`;
  const field = kind === "policies" ? "policy" : "operator_policy";
  return html`<a class="num" href=${link(what, [], { name: row.pattern, regex: 1 })}>${count(total)}${isMore ? " or more" : ""} ${total === 1 && !isMore ? what.slice(0, -1) : what}</a>
    <div class="small quiet">${found.slice(0, NAMED_MAX).map((each) => `${each.name}${what === "queues" && each[field] !== row.name ? ` (${each[field] || "none"} in force)` : ""}`).join(", ")}${total > NAMED_MAX || isMore ? ", …" : ""}</div>`;
}

function openPolicyForm(kind, row) {
  openForm({
    title: row.name ? `Change ${row.name}` : kind === "policies" ? "New policy" : "New operator policy",
    fields: [
      ...(row.name ? [] : [{ name: "name", title: "Name", required: true }, { name: "vhost", title: "Virtual host", value: row.vhost, required: true }]),
      { name: "pattern", title: "Pattern of names", value: row.pattern ?? "", required: true, placeholder: "^orders\\." },
      { name: "applyTo", title: "For", kind: "choice", value: row["apply-to"] || "queues", options: KINDS },
      { name: "priority", title: "Priority", kind: "number", value: String(row.priority ?? 0), help: "The highest that matches wins." },
      { name: "definition", title: "Asks for", kind: "json", rows: 4, required: true, value: row.definition ? JSON.stringify(row.definition, null, 2) : "", placeholder: '{"max-length": 100000, "dead-letter-exchange": "dead-letters"}' },
    ],
    send: ({ name, vhost, pattern, applyTo, priority, definition }) => request("PUT", path(kind, row.name ? row.vhost : vhost, row.name || name), {
      pattern, priority: Number(priority), "apply-to": applyTo, definition: jsonOf(definition, "The definition"),
    }),
    done: () => {
      notify("The policy is in force.");
    },
  });
}
