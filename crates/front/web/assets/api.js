// Requests to the server, and the user of the page.

const ROLES = ["read", "run", "admin"];
const KEPT = 5;

// The user of the page. `authenticated` is false if the server needs no tokens.
export const session = { name: "", role: "read", authenticated: true };
export const may = (role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role);

// The token of this browser. It is stored for this origin with its port; a cookie reaches all ports of a host. Without
// storage it lasts as long as the page.
const KEY = "wb-token";
let token = null;

export function storedToken() {
  try { return localStorage.getItem(KEY); } catch { return token; }
}

export function storeToken(text) {
  token = text;
  try {
    if (text) localStorage.setItem(KEY, text);
    else localStorage.removeItem(KEY);
  } catch { /* The variable has it. */ }
}

// Changes that this page has made, as lines for a shell, the newest first.
export const actions = [];

// A request that failed, with `problems`, `held` and `concerns` of the answer.
export class Failure extends Error {
  constructor(status, body) {
    super(body.error || `the server answered with status ${status}`);
    Object.assign(this, { problems: [], ...body, status });
  }

  // The failure in words.
  get text() {
    const problems = this.problems.map(({ place, what }) => (place ? `${place}: ${what}` : what));
    return problems.length ? `${this.message}: ${problems.join("; ")}` : `${this.message}.`;
  }
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curl(method, path, body) {
  const parts = ["curl -sS"];
  if (session.authenticated) parts.push("-H \"Authorization: Bearer $TOKEN\"");
  if (method !== "GET") parts.push(`-X ${method} -H 'Content-Type: application/json' --data ${quoted(JSON.stringify(body ?? {}))}`);
  return [...parts, quoted(`${location.origin}/api/v1/${path}`)].join(" ");
}

const reportConnection = (isUp) => document.dispatchEvent(new CustomEvent("wb-connection", { detail: isUp }));

// Keeps the digits of whole numbers that JavaScript would round.
const exact = (key, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) && JSON.rawJSON
  ? JSON.rawJSON(context.source) : value);

// True if a value has whole numbers that this browser may have rounded.
export const isRounded = (value) => (typeof value === "number" ? Number.isInteger(value) && !Number.isSafeInteger(value)
  : !JSON.rawJSON && value !== null && typeof value === "object" && Object.values(value).some(isRounded));

function parsed(text, reviver) {
  try { return JSON.parse(text, reviver); } catch { return null; }
}

// Sends a request. `accept` asks for text of this type instead of JSON. Requests with `isUnlisted` have secrets, or
// change nothing, and stay out of `actions`. Answers to requests with `isExact` keep large whole numbers as raw JSON.
export async function request(method, path, body, { accept, isUnlisted, isExact } = {}) {
  const sent = storedToken(), options = { method, headers: { Accept: accept ?? "application/json" }, cache: "no-store" };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body ?? {});
    if (!isUnlisted) actions.unshift({ at: new Date(), line: curl(method, path, body) });
    actions.length = Math.min(actions.length, KEPT);
  }
  if (sent) options.headers.Authorization = `Bearer ${sent}`;
  let response, text;
  try {
    response = await fetch(`/api/v1/${path}`, options);
    text = await response.text();
  } catch {
    reportConnection(false);
    throw new Failure(0, { error: "the server does not answer" });
  }
  reportConnection(true);
  if (response.ok) return accept ? text : parsed(text, isExact ? exact : undefined);
  // Another tab may have signed in since.
  if (response.status === 401 && path !== "login" && sent === storedToken()) document.dispatchEvent(new Event("wb-signed-out"));
  throw new Failure(response.status, parsed(text) ?? { error: text.slice(0, 200) });
}

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body, options) => request("POST", path, body, options);
export const remove = (path) => request("DELETE", path);
