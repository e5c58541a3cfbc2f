// What queues looked like in the last minutes, as far as this tab has seen it.

import { dig } from "./format.js";

const KEPT = 300;
const QUEUES_MAX = 2000;
const seen = new Map();

const keyOf = (vhost, name) => `${vhost}\u0000${name}`;

export function note(queue, now = Date.now()) {
  const key = keyOf(queue.vhost, queue.name);
  let found = seen.get(key);
  if (!found) {
    if (seen.size >= QUEUES_MAX) seen.delete(seen.keys().next().value);
    found = { times: [], ready: [], unacked: [], publish: [], deliver: [], ack: [] };
    seen.set(key, found);
  }
  if (found.times.length && now / 1000 - found.times.at(-1) < 0.5) return;
  found.times.push(now / 1000);
  found.ready.push(queue.messages_ready ?? 0);
  found.unacked.push(queue.messages_unacknowledged ?? 0);
  for (const [name, count] of [["publish", "publish"], ["deliver", "deliver_get"], ["ack", "ack"]]) {
    found[name].push(dig(queue, `message_stats.${count}_details.rate`) ?? 0);
  }
  for (const values of Object.values(found)) if (values.length > KEPT) values.shift();
}

const NOTHING = { times: [], ready: [], unacked: [], publish: [], deliver: [], ack: [] };
export const historyOf = (vhost, name) => seen.get(keyOf(vhost, name)) || NOTHING;
