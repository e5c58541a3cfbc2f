// Deep links: what is shown is in the address, as #/queues/%2F/orders?sort=messages.

import { useEffect, useState } from "./vendor/preact-hooks.js";

export function parse(hash) {
  const [where, search = ""] = hash.replace(/^#\/?/, "").split("?");
  let segments;
  try {
    segments = where.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    segments = [];
  }
  return { page: segments[0] || "overview", rest: segments.slice(1), query: Object.fromEntries(new URLSearchParams(search)) };
}

export function link(page, rest = [], query = {}) {
  const where = [page, ...rest].map(encodeURIComponent).join("/");
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return `#/${where}${pairs.length ? "?" + new URLSearchParams(pairs) : ""}`;
}

export function useRoute() {
  const [route, show] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => show(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Changes the query of the address, without a new entry in the history for each letter of a filter. */
export function setQuery(changes) {
  const { page, rest, query } = parse(location.hash);
  history.replaceState(null, "", link(page, rest, { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
