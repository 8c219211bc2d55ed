// Progress of a benchmark, from its snapshots: the search, and the trials that have ended.
import { h } from "./dom.js";
import { duration, tone } from "./format.js";

const SHOWN = 100;
const number = (value, unit) => `${Math.round(value).toLocaleString("en-US")} ${unit}`;
const name = (bench) => [bench.metric ?? bench.test ?? "search", bench.step || (bench.size && `${bench.size}${/^\d+$/.test(bench.size) ? " B" : ""}`)].filter(Boolean).join(", ");

export class Bench {
  live = null;
  trials = new Map();

  add(snapshot) {
    const { bench } = snapshot;
    if (!bench) return;
    this.live = bench;
    const { ended } = bench;
    if (ended) this.trials.set([name(bench), bench.burst, bench.trial, ended.purpose].join(), { bench, ended });
  }

  // Share of the time that has passed, if the remaining time is known.
  progress(elapsed) {
    return this.live?.left_ns == null || this.live.purpose === "ceiling" ? null : elapsed / (elapsed + this.live.left_ns);
  }

  elements() {
    if (!this.live) return null;
    const { trial, purpose, load, low, high, unit, left_ns: left } = this.live;
    const facts = [
      trial > 0 && `trial ${trial}${purpose ? ` (${purpose})` : ""}`, load != null && `at ${number(load, unit)}`,
      low != null && `passed ${number(low, unit)}`, high != null && `failed ${number(high, unit)}`, left != null && `about ${duration(left)} left`,
    ];
    const rows = [...this.trials.values()].reverse().slice(0, SHOWN).map(({ bench, ended }) => h("tr", {},
      h("td", { class: `k ${tone(ended.outcome)}` }, ended.outcome), h("td", { class: "k" }, name(bench)), h("td", { class: "n" }, bench.trial),
      h("td", { class: "n" }, number(ended.intended ?? ended.asked, bench.unit)), h("td", { class: "k" }, ended.purpose), h("td", { class: "l" }, ended.reason)));
    return h("section", { class: "bench" },
      h("p", {}, h("b", {}, name(this.live)), ` ${facts.filter(Boolean).join(" · ")}`),
      rows.length > 0 && h("div", { class: "wide", tabindex: 0 }, h("table", { class: "t" },
        h("thead", {}, h("tr", {}, ["outcome", "test", "trial", "load", "purpose", "reason"].map((text, n) => h("th", { class: [2, 3].includes(n) && "n" }, text)))), h("tbody", {}, rows))));
  }
}
