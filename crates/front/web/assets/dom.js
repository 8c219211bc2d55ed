// Elements of the page, and updates that keep what the user has focused, opened or typed.

// Makes an element. Attributes that start with "on" are listeners. Text is never read as HTML.
export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

const TITLES = ":scope > h3, :scope > summary, :scope > table > caption, :scope > table > thead";

// Name by which an element is found again among its siblings.
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  if (node.dataset.key) return `${node.nodeName} ${node.dataset.key}`;
  switch (node.nodeName) {
    case "H2": return `H2 ${node.textContent}`;
    case "DIV": return `DIV ${node.className.split(" ")[0]} ${node.querySelector(TITLES)?.textContent ?? ""}`;
    case "FIGURE": case "DETAILS": return `${node.nodeName} ${node.querySelector(TITLES)?.textContent ?? ""}`;
    default: return node.nodeName;
  }
}

function updateNode(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // A button that waits for its confirmation.
  if (old.dataset.asked) return;
  // The user opens and closes these.
  const isKept = (name) => name === "open" && old.nodeName === "DETAILS";
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isKept(name)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !isKept(name)) old.removeAttribute(name);
  }
  // Plots have their own update.
  if (!old.classList.contains("plot")) updateChildren(old, fresh);
}

function updateChildren(old, fresh) {
  const children = [...fresh.childNodes], keys = children.map(keyOf), known = new Set(keys);
  for (const child of [...old.childNodes]) if (!known.has(keyOf(child))) child.remove();
  let next = old.firstChild;
  children.forEach((child, n) => {
    let match = next;
    while (match && keyOf(match) !== keys[n]) match = match.nextSibling;
    if (!match) old.insertBefore(child, next);
    else {
      if (match === next) next = next.nextSibling;
      else old.insertBefore(match, next);
      updateNode(match, child);
    }
  });
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

// Makes `children` the contents of `parent`. Elements that were there before stay and change.
export function show(parent, ...children) {
  updateChildren(parent, h("div", {}, ...children));
}

// Makes the body of a report the contents of `parent`. The server made and escaped this HTML.
export function showReport(parent, html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  updateChildren(parent, template.content);
}

// Calls `actions[NAME](button)` for clicks on elements with data-do="NAME".
export function onActions(root, actions, signal) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button && actions[button.dataset.do]) actions[button.dataset.do](button);
  }, { signal });
}

// Returns true at the second click within three seconds. Used before data is lost.
export function isConfirmed(button, question) {
  if (button.dataset.asked) return true;
  const text = button.textContent;
  button.dataset.asked = "1";
  button.textContent = question;
  setTimeout(() => {
    delete button.dataset.asked;
    if (button.textContent === question) button.textContent = text;
  }, 3000);
  return false;
}

// Repeats `work`, which returns the time until the next turn in ms. Turns are rare while the page is hidden.
export function repeat(work, signal) {
  let timer, isBusy = false, isDue = false;
  async function turn() {
    if (signal.aborted) return;
    isDue = isBusy;
    if (isBusy) return;
    clearTimeout(timer);
    isBusy = true;
    let wait = 5000;
    try {
      wait = await work();
    } finally {
      isBusy = false;
      if (!signal.aborted) timer = setTimeout(turn, isDue ? 0 : document.hidden ? 15000 : wait);
    }
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); }, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  turn();
  return turn;
}

// Shows an error until the next view, or a confirmation for 6 s.
export function notify(text, isError = true) {
  const close = h("button", { type: "button", "aria-label": "Close this message", onclick: () => notice.remove() }, "×");
  const notice = h("div", { class: isError ? "notice bad" : "notice good", role: isError ? "alert" : "status" }, h("span", {}, text), close);
  const place = document.getElementById("notices");
  if ([...place.children].some((other) => other.firstChild.textContent === text)) return;
  place.append(notice);
  if (!isError) setTimeout(() => notice.remove(), 6000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.", false);
  } catch {
    notify("The browser does not permit copying; select the text instead.");
  }
}
