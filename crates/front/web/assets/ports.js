// View of the ports: facts about each interface, its user, and the limits for measurements there.
import { get } from "./api.js";
import { copy, h, notify, onActions, repeat, show } from "./dom.js";
import { badge, bitRate } from "./format.js";

export const title = "Ports";

const LEVELS = ["problem", "warn", "note", "ok"];
const INTERVAL = 10000;

export const link = (port) => (!port.up ? "down" : port.carrier ? "up" : "no carrier");

// User of a port in words, with a link to its run.
export function holder(held) {
  if (!held) return "free";
  if (held.run) return h("span", {}, "run ", h("a", { href: `#/run/${encodeURIComponent(held.run)}` }, held.run));
  return held.owner ? `owner ${held.owner}` : held.process;
}

function findings(port) {
  const list = [...port.findings ?? []].sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
  if (!list.length) return null;
  const counts = LEVELS.map((level) => [level, list.filter((one) => one.level === level).length]).filter(([, n]) => n);
  const isBad = link(port) === "up" && counts.some(([level]) => level === "problem");
  return h("details", { open: isBad, "data-key": "findings" },
    h("summary", {}, "Checks: ", counts.map(([level, n]) => [badge(level), ` ${n} `])),
    h("ul", { class: "findings" }, list.map((one) => h("li", {}, badge(one.level), ` ${one.topic}: `, one.text,
      one.fix && h("span", { class: "fix" }, h("code", {}, one.fix), h("button", { type: "button", class: "quiet", "data-do": "copy", "data-text": one.fix, "aria-label": `Copy ${one.fix}` }, "Copy"))))));
}

// Drivers that runs use with the reason, and the reason for each of the others.
const drivers = (port) => [port.driver_choice, h("details", { "data-key": "drivers" },
  h("summary", {}, "All drivers"),
  h("ul", { class: "findings" }, port.drivers.map((one) => h("li", {},
    badge(one.sends && one.receives ? "ok" : one.sends ? "sends" : one.receives ? "receives" : "no"), ` ${one.name}${one.mode ? ` (${one.mode})` : ""}: ${one.why}`))))];

const fact = (name, value, kind) => value && h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value));

const card = (port) => h("article", { class: "box", "data-key": port.locator },
  h("header", {}, h("h3", {}, port.locator), h("span", { class: `badge ${link(port) === "up" ? "good" : "doubt"}` }, link(port))),
  h("dl", { class: "facts" },
    fact("Used by", holder(port.held_by), port.held_by && "long"), fact("Speed", port.speed_bps ? bitRate(port.speed_bps) : "not known"), fact("Kernel driver", port.driver ?? "–"),
    fact("Connected to", port.peer), fact("MAC", port.mac), fact("MTU", `${port.mtu} B`),
    fact("Drivers", port.driver_choice && drivers(port), "long"), fact("Addresses", port.addresses.length ? port.addresses.join(", ") : "none", "long")),
  findings(port));

export function open(root, { signal }) {
  const list = h("div", {}, h("p", { class: "muted" }, "Reading the ports …"));
  root.append(h("h1", {}, "Ports"), h("p", { class: "muted" }, "Interfaces that runs may use. Of a name with a slash, the first part is a network namespace."), list);

  function draw(ports) {
    show(list, ports.length ? h("div", { class: "cards" }, ports.sort((a, b) => (link(b) === "up") - (link(a) === "up")).map(card))
      : h("p", {}, "The server offers no ports. ", h("code", {}, "wirebench lab up pair"), " makes two; ", h("code", {}, "--ports"), " of the server may exclude others."));
  }

  onActions(root, { copy: (button) => copy(button.dataset.text) }, signal);
  repeat(async () => {
    try {
      const ports = await get("ports?doctor=1");
      if (!signal.aborted) draw(ports);
    } catch (failure) {
      if (failure.status > 0 && failure.status !== 401) notify(failure.text);
      return 3000;
    }
    return INTERVAL;
  }, signal);
}
