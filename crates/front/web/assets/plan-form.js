// Fields of the form for a plan: the place of each in the plan, and the plans that the form can show.

export const SIZES = ["64", "128", "256", "512", "1024", "1280", "1518"];

// Kinds of runs that the form can start. Benchmarks have a `suite`.
export const KINDS = [
  { kind: "trial", text: "Trial: one load for a fixed time" },
  { kind: "bench rfc2544", text: "RFC 2544: throughput, latency, loss, bursts", suite: { tests: ["throughput", "latency", "loss", "b2b"], sizes: SIZES } },
  { kind: "bench ndr", text: "NDR and PDR: highest rate without and with 0.5 % loss", suite: { tests: ["ndr"], sizes: ["64", "imix"] } },
  { kind: "bench latency", text: "Latency at shares of the throughput", suite: { tests: ["latency"], sizes: ["64", "512", "1518"] } },
  { kind: "bench loss", text: "Loss by load", suite: { tests: ["loss"], sizes: ["64", "512", "1518"] } },
  { kind: "bench b2b", text: "Back-to-back frames: longest burst without loss", suite: { tests: ["b2b"], sizes: ["64", "512", "1518"] } },
  { kind: "bench recovery", text: "Recovery after an overload", suite: { tests: ["recovery"], sizes: ["64", "512", "1518"] } },
  { kind: "bench y1564", text: "Y.1564: a service within its promised limits", suite: { tests: ["y1564"], sizes: ["512"], service: [{ name: "service", cir: "10mbps-l2" }] } },
];

export const TESTS = ["throughput", "latency", "loss", "b2b", "recovery"];

// Times and limits of the presets of `wirebench bench`. Without a preset, the defaults of plans hold.
const PRESETS = {
  fast: {
    preset: "fast", times: { trial: "1s", search: "400ms", ramp: "200ms", drain: "200ms", settle: "200ms" },
    search: { precision: "0.5%", budget: "2m" }, latency: { duration: "1200ms", after: "200ms", repetitions: 3 },
    b2b: { searches: 2, longest: "1s" }, recovery: { overload: "2s", half: "3s", repetitions: 2 },
  },
  "": { times: { search: "2s" } },
  conformance: {
    preset: "conformance", times: { trial: "1m", ramp: "0s", drain: "2s", settle: "5s" },
    search: { resolution: "0.1%", budget: "2h" }, latency: { duration: "2m", after: "1m", repetitions: 20, loads: ["100%"] },
    b2b: { searches: 50 }, recovery: { overload: "1m", half: "1m", repetitions: 5 },
  },
};
const OF_PRESETS = ["preset", "times", "search", "latency", "b2b", "recovery"];
const SERVICE_TIMES = { fast: { step: "1s", performance: "5s" }, conformance: { step: "1m" }, "": {} };

export const suite = (plan) => plan.procedure?.suite;
const job = (plan) => plan.traffic[0];
const stream = (plan) => plan.traffic[0].stream[0];
const port = (plan, end) => plan.port.find((own) => own.name === job(plan)[end]);
const service = (plan) => suite(plan)?.service?.[0];

// A plan for a first trial.
export const trialPlan = (tx = "", rx = "") => ({
  schema: "wirebench.plan/1", kind: "trial",
  port: [{ name: "tx", locator: tx }, { name: "rx", locator: rx }],
  traffic: [{ tx: "tx", rx: "rx", duration: "10s", stream: [{ size: "64", rate: "10kpps" }] }],
  criteria: ["loss<=0%"],
});

// True if the form shows all of a plan that matters: one stream between two ports, perhaps in a benchmark.
export function fits(plan) {
  const others = ["device", "watch", "capture", "load", "http", "socket", "probe"].some((kind) => plan[kind]?.length) || plan.socket_server;
  const bench = suite(plan), [only, second] = plan.traffic ?? [];
  const hasPorts = [only?.tx, only?.rx].every((name) => name && plan.port?.some((own) => own.name === name));
  return !others && hasPorts && !second && only.stream?.length === 1
    && (bench ? KINDS.some(({ kind }) => kind === plan.kind) && !(bench.service?.length > 1) : !plan.procedure);
}

function put(object, key, value) {
  const isNothing = value == null || value === "" || value === false || (Array.isArray(value) && !value.length);
  if (isNothing) delete object[key];
  else object[key] = value;
}

