// Virtual hosts and their limits.

import { path, request, usePoll } from "../api.js";
import { brief, count, dig, rate } from "../format.js";
import { chooseHost } from "../host.js";
import { Badge, confirmLoss, Failure, html, List, notify, openForm, PageHead, Panel } from "../parts.js";

const LIMITS = ["max-connections", "max-channels", "max-queues"];

export function Hosts({ session }) {
  const isAdmin = session.tags.includes("administrator");
  const limits = usePoll(path("vhost-limits"), 10_000);
  const limitsOf = (name) => limits.data?.find((row) => row.vhost === name)?.value || {};
  const open = () => openForm({
    title: "New virtual host", button: "Add",
    lead: html`<p>A virtual host has queues, exchanges, users' permissions and policies of its own.</p>`,
    fields: [{ name: "name", title: "Name", required: true }],
    send: ({ name }) => request("PUT", path("vhosts", name), {}),
    done: (_, { name }) => notify(`Virtual host ${name} is added, and you may do everything in it.`),
  });
  const limit = (row) => openForm({
    title: `Limits of ${row.name}`, lead: html`<p>What is there already stays. Empty is no limit.</p>`,
    fields: LIMITS.map((name) => ({ name, title: name, kind: "number", value: String(limitsOf(row.name)[name] ?? "") })),
    send: async (values) => {
      for (const name of LIMITS) {
        const had = limitsOf(row.name)[name] !== undefined;
        if (values[name] !== "") await request("PUT", path("vhost-limits", row.name, name), { value: Number(values[name]) });
        else if (had) await request("DELETE", path("vhost-limits", row.name, name));
      }
    },
    done: () => notify("The limits are in force."),
  });
  const remove = (row) => confirmLoss({
    title: `Delete ${row.name}?`,
    lead: html`<p><strong>All of its queues and ${count((row.messages ?? 0) + (row.messages_delayed ?? 0))} messages are lost for good</strong>, with its exchanges, policies and permissions. Its connections are closed.</p>`,
    button: "Delete", typed: row.name, url: path("vhosts", row.name), told: `${row.name} is deleted.`,
  });
  return html`<${PageHead} title="Virtual hosts">${isAdmin && html`<button type="button" class="button button-primary" onClick=${open}>New virtual host</button>`}<//>
    <${Failure} error=${limits.error} />
    <${Panel} flush label="Virtual hosts"><${List} label="Virtual hosts" base=${path("vhosts")} keyOf=${(row) => row.name} defaultSort="name" columns=${[
      { title: "Virtual host", sort: "name", show: (row) => html`<a class="name" href="#/queues" onClick=${() => chooseHost(row.name)}>${row.name}</a>` },
      { title: "Ready", sort: "messages_ready", num: true, show: (row) => brief(row.messages_ready ?? 0) },
      { title: "Unacked", sort: "messages_unacknowledged", num: true, show: (row) => brief(row.messages_unacknowledged ?? 0) },
      { title: "Delayed", sort: "messages_delayed", num: true, wide: true, show: (row) => html`<span title="Wait for a retry">${brief(row.messages_delayed ?? 0)}</span>` },
      { title: "Published", sort: "message_stats.publish_details.rate", num: true, show: (row) => rate(dig(row, "message_stats.publish_details.rate") ?? 0) },
      { title: "Delivered", sort: "message_stats.deliver_get_details.rate", num: true, show: (row) => rate(dig(row, "message_stats.deliver_get_details.rate") ?? 0) },
      { title: "Limits", show: (row) => html`<span class="badges">${Object.entries(limitsOf(row.name)).map(([name, value]) => html`<${Badge} key=${name}>${name} ${count(value)}<//>`)}</span>` },
      { title: "", slim: true, show: (row) => isAdmin && html`<button type="button" class="button button-quiet" onClick=${() => limit(row)} aria-label=${`Limits of ${row.name}`}>Limits</button>
        <button type="button" class="button button-quiet" onClick=${() => remove(row)} aria-label=${`Delete ${row.name}`}>Delete</button>` },
    ]} /><//>`;
}
