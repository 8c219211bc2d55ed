// View of a new run: a form and the TOML of the same plan. A change of either changes the other, once the server has
// checked it.
import { Failure, get, isRounded, may, post } from "./api.js";
import { h, notify, show } from "./dom.js";
import { bitRate } from "./format.js";
import { FIELDS, fieldOf, fits, isUsed, kindOf, trialPlan } from "./plan-form.js";
import { link } from "./ports.js";

export const title = "New run";

const PAUSE = 350, WAIT = "30s", OTHER = "?other";
// True if a server that grants this permits the use of a power.
function permits({ commands, leave, files }, { power, value }) {
  return { commands, leaves: leave, reads: files, writes: files || !value.includes("/") }[power];
}

// State of the form when the view was left.
let draft = null;

export function forget() {
  draft = null;
}

const planOf = (run) => get(`runs/${encodeURIComponent(run)}/plan`, { accept: "application/toml" });
// True if TOML has a comment: a # outside strings.
const hasComment = (text) => text.replace(/"(?:\\.|[^"\\\n])*"|'[^'\n]*'/g, "").includes("#");

// Shows the plan of a run to a client that may start none.
async function showPlan(root, run, signal) {
  const toml = h("textarea", { id: "toml", readonly: true, spellcheck: "false", rows: 26, wrap: "off" });
  root.append(h("h1", {}, "Plan"), run
    ? h("p", {}, "Plan of run ", h("a", { href: `#/run/${encodeURIComponent(run)}` }, run), " as TOML. Your token may not start runs.")
    : h("p", { class: "warning" }, "Your token may not start runs; the role run is needed."));
  if (!run) return;
  try {
    const text = await planOf(run);
    if (signal.aborted) return;
    toml.value = text;
    root.append(h("label", { for: "toml", class: "muted" }, "Plan as TOML"), toml);
  } catch (failure) {
    if (!signal.aborted) notify(failure.text);
  }
}

