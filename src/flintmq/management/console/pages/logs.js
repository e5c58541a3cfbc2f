// What was done and by whom (the audit log), and what the broker says of itself (the log): the newest first.

import { path, query as queryOf, usePoll } from "../api.js";
import { count, moment } from "../format.js";
import { useEffect, useRef, useState } from "../vendor/preact-hooks.js";
import { Badge, Empty, Failure, html, Loading, PageHead, Panel, Table } from "../parts.js";
import { link, setQuery } from "../route.js";

const LOOK_MS = 3000;
const SHOWN = 100;
const SHOWN_MAX = 1000;
const LEVELS = { debug: "All lines", info: "Info and above", warning: "Warnings and errors", error: "Errors" };
const LEVEL_TONES = { WARNING: "warn", ERROR: "bad", CRITICAL: "bad" };
const OUTCOMES = [["", "All"], ["allowed", "Allowed"], ["refused", "Refused"]];

/** The last entries of a log; while others are on their way those before stay. */
function useTail(where, ask, query) {
  const limit = Math.min(SHOWN_MAX, Math.max(1, Math.floor(Number(query.limit)) || SHOWN));
  const { data, error } = usePoll(where && where + queryOf({ ...ask, limit }), query.paused ? 0 : LOOK_MS);
  const last = useRef(null);
  if (data) last.current = data;
  return { data: data || last.current, error, limit };
}

/** A box whose text is in the address once nothing more is typed. */
function TextFilter({ name, value, label, isMain }) {
  const [text, write] = useState(value);
  const timer = useRef(0);
  useEffect(() => write(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (event) => {
    const { value: next } = event.target;
    write(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ [name]: next, limit: undefined }), 250);
  };
  return html`<input type="search" class=${isMain ? "filter-box" : "filter-small"} data-filter=${isMain} placeholder=${isMain ? `${label}    /` : label} aria-label=${label} value=${text} onInput=${typed} />`;
}

function Live({ query, shown }) {
  return html`<label class="check"><input type="checkbox" checked=${!query.paused} onChange=${(event) => setQuery({ paused: event.target.checked ? undefined : "1" })} /> Live</label>
    <span class="quiet num" aria-live="polite">${shown}</span>`;
}

function More({ data, limit }) {
  if (!data?.more) return null;
  return html`<div class="pager">${limit < SHOWN_MAX
    ? html`<button type="button" class="button" onClick=${() => setQuery({ limit: SHOWN_MAX })}>Show up to ${count(SHOWN_MAX)}</button>`
    : html`<span class="quiet">The console shows ${count(SHOWN_MAX)} at most: a filter finds what is older, and the file has all of it.</span>`}</div>`;
}

const Nothing = ({ isFiltered, page }) => (isFiltered
  ? html`<${Empty} title="Nothing matches">No entry of the last 8 MiB is like that. <a href=${link(page)}>Show all</a><//>`
  : html`<${Empty} title="Nothing yet">What happens from now on is shown here.<//>`);

// The audit log

const others = ({ time, event, outcome, user, address, connection, virtual_host, subject, reason, arguments: given, count: times, repeated, ...rest }) => rest;

function Details({ entry }) {
  const rest = others(entry);
  const given = Object.entries(entry.arguments || {});
  return html`${entry.reason && html`<span class="reason">${entry.reason}</span>`}
    ${given.length > 0 && html`<span class="mono small given">${given.map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ")}</span>`}
    ${entry.count > 0 && html`<span class="quiet">${entry.repeated ? "the same " : ""}${entry.count === 1 ? "once" : `${count(entry.count)} times`} more</span>`}
    ${Object.keys(rest).length > 0 && html`<span class="mono small given">${JSON.stringify(rest)}</span>`}`;
}

const where = (entry) => [entry.virtual_host, entry.subject].filter((part) => part !== undefined && part !== "").join(" · ");

export function Audit({ query }) {
  const node = usePoll(path("nodes"), 0);
  const file = node.data?.[0].audit_file;
  const { contains = "", user = "", event = "", outcome = "" } = query;
  const { data, error, limit } = useTail(file ? path("flintmq", "audit") : null, { contains, user, event, outcome }, query);
  const only = (changes) => link("audit", [], { ...query, ...changes });
  if (node.data && !file) {
    return html`<${PageHead} title="Audit" /><${Panel}><${Empty} title="There is no audit log" label="Settings" code=${`[audit]
file = "/var/log/flintmq/audit.log"`}>Who signed in, who was refused what, and each change of users, permissions and policies are written down where the settings of the broker name a file:<//><//>`;
  }
  return html`<${PageHead} title="Audit" lead=${file ? `Who did what, and whether it was allowed. In ${file}.` : undefined} />
    <${Panel} label="Audit log" flush>
      <div class="filter">
        <${TextFilter} name="contains" value=${contains} label="Entries with this text" isMain />
        <${TextFilter} name="user" value=${user} label="User" />
        <${TextFilter} name="event" value=${event} label="Event" />
        <div class="segments" role="group" aria-label="Outcome">${OUTCOMES.map(([value, title]) => html`<button type="button" key=${value} aria-pressed=${outcome === value ? "true" : "false"} onClick=${() => setQuery({ outcome: value })}>${title}</button>`)}</div>
        <${Live} query=${query} shown=${data ? `${count(data.entries.length)}${data.more ? " newest" : ""}` : ""} />
      </div>
      <${Failure} error=${node.error || error} />
      ${!data && !error && !node.error && html`<${Loading} />`}
      ${data && data.entries.length === 0 && html`<${Nothing} isFiltered=${Boolean(contains || user || event || outcome)} page="audit" />`}
      ${data && data.entries.length > 0 && html`<${Table} label="Audit log" cards rows=${data.entries} columns=${[
        { title: "Time", show: (row) => html`<span class="num nowrap" title=${row.time}>${row.time ? moment(Date.parse(row.time)) : "–"}</span>` },
        { title: "Event", full: true, show: (row) => html`<a class="name nowrap" href=${only({ event: row.event })}>${row.event}</a>` },
        { title: "Outcome", show: (row) => html`<${Badge} tone=${row.outcome === "allowed" ? "good" : "bad"}>${row.outcome}<//>` },
        { title: "User", show: (row) => (row.user ? html`<a href=${only({ user: row.user })}>${row.user}</a>` : html`<span class="quiet">nobody</span>`) },
        { title: "From", show: (row) => html`<span class="mono">${row.address || "–"}</span>` },
        { title: "Where", full: true, show: (row) => where(row) || null },
        { title: "Details", full: true, show: (row) => html`<${Details} entry=${row} />` },
      ]} />`}
      <${More} data=${data} limit=${limit} />
    <//>`;
}

