// Users, what they may do, and why.

import { useState } from "../vendor/preact-hooks.js";
import { path, query as encoded, request, usePoll } from "../api.js";
import { Badge, confirmLoss, Empty, Facts, Failure, html, Loading, notify, openForm, PageHead, Panel, Table } from "../parts.js";
import { link } from "../route.js";

const TAGS = "administrator, monitoring, policymaker, management, impersonator";

export function Users() {
  const users = usePoll(path("users"), 10_000);
  const permissions = usePoll(path("permissions"), 10_000);
  const { data, error } = users;
  const hosts = (name) => (permissions.data || []).filter((row) => row.user === name);
  const open = () => openUserForm(null);
  return html`<${PageHead} title="Users"><a class="button" href="#/why">Why may…</a><button type="button" class="button button-primary" onClick=${open}>New user</button><//>
    <${Failure} error=${error} />
    <${Panel} flush label="Users">${!data ? !error && html`<${Loading} />` : html`<${Table} label="Users" rows=${data} keyOf=${(row) => row.name} columns=${[
      { title: "User", show: (row) => html`<a class="name" href=${link("users", [row.name])}>${row.name}</a>` },
      { title: "Tags", show: (row) => html`<span class="badges">${row.tags.map((tag) => html`<${Badge} key=${tag} tone=${tag === "administrator" ? "warn" : "info"}>${tag}<//>`)}</span>` },
      { title: "Virtual hosts", full: true, show: (row) => (hosts(row.name).length ? hosts(row.name).map((each) => each.vhost).join(", ") : html`<${Badge} tone="warn" title="The user can log in nowhere">none<//>`) },
      { title: "Limits", show: (row) => Object.entries(row.limits).map(([name, value]) => `${name} ${value}`).join(", ") || html`<span class="quiet">none</span>` },
    ]} />`}<//>`;
}

function openUserForm(user) {
  openForm({
    title: user ? `Change ${user.name}` : "New user",
    fields: [
      ...(user ? [] : [{ name: "name", title: "Name", required: true }]),
      { name: "password", title: user ? "New password" : "Password", kind: "password", required: !user, help: user ? "Empty: the password stays as it is." : undefined },
      { name: "tags", title: "Tags", value: user ? user.tags.join(", ") : "", help: `Any of ${TAGS}. None: AMQP only, not this console.` },
    ],
    send: ({ name, password, tags }) => request("PUT", path("users", user ? user.name : name), { tags, ...(password ? { password } : {}) }),
    done: (_, values) => {
      notify(user ? "Changed." : `User ${values.name} is added. Give permissions next.`);
      if (!user) location.hash = link("users", [values.name]);
    },
  });
}

export function User({ rest: [name], session }) {
  const user = usePoll(path("users", name), 10_000);
  const permissions = usePoll(path("users", name, "permissions"), 10_000);
  const topics = usePoll(path("users", name, "topic-permissions"), 10_000);
  const hosts = usePoll(path("vhosts") + "?columns=name", 30_000);
  if (user.error?.status === 404) return html`<${Empty} title="There is no such user"><a href="#/users">All users</a><//>`;
  if (!user.data) return html`<${Failure} error=${user.error} />${!user.error && html`<${Loading} />`}`;
  const set = (row = {}) => openForm({
    title: `What ${name} may do`,
    lead: html`<p>Patterns over names of queues and exchanges. <span class="mono">.*</span> is all of them, <span class="mono">^$</span> none.</p>`,
    fields: [
      { name: "vhost", title: "Virtual host", kind: "choice", value: row.vhost || hosts.data?.[0]?.name, options: (hosts.data || []).map((host) => host.name) },
      { name: "configure", title: "Configure: declare and delete", value: row.configure ?? "^$" },
      { name: "write", title: "Write: publish to exchanges, bind queues", value: row.write ?? ".*" },
      { name: "read", title: "Read: consume, get, purge, bind from exchanges", value: row.read ?? ".*" },
    ],
    send: ({ vhost, configure, write, read }) => request("PUT", path("permissions", vhost, name), { configure, write, read }),
    done: () => notify("The permissions are in force."),
  });
  const clear = (row) => confirmLoss({
    title: `Shut ${name} out of ${row.vhost}?`, lead: html`<p>${name} may do nothing in ${row.vhost} any more, from the next request on. The user stays, with the same password.</p>`,
    button: "Take away", url: path("permissions", row.vhost, name), told: "Taken away.",
  });
  const remove = () => confirmLoss({
    title: `Delete ${name}?`, lead: html`<p>The user and all of its permissions go. <strong>Open connections of ${name} are closed.</strong> Queues and messages stay.</p>`,
    button: "Delete", typed: name, url: path("users", name), told: `${name} is deleted.`, leadsTo: "#/users",
  });
  return html`
    <${PageHead} title=${name} badges=${user.data.tags.map((tag) => html`<${Badge} key=${tag} tone="info">${tag}<//>`)} crumbs=${html`<a href="#/users">Users</a>`}>
      <a class="button" href=${link("why", [], { user: name })}>Why may…</a>
      <button type="button" class="button" onClick=${() => openUserForm(user.data)}>Change</button>
      ${name !== session.name && html`<button type="button" class="button button-warn" onClick=${remove}>Delete</button>`}
    <//>
    <${Panel} title="Permissions" flush side=${html`<button type="button" class="button" onClick=${() => set()}>Set</button>`}>
      ${permissions.data && (permissions.data.length ? html`<${Table} label="Permissions" rows=${permissions.data} keyOf=${(row) => row.vhost} columns=${[
        { title: "Virtual host", show: (row) => row.vhost },
        ...["configure", "write", "read"].map((kind) => ({ title: kind[0].toUpperCase() + kind.slice(1), show: (row) => html`<span class="mono">${row[kind] || "(empty: nothing)"}</span>` })),
        { title: "", slim: true, show: (row) => html`<button type="button" class="button button-quiet" onClick=${() => set(row)}>Change</button> <button type="button" class="button button-quiet" onClick=${() => clear(row)}>Take away</button>` },
      ]} />` : html`<${Empty} title="No permissions">${name} can log in to no virtual host yet. “Set” lets the user into one.<//>`)}
    <//>
    <${Panel} title="Routing keys" flush>
      ${topics.data && (topics.data.length ? html`<${Table} label="Topic permissions" rows=${topics.data} keyOf=${(row) => row.vhost + row.exchange} columns=${[
        { title: "Virtual host", show: (row) => row.vhost }, { title: "Exchange", show: (row) => row.exchange },
        { title: "Write", show: (row) => html`<span class="mono">${row.write}</span>` }, { title: "Read", show: (row) => html`<span class="mono">${row.read}</span>` },
      ]} />` : html`<p class="quiet padded">All routing keys may be used.</p>`)}
    <//>
    <${Panel} title="Limits"><${Facts} facts=${user.data.limits} none="No limits" /><//>`;
}

// Why may X do Y: the broker says which permission it takes, and which pattern gives or refuses it

const OPERATIONS = {
  "declare-queue": { title: "declare or delete the queue" },
  "declare-dlx": { title: "declare the queue with a dead-letter exchange", other: "the exchange" },
  "declare-exchange": { title: "declare or delete the exchange" },
  publish: { title: "publish to the exchange", other: "the routing key" },
  consume: { title: "consume or get from the queue" },
  purge: { title: "purge the queue" },
  bind: { title: "bind or unbind the queue", other: "the exchange" },
  "bind-exchange": { title: "bind or unbind the destination exchange", other: "the source exchange" },
};

export function Why({ query }) {
  const users = usePoll(path("users"), 0);
  const hosts = usePoll(path("vhosts") + "?columns=name", 0);
  const [asked, ask] = useState({ user: query.user || "", host: "/", operation: "publish", name: "", other: "" });
  const isAsked = asked.user && asked.name;
  const told = usePoll(isAsked ? path("flintmq", "why") + encoded({ ...asked, vhost: asked.host, host: "" }) : null, 0);
  const error = users.error || told.error;
  if (!users.data || !hosts.data) return html`<${Failure} error=${error} />${!error && html`<${Loading} />`}`;
  const operation = OPERATIONS[asked.operation];
  const write = (name) => (event) => ask({ ...asked, [name]: event.target.value });
  const answer = isAsked ? told.data : null;
  return html`<${PageHead} title="Why may…" lead="Which permission lets a user do something, or keeps it from it." />
    <${Panel} label="Question">
      <form class="why" onSubmit=${(event) => event.preventDefault()}>
        <label>May <select aria-label="User" value=${asked.user} onChange=${write("user")}><option value="">somebody</option>${users.data.map((row) => html`<option key=${row.name} value=${row.name} selected=${row.name === asked.user}>${row.name}</option>`)}</select></label>
        <label><span class="sr">Operation</span><select aria-label="Operation" value=${asked.operation} onChange=${write("operation")}>${Object.entries(OPERATIONS).map(([name, each]) => html`<option key=${name} value=${name} selected=${name === asked.operation}>${each.title}</option>`)}</select></label>
        <input aria-label="Name" placeholder="name" value=${asked.name} onInput=${write("name")} />
        ${operation.other && html`<label>with ${operation.other} <input aria-label=${operation.other} value=${asked.other} onInput=${write("other")} /></label>`}
        <label>in <select aria-label="Virtual host" value=${asked.host} onChange=${write("host")}>${hosts.data.map((row) => html`<option key=${row.name} value=${row.name}>${row.name}</option>`)}</select>?</label>
      </form>
      ${answer
        ? html`<div class=${answer.allowed ? "verdict verdict-good" : "verdict verdict-bad"} role="status"><strong>${answer.allowed ? "Yes." : "No."}</strong>
            <ol>${answer.steps.map((step, place) => html`<li key=${place} class=${step.allowed ? "step-good" : "step-bad"}>${step.text}</li>`)}</ol></div>`
        : html`<p class="quiet">Choose a user, and name a queue or an exchange.</p>`}
    <//>`;
}
