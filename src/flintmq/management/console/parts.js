// The parts that all pages are made of.

import { h, render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import htm from "./vendor/htm.js";
import { query as queryOf, request, requestAndLeave, usePoll } from "./api.js";
import { count } from "./format.js";
import { setQuery, useRoute } from "./route.js";

export const html = htm.bind(h);

export const joined = (...names) => names.filter(Boolean).join(" ");

// Panels and figures

export function Panel({ title, side, children, flush, label }) {
  return html`<section class="panel" aria-label=${label || (typeof title === "string" ? title : undefined)}>
    ${(title || side) && html`<header class="panel-head"><h2>${title}</h2><div class="side">${side}</div></header>`}
    <div class=${flush ? "panel-flush" : "panel-body"}>${children}</div>
  </section>`;
}

export function Figure({ name, value, note, tone, href }) {
  const inner = html`<span class="figure-name">${name}</span>
    <span class=${joined("figure-value", tone && `tone-${tone}`)}>${value}</span>
    ${note !== undefined && html`<span class="figure-note">${note}</span>`}`;
  return href ? html`<a class="figure" href=${href}>${inner}</a>` : html`<div class="figure">${inner}</div>`;
}

export const Figures = ({ children }) => html`<div class="figures">${children}</div>`;

export function Badge({ tone, title, children }) {
  return html`<span class=${joined("badge", tone && `badge-${tone}`)} title=${title}>${children}</span>`;
}

export function Meter({ name, used, total, shown, note, tone }) {
  const share = total ? Math.min(1, used / total) : 0;
  const strength = tone || (share > 0.9 ? "bad" : share > 0.75 ? "warn" : "good");
  const bar = useRef(null);
  useEffect(() => {
    bar.current.style.width = `${Math.max(share * 100, 0.5)}%`;
  }, [share]);
  return html`<div class="meter">
    <div class="meter-line"><span>${name}</span><span class="num">${shown}</span></div>
    <div class="meter-track" role="meter" aria-label=${name} aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${Math.round(share * 100)}><div ref=${bar} class=${`meter-bar meter-${strength}`} /></div>
    ${note && html`<div class="figure-note">${note}</div>`}
  </div>`;
}

export function PageHead({ title, crumbs, badges, children, lead }) {
  return html`<div class="page-head">
    <div class="page-title">
      ${crumbs && html`<nav class="crumbs" aria-label="Where you are">${crumbs}</nav>`}
      <h1>${title} ${badges && html`<span class="badges">${badges}</span>`}</h1>
      ${lead && html`<p class="lead">${lead}</p>`}
    </div>
    <div class="actions">${children}</div>
  </div>`;
}

export function Empty({ title, children, code, label = "Example in Python" }) {
  return html`<div class="empty">
    <h3>${title}</h3>
    <p>${children}</p>
    ${code && html`<pre class="code" tabindex="0" aria-label=${label}>${code}</pre>`}
  </div>`;
}

export function Failure({ error }) {
  if (!error) return null;
  const why = error.status === 403 || error.status === 401 ? "Your user may not see this" : "This could not be loaded";
  return html`<div class="failure" role="alert"><strong>${why}.</strong> ${error.message}</div>`;
}

export const Loading = () => html`<div class="loading" role="status" aria-label="Loading"><i /><i /><i /></div>`;

/** A table of names and values, such as the arguments of a queue. */
export function Facts({ facts, none = "None" }) {
  const rows = Object.entries(facts || {}).filter(([, value]) => value !== undefined);
  if (!rows.length) return html`<p class="quiet">${none}</p>`;
  return html`<dl class="facts">
    ${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${fact(value)}</dd>`)}
  </dl>`;
}

function fact(value) {
  if (value === null) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : String(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" && !value.type ? JSON.stringify(value) : value;
}

export function Tabs({ tabs, active, onChoose }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = tabs.map((tab) => tab.name);
    const next = names[(names.indexOf(active) + step + names.length) % names.length];
    onChoose(next);
    event.currentTarget.querySelector(`[data-tab="${next}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" onKeyDown=${move}>
    ${tabs.map(({ name, title, number }) => html`<button role="tab" type="button" key=${name} data-tab=${name}
      aria-selected=${active === name ? "true" : "false"} tabindex=${active === name ? 0 : -1} onClick=${() => onChoose(name)}>
      ${title}${number !== undefined && number !== null && html`<span class="tab-number">${number}</span>`}</button>`)}
  </div>`;
}

// A line of the last minutes, as wide as a word

export function Spark({ values, label }) {
  if (!values || values.length < 2) return html`<span class="spark-none" aria-hidden="true" />`;
  const most = Math.max(...values, 1);
  const width = 88;
  const height = 22;
  const points = values.map((value, place) => [
    (place / (values.length - 1)) * width,
    height - 2 - (value / most) * (height - 4),
  ]);
  const line = points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  return html`<svg class=${values.some(Boolean) ? "spark" : "spark spark-flat"} viewBox="0 0 ${width} ${height}" role="img" aria-label=${label}>
    <path class="spark-area" d="${line}L${width} ${height}L0 ${height}Z" /><path class="spark-line" d=${line} />
  </svg>`;
}

// Tables

/** On a phone the rows of a table with more than three columns, or of one with `cards`, become cards. */
export function Table({ columns, rows, sort, desc, onSort, keyOf, label, rowClass, cards }) {
  return html`<div class=${joined("table-scroll", (cards || columns.length > 3) && "cards")}><table aria-label=${label}>
    <thead><tr>${columns.map((column) => {
      const isSorted = column.sort && column.sort === sort;
      return html`<th key=${column.title} scope="col" class=${joined(column.num && "num", column.slim && "slim", column.wide && "wide-only")}
        aria-sort=${isSorted ? (desc ? "descending" : "ascending") : undefined}>
        ${column.sort && onSort
          ? html`<button type="button" class=${joined("sort", isSorted && "sorted")} onClick=${() => onSort(column.sort)}>${column.title}<span aria-hidden="true">${isSorted ? (desc ? "↓" : "↑") : ""}</span></button>`
          : column.title}
      </th>`;
    })}</tr></thead>
    <tbody>${rows.map((row, place) => html`<tr key=${keyOf ? keyOf(row) : place} class=${rowClass?.(row)}>
      ${columns.map((column) => html`<td key=${column.title} data-title=${column.title} class=${joined(column.num && "num", column.slim && "slim", column.wide && "wide-only", column.full && "full")}>${column.show(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

/** A list that the server filters, sorts and cuts into pages; how is in the address. */
export function List({ base, ask = {}, columns, empty, keyOf, label, every = 5000, filter = true, defaultSort = "", defaultDesc = false, size = 50, rowClass, transform }) {
  const { query } = useRoute();
  const sort = query.sort ?? defaultSort;
  const desc = query.desc === undefined ? defaultDesc : query.desc === "1";
  const page = Number(query.page) || 1;
  const url = base + queryOf({
    page, page_size: size, name: query.name, use_regex: query.regex ? "true" : "", sort, sort_reverse: sort && desc ? "true" : "", ...ask,
  });
  const { data, error } = usePoll(url, every);
  const last = useRef(null);
  if (data) last.current = data;
  const shown = data || last.current;
  useEffect(() => {
    if (error && page > 1 && /page_out_of_range/.test(error.message)) setQuery({ page: undefined });
  }, [error, page]);
  const onSort = (column) => setQuery({ sort: column, desc: sort === column ? (desc ? "0" : "1") : "1", page: undefined });
  const isFiltered = Boolean(query.name);
  const items = shown ? (transform ? transform(shown.items) : shown.items) : null;
  return html`<div class="list">
    ${filter && (isFiltered || !shown || shown.total_count > 0) && html`<${Filter} name=${query.name || ""} regex=${query.regex} shown=${shown} />`}
    <${Failure} error=${error} />
    ${!shown && !error && html`<${Loading} />`}
    ${items && items.length === 0 && (isFiltered
      ? html`<${Empty} title="Nothing matches">No name has “${query.name}” in it. ${shown.total_count > 0 ? `There are ${count(shown.total_count)} without the filter.` : ""}<//>`
      : empty)}
    ${items && items.length > 0 && html`<${Table} ...${{ columns, sort, desc, onSort, keyOf, label, rowClass }} cards rows=${items} />`}
    ${shown && shown.page_count > 1 && html`<${Pager} page=${shown.page} pages=${shown.page_count} />`}
  </div>`;
}

function Filter({ name, regex, shown }) {
  const [text, write] = useState(name);
  const timer = useRef(0);
  useEffect(() => write(name), [name]);
  const typed = (event) => {
    const { value } = event.target;
    write(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ name: value, page: undefined }), 200);
  };
  return html`<div class="filter">
    <input type="search" data-filter class="filter-box" placeholder="Filter by name    /" aria-label="Filter by name" value=${text} onInput=${typed} />
    <label class="check"><input type="checkbox" checked=${Boolean(regex)} onChange=${(event) => setQuery({ regex: event.target.checked ? "1" : undefined, page: undefined })} /> Pattern</label>
    <span class="quiet num" aria-live="polite">${shown ? (shown.filtered_count === shown.total_count ? count(shown.total_count) : `${count(shown.filtered_count)} of ${count(shown.total_count)}`) : ""}</span>
  </div>`;
}

function Pager({ page, pages }) {
  const go = (to) => setQuery({ page: to === 1 ? undefined : to });
  return html`<nav class="pager" aria-label="Pages">
    <button type="button" class="button" disabled=${page <= 1} onClick=${() => go(page - 1)} aria-label="Page before">←</button>
    <span class="num">${count(page)} of ${count(pages)}</span>
    <button type="button" class="button" disabled=${page >= pages} onClick=${() => go(page + 1)} aria-label="Next page">→</button>
  </nav>`;
}

// Dialogs and messages

const layer = () => {
  let found = document.getElementById("dialogs");
  if (!found) {
    found = document.createElement("div");
    found.id = "dialogs";
    document.body.append(found);
  }
  return found;
};

/** Opens a dialog; what is drawn gets `close`. */
export function openDialog(draw) {
  const place = document.createElement("div");
  layer().append(place);
  const close = () => {
    render(null, place);
    place.remove();
  };
  render(html`<${DialogFrame} draw=${draw} close=${close} />`, place);
}

export function closeDialogs() {
  for (const each of [...layer().children]) {
    render(null, each);
    each.remove();
  }
}

function DialogFrame({ draw, close }) {
  const frame = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    frame.current.showModal();
    return () => before?.focus?.();
  }, []);
  const outside = (event) => event.target === frame.current && close();
  return html`<dialog ref=${frame} onClose=${close} onMouseDown=${outside}>${h(draw, { close })}</dialog>`;
}

/** A form in a dialog: fields, what is sent, and what went wrong. */
export function openForm({ title, lead, fields, start = {}, button = "Save", danger, typed, send, done, wide }) {
  openDialog(({ close }) => {
    const [values, write] = useState(() => ({ ...Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""])), ...start }));
    const [error, fail] = useState(null);
    const [busy, work] = useState(false);
    const [proof, prove] = useState("");
    const submit = async (event) => {
      event.preventDefault();
      work(true);
      fail(null);
      try {
        const result = await send(values);
        close();
        done?.(result, values);
      } catch (failure) {
        fail(failure);
        work(false);
      }
    };
    return html`<form class=${joined("dialog", wide && "dialog-wide")} onSubmit=${submit} aria-label=${title}>
      <h2>${title}</h2>
      ${lead && html`<div class="dialog-lead">${lead}</div>`}
      ${fields.map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} onWrite=${(value) => write({ ...values, [field.name]: value })} />`)}
      ${typed && html`<label class="field"><span>Type <b class="mono">${typed}</b> to confirm</span>
        <input type="text" name="proof" autocomplete="off" value=${proof} onInput=${(event) => prove(event.target.value)} /></label>`}
      ${error && html`<div class="failure" role="alert">${error.message}</div>`}
      <div class="dialog-buttons">
        <button type="button" class="button" onClick=${close}>Cancel</button>
        <button type="submit" class=${danger ? "button button-danger" : "button button-primary"} disabled=${busy || (typed && proof !== typed)}>${busy ? "…" : button}</button>
      </div>
    </form>`;
  });
}

export function Field({ field, value, onWrite }) {
  const { name, title, kind = "text", options, help, rows = 4, required, placeholder } = field;
  if (kind === "check") {
    return html`<label class="check field-check"><input type="checkbox" name=${name} checked=${Boolean(value)} onChange=${(event) => onWrite(event.target.checked)} /> ${title}</label>`;
  }
  const input = { name, value, required, placeholder, onInput: (event) => onWrite(event.target.value) };
  return html`<label class="field"><span>${title}</span>
    ${kind === "choice"
      ? html`<select name=${name} value=${value} onChange=${input.onInput}>${options.map((option) => html`<option value=${option.value ?? option} selected=${(option.value ?? option) === value}>${option.title ?? option}</option>`)}</select>`
      : kind === "area" || kind === "json"
        ? html`<textarea ...${input} rows=${rows} spellcheck=${false} class="mono" />`
        : html`<input type=${kind} ...${input} autocomplete=${kind === "password" ? "new-password" : "off"} spellcheck=${false} />`}
    ${help && html`<small>${help}</small>`}
  </label>`;
}

/** The value of a field that holds JSON; a sentence that helps when it does not. */
export function jsonOf(text, what) {
  if (!text.trim()) return {};
  let found;
  try {
    found = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error.message}`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error(`${what} must be a JSON object, such as {"x-max-length": 1000}`);
  return found;
}

export function notify(text, tone = "good") {
  let place = document.getElementById("notices");
  if (!place) {
    place = document.createElement("div");
    place.id = "notices";
    place.setAttribute("role", "status");
    document.body.append(place);
  }
  const notice = document.createElement("div");
  notice.className = `notice notice-${tone}`;
  notice.textContent = text;
  place.append(notice);
  setTimeout(() => notice.remove(), tone === "bad" ? 8000 : 4000);
}

/** Asks before something is lost, and says what. */
export function confirmLoss({ title, lead, button, typed, method = "DELETE", url, body, leadsTo, told }) {
  openForm({
    title, lead, button, typed, danger: true, fields: [],
    send: () => (leadsTo ? requestAndLeave(method, url, body, leadsTo) : request(method, url, body)),
    done: () => notify(told),
  });
}
