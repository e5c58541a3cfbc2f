// The console: who is signed in, the frame around the pages, keys.

import { render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { arrived, currentSession, learnPaths, path, signIn, signOut, usePoll, watchSession } from "./api.js";
import { closeDialogs, Failure, html, joined, Loading, openDialog } from "./parts.js";
import { link, useRoute } from "./route.js";
import { chosenHost, chooseHost, hostListeners } from "./host.js";
import { Overview } from "./pages/overview.js";
import { Channels, Connection, Connections, Consumers } from "./pages/connections.js";
import { Exchange, Exchanges } from "./pages/exchanges.js";
import { Queues } from "./pages/queues.js";
import { Queue } from "./pages/queue.js";
import { Streams } from "./pages/streams.js";
import { Leases, Transactions } from "./pages/transactions.js";
import { User, Users, Why } from "./pages/users.js";
import { Hosts } from "./pages/hosts.js";
import { Policies } from "./pages/policies.js";
import { Definitions } from "./pages/definitions.js";
import { Journal } from "./pages/journal.js";
import { Audit, Log } from "./pages/logs.js";

// name, title, the key after g, the page, the page of one of them, and the tag that it takes
const GROUPS = [
  ["", [["overview", "Overview", "o", Overview]]],
  ["Clients", [
    ["connections", "Connections", "c", Connections, Connection],
    ["channels", "Channels", "h", Channels],
    ["consumers", "Consumers", "n", Consumers],
  ]],
  ["Messages", [
    ["exchanges", "Exchanges", "e", Exchanges, Exchange],
    ["queues", "Queues", "q", Queues, Queue],
    ["streams", "Streams", "s", Streams],
    ["transactions", "Transactions", "t", Transactions],
    ["leases", "Leases", "l", Leases],
  ]],
  ["Access", [
    ["users", "Users", "u", Users, User, "administrator"],
    ["why", "Why may…", "w", Why, null, "administrator"],
    ["hosts", "Virtual hosts", "v", Hosts],
    ["policies", "Policies", "p", Policies],
  ]],
  ["Broker", [
    ["definitions", "Definitions", "d", Definitions, null, "administrator"],
    ["journal", "Journal", "j", Journal, null, "monitoring"],
    ["audit", "Audit", "a", Audit, null, "administrator"],
    ["log", "Log", "r", Log, null, "administrator"],
  ]],
];
const LEVELS = { administrator: ["administrator"], monitoring: ["administrator", "monitoring"] };
const THEMES = { auto: "System colours", light: "Light", dark: "Dark" };

const mayUse = (session, tag) => !tag || LEVELS[tag].some((each) => session.tags.includes(each));

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("flintmq.theme", theme);
  dispatchEvent(new Event("themechange"));
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true"><path d="M13.2 1.5 4.5 13.4c-.4.5 0 1.2.6 1.2h5.1l-1.9 7.2c-.2.8.8 1.3 1.3.6l9.9-12.5c.4-.5 0-1.2-.6-1.2h-5.4l1.1-6.5c.1-.8-.9-1.3-1.4-.7Z" /></svg>`;
}

function SignIn({ onSession }) {
  const [error, fail] = useState(null);
  const [busy, work] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    work(true);
    try {
      onSession(await signIn(form.get("username"), form.get("password")));
    } catch (failure) {
      fail(failure);
      work(false);
    }
  };
  return html`<main class="sign-in"><form onSubmit=${submit} aria-label="Sign in">
    <div class="brand"><${Mark} />FlintMQ</div>
    <label class="field"><span>User</span><input name="username" autocomplete="username" required autofocus /></label>
    <label class="field"><span>Password</span><input name="password" type="password" autocomplete="current-password" required /></label>
    ${error && html`<div class="failure" role="alert">${error.status === 401 ? "The broker refuses this user and password, or the user has no tag that opens the console." : error.message}</div>`}
    <button class="button button-primary" disabled=${busy}>${busy ? "…" : "Sign in"}</button>
    <p class="quiet">Users, passwords and permissions are those of AMQP. Signing in takes a tag such as <span class="mono">monitoring</span>.</p>
  </form></main>`;
}

function openKeys() {
  openDialog(({ close }) => html`<div class="dialog" role="document">
    <h2>Keys</h2>
    <dl class="keys">
      <dt><kbd>/</kbd></dt><dd>Filter this list</dd>
      ${GROUPS.flatMap(([, pages]) => pages).map(([name, title, key]) => html`<dt key=${name}><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${title}</dd>`)}
      <dt><kbd>Esc</kbd></dt><dd>Close a dialog, leave a field</dd>
      <dt><kbd>?</kbd></dt><dd>These keys</dd>
    </dl>
    <div class="dialog-buttons"><button class="button" onClick=${close}>Close</button></div>
  </div>`);
}

