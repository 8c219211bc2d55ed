// View of all runs: the current ones with their figures, and the history.
import { get, may, post, remove } from "./api.js";
import { h, isConfirmed, notify, onActions, repeat, show } from "./dom.js";
import { badge, bar, duration, figures, outcome, title as titleOf, tone, when } from "./format.js";

export const title = "Runs";

const PAGE = 50;
const CURRENT = ["queued", "preparing", "armed", "running", "draining"];
const WORDS = ["pass", "completed", "fail", "invalid", "incomplete", "refused"];
const isCurrent = (run) => run.state !== "ended";

export function open(root, { signal }) {
  const known = new Map(), picked = new Set();
  let isComplete = false, oldest = null, isLoaded = false;

  const filter = h("input", { type: "search", id: "filter", placeholder: "name, port, kind, reason" });
  const verdict = h("select", { id: "verdict" }, h("option", { value: "" }, "any"), WORDS.map((word) => h("option", {}, word)));
  const filters = h("div", { class: "filters", hidden: true },
    h("label", {}, "Filter ", filter), h("label", {}, "Verdict ", verdict),
    h("span", { id: "compare" }));
  const current = h("div", { class: "cards" }), history = h("div", {});
  root.append(h("h1", {}, "Runs"), current, filters, history);

  // Adds runs of the server, the newest first. Those of this range that the server no longer has go away.
  function merge(list, from, isLast) {
    const last = isLast ? "" : list.at(-1).id;
    const ids = new Set(list.map((run) => run.id));
    for (const [id, run] of known) if ((!from || id < from) && id >= last && !ids.has(id) && !isCurrent(run)) known.delete(id);
    for (const run of list) known.set(run.id, { ...known.get(run.id), ...run });
    if (list.length && (!oldest || list.at(-1).id < oldest)) oldest = list.at(-1).id;
  }

  async function load(query = "") {
    const list = await get(`runs?limit=${PAGE}${query && `&before=${query}`}`);
    const isLast = list.length < PAGE;
    if (isLast) isComplete = true;
    merge(list, query, isLast);
    return list;
  }

  // Updates current and picked runs that are older than the newest page of the list.
  async function loadOlder(list) {
    if (!isLoaded && !isComplete) {
      const lists = await Promise.all(CURRENT.map((state) => get(`runs?state=${state}`)));
      for (const run of lists.flat()) known.set(run.id, run);
    }
    const seen = new Set(list.map((run) => run.id));
    for (const run of [...known.values()].filter((run) => (isCurrent(run) || picked.has(run.id)) && !seen.has(run.id))) {
      try {
        known.set(run.id, { ...run, ...await get(`runs/${run.id}`) });
      } catch (failure) {
        if (failure.status === 404) known.delete(run.id);
        else throw failure;
      }
    }
  }

  async function turn() {
    try {
      await loadOlder(await load());
      isLoaded = true;
    } catch (failure) {
      if (failure.status > 0 && failure.status !== 401) notify(failure.text);
      return 2000;
    }
    if (!signal.aborted) draw();
    return [...known.values()].some(isCurrent) ? 1000 : 4000;
  }

  function matches(run) {
    if (verdict.value && outcome(run) !== verdict.value) return false;
    const text = [run.id, run.name, run.kind, run.target, run.reason, outcome(run), ...run.ports ?? [], ...Object.entries(run.labels ?? {}).map((label) => label.join("="))].join(" ").toLowerCase();
    return filter.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  function draw() {
    for (const id of picked) if (!known.has(id)) picked.delete(id);
    const all = [...known.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
    const ended = all.filter((run) => !isCurrent(run)), found = ended.filter(matches);
    document.title = `${all.some(isCurrent) ? `${all.filter(isCurrent).length} running` : "Runs"} · wirebench`;
    show(current, all.length ? all.filter(isCurrent).map(card) : welcome());
    filters.hidden = !ended.length;
    show(filters.querySelector("#compare"), picked.size < 2 ? h("span", { class: "muted" }, "Tick two runs to compare them.")
      : h("a", { class: "button primary", target: "_blank", href: `/api/v1/compare?runs=${[...picked].sort().map(encodeURIComponent)}` }, `Compare ${picked.size} runs`));
    show(history, !ended.length ? [] : [
      h("h2", {}, "History"),
      h("div", { class: "rows", role: "table", "aria-label": "History" }, found.map(row)),
      !found.length && h("p", { class: "muted" }, `None of the ${ended.length} runs loaded matches.`),
      h("p", { class: "muted" }, `${found.length} of ${ended.length}${isComplete ? "" : " loaded"} runs. `,
        !isComplete && h("button", { type: "button", "data-do": "more" }, "Load more")),
    ]);
  }

  const welcome = () => [h("div", { class: "box", "data-key": "welcome" },
    h("p", {}, h("b", {}, "There are no runs yet.")),
    may("run") && h("p", {}, h("a", { class: "button primary", href: "#/new" }, "Start a first trial")),
    h("ol", {},
      h("li", {}, "Check ", h("a", { href: "#/ports" }, "Ports"), ": two ports that are up and free are enough. ",
        "Without such ports, ", h("code", {}, "wirebench lab up pair"), " makes two that are connected."),
      h("li", {}, h("a", { href: "#/new" }, "New run"), " has a trial filled in: it sends frames from one port and accounts for each at the other one."),
      h("li", {}, "Its figures are here and on its page while it runs; its report stays in the history.")))];

  const card = (run) => h("article", { class: "box", "data-key": run.id },
    h("header", {},
      h("h3", {}, h("a", { href: `#/run/${run.id}` }, titleOf(run))),
      badge(run.state),
      may("run") && h("button", { type: "button", "data-do": "stop", "data-id": run.id, "aria-label": `Stop ${titleOf(run)}` }, "Stop")),
    h("p", { class: "muted" }, [run.name && run.kind, (run.ports ?? []).join(", "), run.started ? "since " : "asked for "].filter(Boolean).join(" · "), when(run.started ?? run.requested),
      run.reason ? ` · ${run.reason}` : ""),
    bar(run), run.now && h("p", { class: "now" }, run.now), figures(run.figures));

  const row = (run) => h("div", { class: "row", role: "row", "data-key": run.id },
    h("span", { role: "cell" }, h("input", { type: "checkbox", "data-do": "pick", "data-id": run.id, "aria-label": `Compare ${titleOf(run)}`, disabled: run.end === "refused" })),
    h("span", { role: "cell" }, badge(outcome(run))),
    h("span", { role: "cell", class: "what" },
      h("a", { href: `#/run/${run.id}` }, titleOf(run)),
      run.name && h("span", { class: "muted" }, `${run.kind} · ${run.target || (run.ports ?? []).join(", ")}`),
      ["bad", "doubt"].includes(tone(outcome(run))) && run.reason && h("span", { class: "reason", title: run.reason }, run.reason)),
    h("span", { role: "cell", class: "figures-cell" }, figures((run.figures ?? []).slice(0, 8))),
    h("span", { role: "cell", class: "muted time" }, when(run.started ?? run.requested), run.started && h("span", {}, `took ${duration(run.elapsed_ns)}`)),
    h("span", { role: "cell" }, may("admin") && h("button", { type: "button", class: "quiet", "data-do": "remove", "data-id": run.id, "aria-label": `Delete ${titleOf(run)}` }, "Delete")));

  async function attempt(work) {
    try {
      await work();
      await turnNow();
    } catch (failure) {
      notify(failure.text);
    }
  }

  onActions(root, {
    stop: (button) => attempt(async () => {
      await post(`runs/${button.dataset.id}/stop`, { how: "drain" });
      notify("Stopping: the run waits for frames in flight and writes its report.", false);
    }),
    remove: (button) => isConfirmed(button, "Delete for ever?") && attempt(async () => {
      await remove(`runs/${button.dataset.id}`);
      known.delete(button.dataset.id);
      draw();
    }),
    pick: (box) => {
      if (box.checked) picked.add(box.dataset.id);
      else picked.delete(box.dataset.id);
      draw();
    },
    more: () => attempt(() => load(oldest)),
  }, signal);
  filter.addEventListener("input", draw);
  verdict.addEventListener("change", draw);
  const turnNow = repeat(turn, signal);
}
