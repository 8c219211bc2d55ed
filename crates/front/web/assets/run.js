// View of one run: its report so far, once per second; after the end the report, its other forms and its files.
import { get, may, post } from "./api.js";
import { Bench } from "./bench.js";
import { h, notify, onActions, repeat, show, showReport } from "./dom.js";
import { badge, bar, bytes, duration, outcome, title as titleOf, when } from "./format.js";

export const title = "Run";

const FORMS = [["html", "page"], ["markdown", "Markdown"], ["csv", "CSV"], ["text", "text"], ["json", "JSON"], ["junit", "JUnit"]];
const LEAST_INTERVAL = 1000, LONGEST_INTERVAL = 3000, KEPT_MESSAGES = 20, DOUBLE_CLICK = 1500;

// Plots of a report. A plot that is also in the next report stays, with its zoom.
class Plots {
  drawn = new Map();

  update(root, { xs, plots }) {
    const places = new Set();
    plots.forEach((plot, n) => {
      const place = root.querySelector(`#plot-${n}`);
      if (!place) return;
      places.add(place);
      const shown = this.drawn.get(place);
      if (shown && wbPlots.update(shown, plot, xs[plot.xs])) return;
      shown?.u.destroy();
      this.drawn.set(place, wbPlots.draw(plot, xs[plot.xs], place));
    });
    for (const [place, shown] of this.drawn) {
      if (places.has(place)) continue;
      shown.u.destroy();
      this.drawn.delete(place);
    }
  }

  // Moves the first plots over time above the tables, where they are seen without a search. Later ones are details.
  raise(root, { plots }) {
    let first = null;
    plots.forEach(({ x }, n) => {
      const figure = root.querySelector(`#plot-${n}`)?.closest("figure");
      if (!figure || x.kind !== "linear" || x.unit !== "s") return;
      let section = figure;
      while (section && section.nodeName !== "H2") section = section.previousElementSibling;
      first ??= section;
      if (section === first) figure.classList.add("first");
    });
  }

  // Draws all plots anew, in the current colours.
  redraw() {
    for (const [place, shown] of this.drawn) {
      shown.u.destroy();
      this.drawn.set(place, wbPlots.draw(shown.p, shown.xs, place));
    }
  }

  fit() {
    this.drawn.forEach(wbPlots.fit);
  }

  clear() {
    this.drawn.forEach((shown) => shown.u.destroy());
    this.drawn.clear();
  }
}

