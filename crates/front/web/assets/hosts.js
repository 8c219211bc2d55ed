// View of the hosts of a fleet: their state, load and ports.
import { get, may, post } from "./api.js";
import { h, isConfirmed, notify, onActions, repeat, show } from "./dom.js";
import { badge, bitRate, bytes } from "./format.js";

export const title = "Hosts";

const INTERVAL = 2000;

// State of a host in words, with a link to its run.
function state(host) {
  const run = host.state.match(/^run (.+)$/)?.[1];
  return run ? h("span", {}, "run ", h("a", { href: `#/run/${encodeURIComponent(run)}` }, run)) : host.state;
}

const port = (one) => h("li", {}, badge(one.up ? "up" : "down"), ` ${one.locator}`, one.speed_bps ? ` · ${bitRate(one.speed_bps)}` : "");

const fact = (name, value, kind) => value != null && h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value));

function card(host, own) {
  const isDrained = host.state === "draining", labels = Object.entries(host.labels);
  return h("article", { class: "box", "data-key": host.host },
    h("header", {}, h("h3", {}, host.host), h("span", { class: `badge ${host.state === "free" ? "good" : isDrained ? "doubt" : "live"}` }, state(host))),
    h("dl", { class: "facts" },
      fact("Version", host.version === own ? host.version : `${host.version} (this server has ${own})`), fact("Kernel", host.kernel.split(" #")[0]),
      fact("CPUs", host.cpus), fact("Memory", bytes(host.memory_bytes)), fact("Load of each CPU", host.load?.toFixed(2)),
      labels.length > 0 && fact("Labels", labels.map(([key, value]) => `${key}=${value}`).join(", "), "long"),
      fact("Ports", host.ports.length ? h("ul", { class: "findings" }, host.ports.map(port)) : "none", "long")),
    may("admin") && h("p", {}, h("button", { type: "button", class: "quiet", "data-do": isDrained ? "accept" : "drain", "data-host": host.host }, isDrained ? "Accept runs again" : "Refuse new runs")));
}

export function open(root, { signal }) {
  const list = h("div", {}, h("p", { class: "muted" }, "Asking the hosts …"));
  let own = "";
  root.append(h("h1", {}, "Hosts"), h("p", { class: "muted" }, "Hosts of the fleet that are there. A plan names their ports as HOST:PORT."), list);

  const turn = repeat(async () => {
    try {
      own ||= (await get("host")).version;
      const hosts = await get("fleet/agents");
      if (signal.aborted) return INTERVAL;
      show(list, hosts.length ? h("div", { class: "cards" }, hosts.map((host) => card(host, own)))
        : h("p", {}, "No host is there. ", h("code", {}, "wirebench fleet add"), " makes the access file of a host, and ", h("code", {}, "wirebench agent --fleet FILE"), " there lets it join."));
    } catch (failure) {
      if (failure.status > 0 && failure.status !== 401) notify(failure.text);
      return 3000;
    }
    return INTERVAL;
  }, signal);

  async function set(button, on) {
    try {
      await post(`fleet/agents/${encodeURIComponent(button.dataset.host)}/drain`, { on });
      turn();
    } catch (failure) {
      notify(failure.text);
    }
  }

  onActions(root, {
    drain: (button) => { if (isConfirmed(button, "Refuse them: sure?")) set(button, true); },
    accept: (button) => set(button, false),
  }, signal);
}