function setPort(plan, end, locator) {
  const here = job(plan), other = end === "tx" ? "rx" : "tx";
  const is = (name) => plan.port.find((own) => own.name === name);
  if (here.tx === here.rx) {
    if (is(here[end]).locator === locator) return;
    const name = is(end) ? `${end}2` : end;
    plan.port.push({ name, locator });
    here[end] = name;
  } else if (locator && !locator.startsWith("memory:") && is(here[other])?.locator === locator) {
    // An interface can be a port once: it sends and receives.
    plan.port = plan.port.filter((own) => own.name !== here[end]);
    here[end] = here[other];
  } else is(here[end]).locator = locator;
}

export function kindOf(plan) {
  return suite(plan) ? plan.kind : "trial";
}

// Changes the kind of the run. `kept` holds the keys that only trials have.
function setKind(plan, kind, kept) {
  if (kindOf(plan) === kind) return;
  const { suite: special } = KINDS.find((known) => known.kind === kind);
  if (!suite(plan)) Object.assign(kept, { duration: job(plan).duration, count: job(plan).count, size: stream(plan).size, rate: stream(plan).rate, criteria: plan.criteria });
  const preset = suite(plan)?.preset ?? "fast";
  plan.kind = kind;
  delete plan.procedure;
  if (!special) {
    if (preset === "conformance") delete stream(plan).ttl;
    put(job(plan), "duration", kept.duration ?? "10s");
    put(stream(plan), "size", kept.size);
    put(stream(plan), "rate", kept.rate ?? "10kpps");
    put(plan, "criteria", kept.criteria);
    return;
  }
  for (const key of ["duration", "count"]) delete job(plan)[key];
  for (const key of ["size", "rate"]) delete stream(plan)[key];
  // Criteria of a trial name figures that benchmarks have at each frame size.
  delete plan.criteria;
  plan.procedure = { suite: structuredClone(special) };
  setPreset(plan, preset);
}

function setPreset(plan, preset) {
  const bench = suite(plan);
  for (const key of OF_PRESETS) delete bench[key];
  Object.assign(bench, structuredClone(PRESETS[preset]));
  for (const own of bench.service ?? []) Object.assign(own, SERVICE_TIMES[preset]);
  put(stream(plan), "ttl", preset === "conformance" ? 10 : null);
}

const words = (text) => (text.includes(":") ? [text] : text.split(/[\s,]+/)).filter(Boolean);
const list = (text) => text.split(/[\s,]+/).filter(Boolean);
// A number, or text that the server will refuse in words. Numbers that JavaScript would round are raw JSON.
function number(text) {
  if (!/^\d+$/.test(text)) return text;
  if (Number.isSafeInteger(Number(text))) return Number(text);
  return JSON.rawJSON ? JSON.rawJSON(String(BigInt(text))) : text;
}
const digits = (value) => value?.rawJSON ?? value;
const inJob = (key, read = String) => ({ get: (plan) => job(plan)[key], set: (plan, value) => put(job(plan), key, value && read(value)) });
const inStream = (key, read = String) => ({ get: (plan) => digits(stream(plan)[key]), set: (plan, value) => put(stream(plan), key, value && read(value)) });
const inService = (key) => ({ get: (plan) => service(plan)?.[key], set: (plan, value) => service(plan) && put(service(plan), key, value), on: ["bench y1564"] });
const flag = (of, key) => ({ type: "checkbox", get: (plan) => of(plan)[key] === true, set: (plan, value) => put(of(plan), key, value) });
const gateway = (end) => ({ get: (plan) => port(plan, end)?.gateway, set: (plan, value) => { const own = port(plan, end); if (own) put(own, "gateway", value); } });

