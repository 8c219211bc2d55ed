// The frame of the page: sign-in, views by the fragment of the address, colours.
import { Failure, actions, get, may, post, session, storeToken, storedToken } from "./api.js";
import { h, notify, show } from "./dom.js";
import * as access from "./access.js";
import * as hosts from "./hosts.js";
import * as newRun from "./new.js";
import * as ports from "./ports.js";
import * as run from "./run.js";
import * as runs from "./runs.js";

const RETRY = 4000;
const VIEWS = { __proto__: null, runs, run, new: newRun, ports, hosts, api: access };
const element = (id) => document.getElementById(id);
const main = element("main");
let leaving = new AbortController();
// The number of the last attempt to sign in, and the timer of the next one.
let attempt = 0, retry = 0;

// Decodes a part of the address. Malformed parts are null.
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return null; }
}

// Ends a view and begins another one.
function begin(title) {
  leaving.abort();
  leaving = new AbortController();
  main.replaceChildren();
  element("notices").replaceChildren();
  document.title = `${title} · wirebench`;
}

// Signs in with the token of a link. It must not stay in the address or in the history.
function takeToken() {
  const link = location.hash.match(/^#token=(.+)$/);
  if (!link) return false;
  history.replaceState(null, "", location.pathname);
  logIn(decoded(link[1]) ?? link[1]);
  return true;
}

function route() {
  if (takeToken() || !session.name) return;
  // The skip link is the only fragment that is no view.
  if (location.hash === "#main") {
    history.replaceState(null, "", main.dataset.address ?? "#/runs");
    main.focus();
    return;
  }
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/").map(decoded);
  const view = name === "run" && !id ? runs : VIEWS[name] ?? runs;
  const isFirst = !main.dataset.address;
  main.dataset.address = location.hash || "#/runs";
  begin(view.title);
  for (const link of element("views").children) {
    if (VIEWS[link.hash.slice(2)] === (view === run ? runs : view)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.open(main, { id, query: new URLSearchParams(query), signal: leaving.signal });
  scrollTo(0, 0);
  if (!isFirst) main.focus({ preventScroll: true });
}

// Shows the form for a token. `failure` is the reason why the last attempt failed. A form that is there stays, with
// what was typed.
function signIn(failure) {
  const isNew = !main.querySelector("form.sign-in");
  session.name = "";
  if (isNew) begin("Sign in");
  newRun.forget();
  actions.length = 0;
  element("views").hidden = element("leave").hidden = true;
  element("who").textContent = "";
  const token = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true, placeholder: "wbt_…", "aria-describedby": "token-help" });
  const form = h("form", { class: "box sign-in" },
    h("h1", {}, "Sign in"),
    failure && h("p", { class: "problem", role: "alert", "data-key": "failure" }, failure),
    h("label", { for: "token" }, "Token"), token,
    h("button", { class: "primary" }, "Sign in"),
    h("p", { id: "token-help", class: "muted" }, "The link that the server printed at its start signs in without a token, once. On the host of the server, this makes a token:"),
    h("pre", {}, "wirebench token add NAME --role run"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    logIn(token.value.trim());
  });
  show(main, form);
  if (isNew) main.querySelector("input").focus();
}

async function logIn(token) {
  const own = ++attempt;
  clearTimeout(retry);
  let answer;
  try {
    answer = await post("login", { token }, { isUnlisted: true });
  } catch (failure) {
    // A link that has been used does not end the session of this browser.
    if (own === attempt) start({ refused: failure.status === 401 ? "This token is not valid, has expired, or was a link that has been used." : failure.text });
    return;
  }
  if (answer?.token) storeToken(answer.token);
  if (own === attempt) start({ hasLoggedIn: true });
}

// Begins with the session of this browser. `refused` is the reason why another token was refused before.
async function start({ refused, hasLoggedIn } = {}) {
  const own = ++attempt;
  clearTimeout(retry);
  let answer;
  try {
    answer = await get("session");
    if (!answer?.role) throw new Failure(200, { error: "the answer of the server is not that of wirebench" });
    // Only the cookie for links and events is left of an earlier session.
    if (answer.authenticated && answer.role === "read" && !storedToken()) throw new Failure(401, {});
  } catch (failure) {
    if (own !== attempt) return;
    if (failure.status === 401) {
      signIn(refused ?? (hasLoggedIn ? "The server accepted the token, but then refused the one that it made for this browser. Sign in again." : undefined));
    } else {
      signIn(refused ?? `${failure.text} The page tries again.`);
      retry = setTimeout(start, RETRY);
    }
    return;
  }
  if (own !== attempt) return;
  Object.assign(session, answer, { name: answer.name || "local" });
  element("who").textContent = session.authenticated ? `${session.name} (${session.role})` : "no tokens needed";
  element("leave").hidden = !session.authenticated;
  element("views").hidden = false;
  element("views").querySelector("[href='#/new']").hidden = !may("run");
  get("host").then((host) => { element("views").querySelector("[href='#/hosts']").hidden = !host.fleet; }, () => {});
  route();
  if (refused) notify(`${refused} You are still signed in as ${session.name}.`);
}

function showTheme() {
  element("theme").textContent = `Colours: ${wbTheme.current()}`;
}

element("theme").addEventListener("click", () => {
  wbTheme.next();
  showTheme();
  document.dispatchEvent(new Event("wb-colours"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("wb-colours")));
element("leave").addEventListener("click", async () => {
  leaving.abort();
  try {
    await post("logout", {}, { isUnlisted: true });
    storeToken(null);
    signIn();
  } catch (failure) {
    if (failure.status === 401) return;
    route();
    notify(failure.text);
  }
});
document.addEventListener("wb-signed-out", () => {
  storeToken(null);
  if (session.name) signIn();
});
document.addEventListener("wb-connection", (event) => { element("connection").hidden = event.detail; });
addEventListener("hashchange", route);
showTheme();

if (!takeToken()) start();