export function open(root, { query, signal }) {
  if (!may("run")) {
    showPlan(root, query.get("from"), signal);
    return;
  }
  let plan = trialPlan(), isOfForm = true, timer = 0, number = 0, ports = [], granted = null, concerns = [], isValid = false, isLoaded = false;
  // True while the TOML has changes that the plan of the form has not: unchecked ones, or ones with problems.
  let isAhead = false;
  // `waiting`: fields of the form that have changed meanwhile.
  const kept = {}, rows = new Map(), waiting = new Set();

  const name = h("input", { id: "name", maxlength: 100, autocomplete: "off", "aria-describedby": "name-hint" });
  const wait = h("input", { type: "checkbox", id: "wait" }), isolated = h("input", { type: "checkbox", id: "isolated" });
  const toml = h("textarea", { id: "toml", spellcheck: "false", autocomplete: "off", rows: 30, wrap: "off", "aria-describedby": "toml-state" });
  const tomlState = h("p", { id: "toml-state", class: "muted", "aria-live": "polite" });
  const problems = h("ul", { class: "problems", role: "alert" }), remarks = h("div", {}), question = h("div", {});
  const file = h("input", { type: "file", id: "file", accept: ".toml,.json,application/json" });
  const examples = h("select", { id: "examples" }, h("option", { value: "" }, "choose …"));
  const start = h("button", { class: "primary", id: "start" }, "Start");
  const basic = h("fieldset", { class: "fields" }, h("legend", {}, "Plan")), more = h("div", { class: "fields" });
  const reason = h("span", {});
  const unfit = h("p", { class: "warning", hidden: true }, reason, " Change its TOML, or ",
    h("button", { type: "button", onclick: () => { plan = trialPlan(...suggested()); fill(); changed(true); } }, "begin with a trial"), ".");
  const fields = h("div", {}, basic, h("details", { class: "box" }, h("summary", {}, "Addresses, VLANs, times"), more));
  const form = h("form", { class: "new", novalidate: true },
    h("div", { class: "left" }, fields, unfit, question, remarks,
      h("fieldset", { class: "fields" }, h("legend", {}, "Run"),
        h("div", { class: "field" }, h("label", { for: "name" }, "Name"), name, h("span", { class: "hint", id: "name-hint" }, "for the list of runs; optional")),
        h("label", { class: "check" }, wait, "Wait up to 30 s if the ports are in use"),
        start)),
    h("div", { class: "right" },
      h("div", { class: "filters" }, h("label", {}, "Open a file ", file), h("label", {}, "Example ", examples)),
      problems, h("label", { for: "toml" }, "Plan as TOML"), toml, tomlState));
  root.append(h("h1", {}, "New run"), form);
  for (const field of FIELDS) (field.more ? more : basic).append(row(field));

  // One field with its label, hint and problem.
  function row(field) {
    const id = `field-${field.name}`, note = h("span", { class: "problem", id: `${id}-problem` });
    const hint = field.hint && h("span", { class: "hint", id: `${id}-hint` }, field.hint);
    const described = { "aria-describedby": `${id}-problem${hint ? ` ${id}-hint` : ""}` };
    let input, other = null, element;
    if (field.type === "select" || field.type === "port") input = h("select", { id, ...described }, (field.options ?? []).map(([value, text]) => h("option", { value }, text)));
    else if (field.type === "checkbox") input = h("input", { type: "checkbox", id, ...described });
    else if (field.type === "choices") input = h("span", { id, role: "group", "aria-label": field.label, class: "choices" }, field.options.map((value) => h("label", { class: "check" }, h("input", { type: "checkbox", value }), value)));
    else input = h("input", { id, autocomplete: "off", spellcheck: "false", list: field.suggestions && `${id}-list`, ...described });
    if (field.type === "port") other = h("input", { hidden: true, autocomplete: "off", spellcheck: "false", "aria-label": `${field.label}: locator`, placeholder: "eth2, NODE/IF, xdp:IF, memory:x" });
    const list = field.suggestions && h("datalist", { id: `${id}-list` }, field.suggestions.map((value) => h("option", { value })));
    if (field.type === "checkbox") element = h("div", { class: "field whole" }, h("label", { class: "check", for: id }, input, field.label), note);
    else element = h("div", { class: "field" }, field.type === "choices" ? h("span", { class: "label" }, field.label) : h("label", { for: id }, field.label), input, other, list, hint, note);
    rows.set(field, { element, input, other, note });
    return element;
  }

  function valueOf(field) {
    const { input, other } = rows.get(field);
    if (field.type === "checkbox") return input.checked;
    if (field.type === "choices") return [...input.querySelectorAll(":checked")].map((box) => box.value);
    return other && input.value === OTHER ? other.value.trim() : input.value.trim();
  }

  function setValue(field, value) {
    const { input, other } = rows.get(field);
    if (field.type === "checkbox") input.checked = value;
    else if (field.type === "choices") for (const box of input.querySelectorAll("input")) box.checked = value.includes(box.value);
    else if (field.type === "port") {
      const isListed = !value || [...input.options].some((option) => option.value === value);
      input.value = isListed ? value ?? "" : OTHER;
      other.hidden = isListed;
      if (!isListed && other !== document.activeElement) other.value = value;
    } else if (input !== document.activeElement || field.type === "select") {
      const isListed = field.type !== "select" || [...input.options].some((option) => option.value === value);
      if (!isListed) input.append(h("option", { value }, value));
      input.value = value ?? "";
    }
  }

  // Shows the plan in the form, except in some fields.
  function fill(except = []) {
    const isShown = fits(plan) && !isRounded(plan);
    reason.textContent = fits(plan) ? "This plan has whole numbers above 2^53, which the form cannot keep in this browser." : "This plan has more than the form can show.";
    fields.hidden = !isShown;
    unfit.hidden = isShown;
    if (!isShown) return;
    for (const field of FIELDS) {
      rows.get(field).element.hidden = !isUsed(field, kindOf(plan));
      if (!except.includes(field)) setValue(field, field.get(plan));
    }
  }

  // Puts a field into the plan. The kind decides which other fields there are.
  function read(field) {
    field.set(plan, valueOf(field), kept);
    if (field.name === "kind") fill();
  }

  // Checks the plan after a pause. `byForm`: the form has changed, else the TOML. Answers to earlier checks are void.
  function changed(byForm) {
    number++;
    isOfForm = byForm;
    isAhead = !byForm;
    if (byForm) waiting.clear();
    isValid = false;
    say("Checking…", note());
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE);
  }

  // Shows the state of the TOML.
  function say(...text) {
    show(tomlState, ...text);
  }

  function note() {
    return hasComment(toml.value) && !fields.hidden ? " A change of the form writes this text anew, without its comments." : "";
  }

  // Puts the fields that have changed meanwhile into the plan of the TOML.
  function readWaiting() {
    const changes = [...waiting];
    waiting.clear();
    fill(changes);
    if (fields.hidden) return false;
    for (const field of changes) if (isUsed(field, kindOf(plan))) field.set(plan, valueOf(field), kept);
    if (changes.some((field) => field.name === "kind")) fill();
    return changes.length > 0;
  }

  // Gives up TOML that has problems.
  function discard() {
    readWaiting();
    changed(true);
  }

  async function check() {
    const own = ++number, byForm = isOfForm;
    say("Checking…", note());
    let answer = null, failure = null;
    if (byForm && fits(plan)) {
      const missing = FIELDS.filter((field) => field.type === "port" && !field.get(plan));
      if (missing.length) failure = new Failure(422, { error: "", problems: missing.map((field) => ({ place: field.name, what: "choose a port" })) });
    }
    try {
      if (!failure) answer = await post("plans/check", byForm ? { plan } : { plan_toml: toml.value }, { isUnlisted: true, isExact: true });
    } catch (error) {
      failure = error;
    }
    if (own !== number || signal.aborted) return;
    isValid = Boolean(answer);
    if (answer) {
      if (byForm) toml.value = answer.plan_toml;
      else {
        plan = answer.plan;
        isAhead = false;
        if (readWaiting()) {
          isOfForm = true;
          isValid = false;
          await check();
          return;
        }
      }
    }
    concerns = answer?.concerns ?? [];
    showProblems(failure, byForm);
    showRemarks(answer);
    showQuestion();
    if (answer) say("The plan is valid.", note());
    else if (byForm) say(toml.value ? "This is the last valid plan; the form has problems." : "");
    else if (waiting.size) say("Changes of the form wait until this text has no problems. ", h("button", { type: "button", class: "link", onclick: discard }, "Discard this text"));
    else say("");
    toml.classList.toggle("old", !answer && byForm);
  }

  function showProblems(failure, byForm) {
    const used = FIELDS.filter((field) => isUsed(field, kindOf(plan)) && fits(plan)), left = [];
    for (const { note, input } of rows.values()) {
      note.textContent = "";
      input.removeAttribute("aria-invalid");
    }
    const list = failure ? failure.problems.length ? failure.problems : [{ place: "", what: failure.message }] : [];
    for (const problem of list) {
      const field = fieldOf(problem, used, valueOf);
      // TOML with problems leaves the form as it was.
      if (!field || !byForm) {
        left.push(problem);
        continue;
      }
      const { note, input, element } = rows.get(field);
      note.textContent = [note.textContent, problem.what].filter(Boolean).join("; ");
      input.setAttribute("aria-invalid", "true");
      const folded = element.closest("details");
      if (folded) folded.open = true;
    }
    show(problems, left.map(({ place, what }) => {
      const line = place.match(/line (\d+)/);
      const text = place && place !== "plan" ? `${place}: ${what}` : what;
      return h("li", {}, line ? h("button", { type: "button", class: "link", "data-line": line[1] }, text) : text);
    }));
    toml.setAttribute("aria-invalid", String(!byForm && list.length > 0));
  }

  function showRemarks(answer) {
    const refused = (answer?.powers ?? []).filter((used) => granted && !permits(granted, used));
    show(remarks, (answer?.warnings ?? []).map((text) => h("p", { class: "warning" }, text)),
      refused.map(({ power, place, value }) => h("p", { class: "warning" }, `This server does not permit ${power} (${place}: ${value}); see --allow of wirebench serve.`)));
  }

  function showQuestion() {
    show(question, concerns.length > 0 && h("div", { class: "warning", "data-key": "question" },
      h("p", {}, h("b", {}, "Is this network isolated?"), " Benchmarks overload it (RFC 6815)."),
      h("ul", {}, concerns.map(({ port, why }) => h("li", {}, `${port}: ${why}`))),
      h("label", { class: "check", "data-key": "isolated" }, isolated, "Yes, nothing else uses it")));
  }

  async function begin() {
    clearTimeout(timer);
    if (!isValid) await check();
    if (!isValid) {
      form.querySelector("[aria-invalid=true]")?.focus();
      return;
    }
    if (concerns.length && !isolated.checked) {
      isolated.setAttribute("aria-invalid", "true");
      isolated.focus();
      return;
    }
    start.disabled = true;
    const body = { ...isOfForm ? { plan } : { plan_toml: toml.value }, ...name.value && { name: name.value }, ...wait.checked && { wait: WAIT }, ...isolated.checked && { isolated: true } };
    try {
      const run = await post("runs", body);
      draft = null;
      location.hash = `#/run/${run.id}`;
    } catch (failure) {
      start.disabled = false;
      if (failure.concerns?.length) {
        concerns = failure.concerns;
        showQuestion();
      }
      if (failure.status === 422) showProblems(failure, isOfForm);
      const isHeld = failure.held?.length > 0;
      notify(isHeld ? `${failure.text} Start again with “Wait” ticked, or stop the other run.` : failure.text);
    }
  }

  // Two ports for a first trial: the ends of one link in namespaces of tests, free ones first.
  function suggested() {
    const good = ports.filter((port) => port.up && port.carrier && port.locator.includes("/")).sort((a, b) => Boolean(a.held_by) - Boolean(b.held_by));
    const peer = (port) => good.find((other) => other.locator === port?.peer), node = (port) => port.locator.split("/")[0];
    // The ends of a link inside of one namespace belong to a device there.
    const first = good.find((port) => peer(port) && node(peer(port)) !== node(port)) ?? good.find(peer) ?? good[0];
    const second = peer(first) ?? good.find((port) => port !== first);
    if (first) return [first.locator, second?.locator ?? ""];
    const far = ports.filter((port) => port.up && port.locator.includes(":")), hostOf = (port) => port.locator.split(":")[0];
    return [far[0]?.locator ?? "", far.find((port) => hostOf(port) !== hostOf(far[0]))?.locator ?? ""];
  }

  // Ports of a host of the fleet, as those of the server.
  function portsOf(agent) {
    return agent.ports.map((port) => ({ ...port, carrier: port.up, held_by: agent.state === "free" ? null : agent.state }));
  }

  function offerPorts() {
    const option = (port) => h("option", { value: port.locator }, [port.locator, link(port), port.speed_bps && bitRate(port.speed_bps), port.driver, port.held_by && "in use"].filter(Boolean).join(" · "));
    for (const field of FIELDS.filter((field) => field.type === "port")) {
      rows.get(field).input.replaceChildren(h("option", { value: "" }, ports.length ? "choose a port" : "no ports found"), ...ports.map(option), h("option", { value: OTHER }, "another one, by its name …"));
    }
  }

  // Adapts an example to this host: unknown ports become two of its ports.
  function withOwnPorts(text) {
    const known = new Set(ports.map((port) => port.locator)), own = suggested().filter(Boolean);
    return text.replace(/^(locator = )"([^":]+)"/gm, (line, key, locator) => (known.has(locator) || !own.length ? line : `${key}"${own.shift()}"`));
  }

  function take(text) {
    toml.value = text;
    changed(false);
  }

  async function attempt(work) {
    try {
      return await work();
    } catch (failure) {
      notify(failure.text ?? failure.message);
      return null;
    }
  }

  async function load() {
    const from = query.get("from");
    const [found, host, list] = await Promise.all([attempt(() => get("ports")), attempt(() => get("host")), attempt(() => get("examples"))]);
    const agents = host?.fleet ? await attempt(() => get("fleet/agents")) : null;
    if (signal.aborted) return;
    isLoaded = true;
    ports = [...found ?? [], ...(agents ?? []).flatMap(portsOf)];
    granted = host?.powers ?? null;
    examples.append(...(list ?? []).map(({ name, about, toml }) => h("option", { value: toml, title: about }, name)));
    offerPorts();
    if (from) {
      const [text, run] = await Promise.all([attempt(() => planOf(from)), attempt(() => get(`runs/${encodeURIComponent(from)}`))]);
      if (signal.aborted || text == null) return;
      name.value = run?.name ?? "";
      take(text);
    } else if (draft) {
      ({ plan, isOfForm } = draft);
      name.value = draft.name;
      toml.value = draft.toml;
      fill();
      changed(isOfForm);
    } else {
      plan = trialPlan(...suggested());
      fill();
      changed(true);
    }
  }

  form.addEventListener("input", (event) => {
    if (!fields.contains(event.target)) return;
    const [field, { input, other }] = [...rows].find(([, { element }]) => element.contains(event.target));
    if (other && event.target === input) {
      other.hidden = input.value !== OTHER;
      other.focus();
    }
    if (isAhead) waiting.add(field);
    else read(field);
    changed(!isAhead);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    begin();
  });
  toml.addEventListener("input", () => changed(false));
  problems.addEventListener("click", (event) => {
    const line = Number(event.target.dataset?.line);
    if (!line) return;
    const lines = toml.value.split("\n"), from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    toml.focus();
    toml.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
  });
  file.addEventListener("change", () => attempt(async () => take(await file.files[0].text())));
  examples.addEventListener("change", () => { if (examples.value) take(withOwnPorts(examples.value)); });
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    if (isLoaded && !start.disabled) draft = { plan, isOfForm, name: name.value, toml: toml.value };
  });
  load();
}