// The fields. `on` names the kinds that have one (default: all), `keys` the words by which problems name it.
export const FIELDS = [
  { name: "kind", label: "What to run", type: "select", options: KINDS.map(({ kind, text }) => [kind, text]), get: kindOf, set: setKind },
  { name: "tx", label: "Send from", type: "port", get: (plan) => port(plan, "tx")?.locator, set: (plan, value) => setPort(plan, "tx", value) },
  { name: "rx", label: "Receive at", type: "port", get: (plan) => port(plan, "rx")?.locator, set: (plan, value) => setPort(plan, "rx", value) },
  { name: "bidir", label: "Also send back, at the same rate", ...flag(job, "bidir") },
  { name: "size", label: "Frame size", hint: "bytes with FCS: 64, a range 64-1518, imix, or weights 64:7,570:4,1518:1", suggestions: [...SIZES, "64-1518", "imix"], on: ["trial"], ...inStream("size") },
  { name: "rate", label: "Rate", hint: "100kpps, 1gbps, 40%, max", suggestions: ["1kpps", "10kpps", "100kpps", "1gbps", "10%", "max"], on: ["trial"], ...inStream("rate") },
  { name: "duration", label: "Duration", hint: "10s, 5m, 1h; empty: until it is stopped", suggestions: ["10s", "1m", "10m", "1h"], on: ["trial"], ...inJob("duration") },
  { name: "flows", label: "Flows", hint: "distinct 5-tuples, used in turn", ...inStream("flows", number) },
  { name: "sizes", label: "Frame sizes", hint: "each is tested: 64 512 1518, imix", keys: ["sizes", "size"], bench: true, get: (plan) => suite(plan)?.sizes?.join(" "), set: (plan, value) => put(suite(plan), "sizes", words(value)) },
  { name: "tests", label: "Tests", type: "choices", options: TESTS, on: ["bench rfc2544"], get: (plan) => suite(plan)?.tests ?? [], 
    set: (plan, value) => put(suite(plan), "tests", [...value, ...suite(plan).tests.filter((test) => !TESTS.includes(test))]) },
  { name: "preset", label: "Length", type: "select", options: [["fast", "fast: minutes, short trials"], ["", "usual: trials of 10 s"], ["conformance", "conformance: trials of 60 s, hours"]], bench: true,
    get: (plan) => suite(plan)?.preset ?? "", set: (plan, value) => { if (value !== (suite(plan).preset ?? "")) setPreset(plan, value); } },
  { name: "max", label: "Highest load", hint: "empty: line rate, or what the tester can offer", bench: true, get: (plan) => suite(plan)?.max, set: (plan, value) => put(suite(plan), "max", value) },
  { name: "cir", label: "Committed rate (CIR)", hint: "20mbps-l2 counts frames with FCS", ...inService("cir") },
  { name: "delay", label: "Delay, at most", hint: "20ms", ...inService("delay") },
  { name: "variation", label: "Delay variation, at most", hint: "5ms", ...inService("variation") },
  { name: "loss", label: "Loss, at most", hint: "0.1%", ...inService("loss") },
  { name: "criteria", label: "Pass if", hint: "loss<=0%  p99<=500us; benchmarks: throughput>=1gbps", get: (plan) => plan.criteria?.join(" "), set: (plan, value) => put(plan, "criteria", list(value)) },
  { name: "src", label: "Source addresses", hint: "198.18.1.2, a range A-B, or a prefix", more: true, ...inStream("src") },
  { name: "dst", label: "Destination addresses", hint: "198.19.1.2, a range A-B, or a prefix", more: true, ...inStream("dst") },
  { name: "gateway-tx", label: "Gateway of the sending port", keys: ["gateway"], more: true, ...gateway("tx") },
  { name: "gateway-rx", label: "Gateway of the receiving port", keys: [], more: true, ...gateway("rx") },
  { name: "proto", label: "Protocol", type: "select", options: ["udp", "tcp", "icmp"].map((word) => [word, word]), more: true, get: (plan) => stream(plan).proto ?? "udp", set: (plan, value) => put(stream(plan), "proto", value === "udp" ? null : value) },
  { name: "ipv6", label: "IPv6 addresses by default", more: true, ...flag(stream, "ipv6") },
  { name: "vlan", label: "VLAN ids", hint: "100, or 100:5 with a priority; outermost first", more: true, get: (plan) => stream(plan).vlan?.map(digits).join(" "), set: (plan, value) => put(stream(plan), "vlan", list(value).map(number)) },
  { name: "ramp", label: "Ramp-up", hint: "time in which the rate rises", on: ["trial"], more: true, ...inJob("ramp") },
  { name: "drain", label: "Drain", hint: "wait for frames in flight; default 200ms", on: ["trial"], more: true, ...inJob("drain") },
  { name: "own", label: "The network is mine: other addresses than those for benchmarks are intended", keys: ["i_own_this_network"], more: true, ...flag((plan) => plan, "i_own_this_network") },
];

export const isUsed = (field, kind) => (field.on ? field.on.includes(kind) : field.bench ? kind !== "trial" : true);

// Field that a problem is about, if the form has it. `valueOf` gives the text of a field.
export function fieldOf({ place, what }, fields, valueOf) {
  const last = place.split(", ").at(-1).split(" ");
  const names = [...last, what.split(/[ :]/)[0].split(".").at(-1)];
  const named = fields.find(({ name, keys = [name] }) => names.some((word) => keys.includes(word)));
  if (named) return named;
  const isQuoted = (text) => text && what.includes(`"${text}"`);
  return fields.find((field) => isQuoted(valueOf(field))) ?? fields.find((field) => list(String(valueOf(field))).some(isQuoted));
}
