// The virtual host that lists are narrowed down to; none is all of them.

import { path } from "./api.js";
import { useEffect, useState } from "./vendor/preact-hooks.js";

const KEPT = "flintmq.host";
let chosen = sessionStorage.getItem(KEPT) || "";
export const hostListeners = new Set();

export const chosenHost = () => chosen;

export function chooseHost(name) {
  chosen = name;
  sessionStorage.setItem(KEPT, name);
  for (const listener of [...hostListeners]) listener();
}

export function useHost() {
  const [, show] = useState(0);
  useEffect(() => {
    const changed = () => show((number) => number + 1);
    hostListeners.add(changed);
    return () => hostListeners.delete(changed);
  }, []);
  return chosen;
}

/** The list of a kind: of the chosen virtual host, or of all. */
export const listPath = (kind, host) => (host ? path(kind, host) : path(kind));