// The log

/** A line of text or JSON: its time, level and message, and the traceback behind it. */
export function lineOf(line) {
  const [head, ...rest] = line.split("\n");
  if (head.startsWith("{")) {
    try {
      const { time, level, logger, message, exception, stack } = JSON.parse(head);
      return { time, level: String(level).toUpperCase(), logger, message: String(message), trace: [exception, stack].filter(Boolean).join("\n") };
    } catch {
      // A line that was cut, or is none of the broker's: it is shown as it is.
    }
  }
  const found = head.match(/^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (.*)$/s);
  if (!found) return { time: "", level: "", message: head, trace: rest.join("\n") };
  return { time: found[1], level: found[2], message: found[3], trace: rest.map((each) => each.replace(/^ {4}/, "")).join("\n") };
}

export function Log({ query }) {
  const node = usePoll(path("nodes"), 0);
  const file = node.data?.[0].log_files[0];
  const { contains = "", level = "debug" } = query;
  const { data, error, limit } = useTail(file ? path("flintmq", "log") : null, { contains, level: LEVELS[level] ? level : "debug" }, query);
  if (node.data && !file) {
    return html`<${PageHead} title="Log" /><${Panel}><${Empty} title="The log goes to standard error" label="Settings" code=${`[log]
file = "/var/log/flintmq/flintmq.log"
rotate_bytes = "100MiB"`}>The console shows it here where the settings of the broker name a file:<//><//>`;
  }
  return html`<${PageHead} title="Log" lead=${file ? `What the broker says of itself. In ${file}.` : undefined} />
    <${Panel} label="Log" flush>
      <div class="filter">
        <${TextFilter} name="contains" value=${contains} label="Lines with this text" isMain />
        <label><span class="sr">Level</span><select value=${LEVELS[level] ? level : "debug"} onChange=${(event) => setQuery({ level: event.target.value === "debug" ? undefined : event.target.value })}>
          ${Object.entries(LEVELS).map(([name, title]) => html`<option value=${name} key=${name}>${title}</option>`)}</select></label>
        <${Live} query=${query} shown=${data ? `${count(data.lines.length)}${data.more ? " newest" : ""}` : ""} />
      </div>
      <${Failure} error=${node.error || error} />
      ${!data && !error && !node.error && html`<${Loading} />`}
      ${data && data.lines.length === 0 && html`<${Nothing} isFiltered=${Boolean(contains || level !== "debug")} page="log" />`}
      ${data && data.lines.length > 0 && html`<ol class="log" aria-label="Lines of the log">${data.lines.map((text, place) => html`<${LogLine} key=${place} line=${lineOf(text)} />`)}</ol>`}
      <${More} data=${data} limit=${limit} />
    <//>`;
}

function LogLine({ line }) {
  return html`<li>
    <span class="log-head"><time class="num">${line.time}</time>${line.level && html`<${Badge} tone=${LEVEL_TONES[line.level]}>${line.level.toLowerCase()}<//>`}</span>
    <span class="log-text">${line.message}${line.trace && html`<details><summary>Traceback</summary><pre class="code" tabindex="0" aria-label="Traceback">${line.trace}</pre></details>`}</span>
  </li>`;
}
