// Definitions: everything but messages as one JSON document, out and in.

import { useState } from "../vendor/preact-hooks.js";
import { can, get, path, request } from "../api.js";
import { count } from "../format.js";
import { useHost } from "../host.js";
import { Empty, html, notify, PageHead, Panel } from "../parts.js";

const KINDS = ["vhosts", "users", "permissions", "topic_permissions", "policies", "parameters", "queues", "exchanges", "bindings"];

export function Definitions() {
  const host = useHost();
  const url = host ? path("definitions", host) : path("definitions");
  const [error, fail] = useState(null);
  const [found, show] = useState(null);
  if (!can("/api/definitions")) return html`<${PageHead} title="Definitions" /><${Panel}><${Empty} title="This broker has no definitions over HTTP">They can be imported at its start: see docs/definitions.md.<//><//>`;
  const download = async () => {
    try {
      const text = JSON.stringify(await get(url), null, 2);
      const place = document.createElement("a");
      place.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      place.download = `flintmq-definitions${host ? `-${host.replace(/\W+/g, "_")}` : ""}.json`;
      place.click();
      setTimeout(() => URL.revokeObjectURL(place.href), 1000);
    } catch (failure) {
      fail(failure);
    }
  };
  const chosen = async (event) => {
    fail(null);
    show(null);
    const [file] = event.target.files;
    if (!file) return;
    try {
      show({ name: file.name, document: JSON.parse(await file.text()) });
    } catch (failure) {
      fail(new Error(`${file.name} is not JSON: ${failure.message}`));
    }
  };
  const upload = async () => {
    try {
      await request("POST", url, found.document);
      notify("The definitions are imported.");
      show(null);
    } catch (failure) {
      fail(failure);
    }
  };
  return html`<${PageHead} title="Definitions" lead=${`Exchanges, queues, bindings${host ? ` and policies of the virtual host ${host}` : ", users, permissions and policies of the whole broker"}, in the JSON that RabbitMQ has. No messages.`} />
    ${error && html`<div class="failure" role="alert">${error.message}</div>`}
    <div class="columns-2">
      <${Panel} title="Export"><p>A backup of how the broker is set up, or a start for another one.</p><button type="button" class="button button-primary" onClick=${download}>Export</button><//>
      <${Panel} title="Import"><p>What is there already stays, unless the document says otherwise. RabbitMQ's exports work too.</p>
        <label class="field"><span>Document</span><input type="file" accept="application/json,.json" onChange=${chosen} /></label>
        ${found && html`<p>${found.name} has ${KINDS.filter((kind) => found.document[kind]?.length).map((kind) => `${count(found.document[kind].length)} ${kind.replace("_", " ")}`).join(", ") || "nothing in it"}.</p>`}
        <button type="button" class="button button-primary" disabled=${!found} onClick=${upload}>Import</button><//>
    </div>`;
}
