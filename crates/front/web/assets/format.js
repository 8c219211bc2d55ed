// Figures and times for people.
import { h } from "./dom.js";

const digits = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: 3 });

export function duration(ns) {
  const s = ns / 1e9;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  const [hours, minutes, seconds] = [Math.floor(s / 3600), Math.floor(s / 60) % 60, Math.floor(s) % 60];
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours} h ${two(minutes)} min` : `${minutes} min ${two(seconds)} s`;
}

// Time of a day; with the day unless it is today.
export function when(text) {
  if (!text) return "–";
  const at = new Date(text);
  const time = at.toLocaleTimeString("en-GB");
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `;
  return h("time", { datetime: text, title: at.toString() }, day + time);
}

export const percent = (share) => `${Math.floor(Math.min(1, share) * 100)} %`;

export function bitRate(bps) {
  for (const [unit, n] of [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) if (bps >= n) return `${digits(bps / n)} ${unit}`;
  return `${bps} bit/s`;
}

export function bytes(n) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (n >= size) return `${digits(n / size)} ${unit}`;
  return `${n} B`;
}

// Class of a verdict, a state or a finding.
export function tone(word) {
  if (["pass", "ok", "good"].includes(word)) return "good";
  if (["fail", "invalid", "refused", "problem", "bad"].includes(word)) return "bad";
  if (["incomplete", "warn"].includes(word)) return "doubt";
  if (["preparing", "armed", "running", "draining"].includes(word)) return "live";
  return "";
}

export const badge = (word) => h("span", { class: `badge ${tone(word)}` }, word);

// Verdict of a run; without a verdict, its end or its state.
export const outcome = (run) => (run.state !== "ended" ? run.state : run.verdict ?? run.end ?? "ended");

export const title = (run) => run.name?.trim() || `${run.kind} ${run.target || (run.ports ?? []).join(", ")}`.trim();

// Main figures of a run, in a row.
export const figures = (list) => h("dl", { class: "figures" }, (list ?? []).filter((figure) => figure.value).map((figure) =>
  h("div", { class: tone(figure.tone) }, h("dt", {}, figure.label), h("dd", {}, figure.value))));

export const bar = (run) => h("div", { class: "bar" },
  h("progress", { max: 1, value: run.progress ?? (run.state === "queued" ? 0 : null), "aria-label": "Progress" }),
  h("span", {}, [run.progress == null ? null : percent(run.progress), duration(run.elapsed_ns ?? 0)].filter(Boolean).join(" · ")));