export function open(root, { id, signal }) {
  const path = `runs/${encodeURIComponent(id)}`, plots = new Plots(), bench = new Bench(), messages = [];
  const head = h("div", { class: "run-head" }), body = h("div", { class: "report" });
  const rate = h("input", { type: "number", id: "rate", min: 1, max: 10000, value: 100 });
  const steering = h("form", { class: "filters", hidden: true },
    h("label", {}, "Rate, % of the plan ", rate), h("button", {}, "Set"),
    h("button", { type: "button", "data-do": "pause" }, "Pause"), h("button", { type: "button", "data-do": "resume" }, "Resume at 100 %"));
  const streams = h("div", { class: "streams" });
  root.append(head, steering, streams, body);
  let run = null, files = [], events = null, stopping = "", shownAt = 0, timer = 0;

  async function refresh() {
    clearTimeout(timer);
    timer = 0;
    shownAt = Date.now();
    const view = await get(`${path}/view`);
    if (signal.aborted) return;
    run = view;
    if (run.state === "ended") files = await get(`${path}/files`);
    if (signal.aborted) return;
    steering.hidden = !run.can_be_steered || !may("run");
    show(streams, !may("run") ? [] : streamsOf(run));
    draw();
    showReport(body, view.body ?? "");
    const data = view.data ?? { xs: [], plots: [] };
    if (run.state !== "ended") plots.raise(body, data);
    plots.update(body, data);
    if (run.state === "ended") unfollow();
    else follow();
  }

  // Events come as often as the plan wants; the page changes at most once per second.
  function refreshSoon() {
    if (!timer) timer = setTimeout(turnNow, Math.max(0, shownAt + LEAST_INTERVAL - Date.now()));
  }

  async function turn() {
    if (run?.state === "ended") return 60000;
    try {
      await refresh();
    } catch (failure) {
      if (failure.status === 404 || failure.status === 403) {
        show(head, h("h1", {}, "Run"), h("p", { class: "warning" }, failure.text), h("p", {}, h("a", { href: "#/runs" }, "All runs")));
        return 60000;
      }
      if (failure.status > 0 && failure.status !== 401) notify(failure.text);
    }
    return LONGEST_INTERVAL;
  }

  function follow() {
    // The browser connects again by itself, unless the server refused.
    if (document.hidden || (events && events.readyState !== EventSource.CLOSED)) return;
    events = new EventSource(`/api/v1/${path}/events`);
    const on = (name, work) => events.addEventListener(name, work);
    for (const name of ["state", "resync", "report"]) on(name, refreshSoon);
    on("snapshot", (event) => {
      bench.add(JSON.parse(event.data));
      refreshSoon();
    });
    on("message", (event) => {
      const { text } = JSON.parse(event.data);
      if (!messages.includes(text)) messages.push(text);
      refreshSoon();
    });
  }

  function unfollow() {
    events?.close();
    events = null;
  }

  function draw() {
    const hasEnded = run.state === "ended";
    const state = hasEnded ? outcome(run) : run.progress == null ? run.state : `${Math.floor(run.progress * 100)} %`;
    document.title = `${state} · ${titleOf(run)} · wirebench`;
    show(head,
      h("header", {}, h("h1", {}, titleOf(run)), badge(hasEnded ? outcome(run) : run.state),
        !hasEnded && may("run") && h("button", { type: "button", class: "danger", "data-do": "stop" }, { "": "Stop", asked: "Stopping …", now: "Stop now" }[stopping])),
      h("p", { class: "muted" }, [run.kind, (run.ports ?? []).join(", "), run.started ? "started " : "requested "].filter(Boolean).join(" · "),
        when(run.started ?? run.requested), hasEnded && run.started && ` · took ${duration(run.elapsed_ns)}`, ` · ${run.id}`),
      !hasEnded && bar({ ...run, progress: run.progress ?? bench.progress(run.elapsed_ns) }),
      !hasEnded && run.now && h("p", { class: "now" }, run.now),
      !hasEnded && bench.elements(),
      stopping && !hasEnded && h("p", { class: "muted" }, "Stopping: frames in flight are awaited. “Stop now” does not wait for them."),
      run.state === "queued" && h("p", { class: "warning" }, run.reason || "The run waits for its ports, or for other runs to end."),
      hasEnded && run.end === "refused" && h("p", { class: "warning" }, run.reason || "The run never started."),
      messages.length > 0 && !hasEnded && h("details", { open: true, class: "messages" }, h("summary", {}, "Messages"),
        h("ul", {}, messages.slice(-KEPT_MESSAGES).map((text) => h("li", {}, text)))),
      h("p", { class: "links" },
        hasEnded && run.verdict && h("span", {}, "Report: ", FORMS.map(([form, name]) => h("a", { href: `/api/v1/${path}/report?format=${form}`, target: "_blank" }, name))),
        files.length > 0 && h("span", {}, "Files: ", files.map((file) => h("a", { href: `/api/v1/${path}/files/${encodeURIComponent(file.name)}`, download: file.name }, `${file.name} (${bytes(file.bytes)})`))),
        h("span", {}, h("a", { href: `#/new?from=${encodeURIComponent(id)}` }, hasEnded && may("run") ? "Run again" : "Plan"))));
  }

  // Switches and rates of the streams that are sent now.
  function streamsOf({ streams: list = [], more_streams: more }) {
    if (!list.length) return [];
    const control = ({ name, on, rate: now, fixed }) => h("tr", { "data-key": name },
      h("th", { scope: "row", class: "k" }, name),
      h("td", {}, h("button", { type: "button", role: "switch", "aria-checked": String(on), "aria-label": `Stream ${name}`, disabled: fixed, "data-do": "switch", "data-name": name, "data-on": String(on) }, on ? "on" : "off")),
      h("td", { class: "l" }, fixed ? h("span", { class: "muted" }, fixed) : now == null ? h("span", { class: "muted" }, "its rate cannot change")
        : h("form", { "data-name": name }, h("input", { value: now, required: true, autocomplete: "off", spellcheck: "false", "aria-label": `Rate of ${name}` }), h("button", {}, "Set"))));
    return h("details", { class: "box", "data-key": "streams" },
      h("summary", {}, list.length === 1 ? "Change the stream" : `Change single streams (${list.length + more})`),
      h("div", { class: "wide" }, h("table", { class: "t" }, h("tbody", {}, list.map(control)))),
      more > 0 && h("p", { class: "muted" }, `The API changes the other ${more} streams.`));
  }

  async function attempt(work) {
    try {
      await work();
    } catch (failure) {
      notify(failure.text);
    }
    turnNow();
  }

  async function drain() {
    const step = (to) => { stopping = to; if (!signal.aborted) draw(); };
    step("asked");
    const later = setTimeout(step, DOUBLE_CLICK, "now");
    try {
      await post(`${path}/stop`, { how: "drain" });
    } catch (failure) {
      clearTimeout(later);
      step("");
      throw failure;
    }
  }

  const steer = (wish, text) => attempt(async () => {
    await post(`${path}/steer`, wish);
    notify(text, false);
  });
  onActions(root, {
    stop: () => {
      // The second click of a double click is not "Stop now".
      if (stopping !== "asked") attempt(stopping ? () => post(`${path}/stop`, { how: "now" }) : drain);
    },
    switch: ({ dataset }) => {
      const { name } = dataset, on = dataset.on === "false";
      steer({ stream: name, on }, on ? `Stream ${name} continues.` : `Stream ${name} pauses. Its frames are not intended until it continues.`);
    },
    pause: () => steer({ pause: true }, "Paused: nothing new is started."),
    resume: () => { rate.value = 100; steer({ rate: 1 }, "The rate is that of the plan."); },
  }, signal);
  steering.addEventListener("submit", (event) => {
    event.preventDefault();
    steer({ rate: Number(rate.value) / 100 }, `The rate is ${rate.value} % of the plan.`);
  });
  streams.addEventListener("submit", (event) => {
    event.preventDefault();
    const { dataset: { name }, firstChild: field } = event.target, wish = field.value.trim();
    steer({ stream: name, rate: wish }, `The rate of stream ${name} is ${wish}.`);
  });
  // The fragment of the address belongs to the views, so the page goes to sections of the report itself.
  body.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link) return;
    event.preventDefault();
    body.querySelector(`[id="${link.getAttribute("href").slice(1)}"]`)?.scrollIntoView();
  });
  document.addEventListener("wb-colours", () => plots.redraw(), { signal });
  // A browser has few connections to one server for all its tabs.
  document.addEventListener("visibilitychange", () => { if (document.hidden) unfollow(); }, { signal });
  addEventListener("resize", () => plots.fit(), { signal });
  signal.addEventListener("abort", () => { clearTimeout(timer); unfollow(); plots.clear(); });
  const turnNow = repeat(turn, signal);
}