function useKeys() {
  useEffect(() => {
    let wasG = 0;
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const isField = event.target.matches?.("input, textarea, select");
      if (isField) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (event.key === "/") {
        const box = document.querySelector("[data-filter]");
        if (box) {
          event.preventDefault();
          box.focus();
          box.select();
        }
      } else if (event.key === "?") openKeys();
      else if (event.key === "g") wasG = event.timeStamp;
      else if (wasG && event.timeStamp - wasG < 1500) {
        wasG = 0;
        const page = GROUPS.flatMap(([, pages]) => pages).find((each) => each[2] === event.key);
        if (page) location.hash = link(page[0]);
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function HostChoice() {
  const { data } = usePoll(path("vhosts") + "?columns=name", 30_000);
  const [, show] = useState(0);
  useEffect(() => {
    const changed = () => show((number) => number + 1);
    hostListeners.add(changed);
    return () => hostListeners.delete(changed);
  }, []);
  if (!data || data.length < 2) return null;
  return html`<label class="host-choice"><span class="sr">Virtual host</span>
    <select value=${chosenHost()} onChange=${(event) => chooseHost(event.target.value)}>
      <option value="">All virtual hosts</option>
      ${data.map((host) => html`<option value=${host.name} key=${host.name}>Virtual host ${host.name}</option>`)}
    </select></label>`;
}

function AlarmBar({ session }) {
  const { data } = usePoll(mayUse(session, "monitoring") ? path("flintmq", "alarms") : null, 5000);
  if (!data?.alarms?.length) return null;
  return html`<div class="alarm-bar" role="alert">
    ${data.alarms.map((alarm) => html`<p key=${alarm.resource}><strong>${alarm.resource} alarm:</strong> ${alarm.reason}. Publishers wait until it is over${data.blocked.length ? `: ${data.blocked.length} ${data.blocked.length === 1 ? "connection" : "connections"} now` : ""}.</p>`)}
  </div>`;
}

function ThemeChoice() {
  const [theme, choose] = useState(localStorage.getItem("flintmq.theme") || "auto");
  return html`<label class="theme-choice"><span class="sr">Colours</span>
    <select value=${theme} onChange=${(event) => { choose(event.target.value); setTheme(event.target.value); }}>
      ${Object.entries(THEMES).map(([name, title]) => html`<option value=${name} key=${name}>${title}</option>`)}
    </select></label>`;
}

function Frame({ session }) {
  const route = useRoute();
  const [isOpen, open] = useState(false);
  const main = useRef(null);
  const first = useRef(true);
  useKeys();
  useEffect(() => {
    arrived();
    open(false);
    closeDialogs();
    scrollTo(0, 0);
    if (first.current) first.current = false;
    else main.current?.focus({ preventScroll: true });
  }, [route.page, route.rest.join("/")]);
  const pages = GROUPS.flatMap(([, each]) => each);
  const entry = pages.find(([name]) => name === route.page);
  const title = entry ? entry[1] : "Not found";
  useEffect(() => {
    document.title = `${route.rest.at(-1) || title} · FlintMQ`;
  });
  const Page = entry && (route.rest.length && entry[4] ? entry[4] : entry[3]);
  return html`<div class=${joined("frame", isOpen && "frame-open")}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the page</a>
    <header class="top">
      <button type="button" class="menu-button" aria-label="Menu" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => open(!isOpen)}><i /><i /><i /></button>
      <a class="brand" href="#/overview"><${Mark} />FlintMQ</a>
      <div class="top-side"><${HostChoice} /><${ThemeChoice} />
        <button type="button" class="button button-quiet keys-button" onClick=${openKeys} aria-label="Keys">?</button>
        <button type="button" class="button button-quiet" onClick=${signOut} title=${`Signed in as ${session.name}`}><span class="who">${session.name} · </span>Sign out</button></div>
    </header>
    <nav class="menu" aria-label="Pages">
      ${GROUPS.map(([group, each]) => html`<div class="menu-group" key=${group}>
        ${group && html`<h2>${group}</h2>`}
        ${each.filter(([, , , , , tag]) => mayUse(session, tag)).map(([name, text, key]) => html`<a key=${name} href=${link(name)} aria-current=${route.page === name ? "page" : undefined}>${text}<kbd aria-hidden="true">g ${key}</kbd></a>`)}
      </div>`)}
    </nav>
    <div class="shade" onClick=${() => open(false)} />
    <main ref=${main} id="main" tabindex="-1">
      <${AlarmBar} session=${session} />
      ${Page && !mayUse(session, entry[5])
        ? html`<div class="empty"><h3>This page is not for you</h3><p>It takes the tag <span class="mono">${entry[5]}</span>, which the user ${session.name} does not have.</p></div>`
        : Page
        ? html`<${Page} key=${route.page + "/" + route.rest.join("/")} rest=${route.rest} query=${route.query} session=${session} />`
        : html`<div class="empty"><h3>There is no such page</h3><p>The menu has all that there are.</p></div>`}
    </main>
  </div>`;
}

function App() {
  const [session, show] = useState(undefined);
  const [error, fail] = useState(null);
  const begin = async (found) => {
    if (found) await learnPaths();
    show(found);
  };
  useEffect(() => {
    watchSession(() => {
      closeDialogs();
      show(null);
    });
    currentSession().then(begin).catch(fail);
  }, []);
  if (error) return html`<main class="sign-in"><${Failure} error=${error} /></main>`;
  if (session === undefined) return html`<${Loading} />`;
  if (!session) return html`<${SignIn} onSession=${begin} />`;
  return html`<${Frame} session=${session} />`;
}

setTheme(localStorage.getItem("flintmq.theme") || "auto");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
render(html`<${App} />`, document.getElementById("app"));
