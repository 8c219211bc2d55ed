// View of the API: its description, the last actions as lines for a shell, and tokens.
import { actions, curl, get, may, post, remove, session } from "./api.js";
import { copy, h, isConfirmed, notify, onActions, show } from "./dom.js";
import { when } from "./format.js";

export const title = "API";

const code = (text) => h("div", { class: "code" }, h("pre", { tabindex: 0 }, text), h("button", { type: "button", "data-do": "copy", "data-text": text }, "Copy"));

export function open(root, { signal }) {
  const tokens = h("div", { class: "tokens" }), fresh = h("div", {});
  root.append(
    h("h1", {}, "API"),
    h("p", {}, "All that this page does is a request of the API. ", h("a", { href: "/api/v1/openapi.json", target: "_blank" }, "Its OpenAPI description"), " works with code generators and API browsers."),
    session.authenticated ? h("p", { class: "muted" }, "The lines below need a token in ", h("code", {}, "$TOKEN"), ", and ", h("code", {}, "-k"), " or ", h("code", {}, "--cacert FILE"), " if the certificate is self-signed.") : "",
    h("h2", {}, actions.length ? "Last actions of this page" : "An example"),
    ...actions.length ? actions.map(({ at, line }) => h("div", {}, h("p", { class: "muted" }, at.toLocaleTimeString("en-GB")), code(line))) : [code(curl("GET", "runs"))]);
  if (may("admin") && session.authenticated) root.append(h("h2", {}, "Tokens"), form(), fresh, tokens);

  function form() {
    const name = h("input", { id: "token-name", required: true, maxlength: 60, autocomplete: "off" });
    const role = h("select", { id: "token-role" }, h("option", { value: "read" }, "read: see everything"),
      h("option", { value: "run", selected: true }, "run: also start and stop runs"), h("option", { value: "admin" }, "admin: also delete runs and make tokens"));
    const expires = h("select", { id: "token-expires" }, [["1d", "in a day"], ["30d", "in 30 days"], ["90d", "in 90 days"], ["", "never"]].map(([value, text]) => h("option", { value, selected: value === "90d" }, text)));
    const form = h("form", { class: "filters" }, h("label", {}, "Name ", name), h("label", {}, "Role ", role),
      h("label", {}, "Expires ", expires), h("button", { class: "primary" }, "Make a token"));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        const { token } = await post("tokens", { name: name.value, role: role.value, ...expires.value && { expires: expires.value } });
        show(fresh, h("div", { class: "warning" }, h("p", {}, `Token of ${name.value}. It is shown once, here:`), code(token)));
        form.reset();
      } catch (failure) {
        notify(failure.text);
      }
      load();
    });
    return form;
  }

  async function load() {
    try {
      const list = await get("tokens");
      if (signal.aborted) return;
      show(tokens, h("div", { class: "wide" }, h("table", { class: "t" },
        h("thead", {}, h("tr", {}, ["Name", "Role", "Expires", ""].map((text) => h("th", {}, text)))),
        h("tbody", {}, list.map((token) => h("tr", { "data-key": token.id }, h("td", {}, `${token.name} `, h("span", { class: "muted" }, token.id)), h("td", {}, token.role), h("td", {}, token.expires ? when(token.expires) : "never"),
          h("td", {}, h("button", { type: "button", class: "quiet", "data-do": "revoke", "data-id": token.id, "aria-label": `Revoke ${token.name}` }, "Revoke"))))))));
    } catch (failure) {
      notify(failure.text);
    }
  }

  onActions(root, {
    copy: (button) => copy(button.dataset.text),
    revoke: async (button) => {
      if (!isConfirmed(button, "Revoke for ever?")) return;
      try {
        await remove(`tokens/${encodeURIComponent(button.dataset.id)}`);
      } catch (failure) {
        notify(failure.text);
      }
      load();
    },
  }, signal);
  if (may("admin") && session.authenticated) load();
}
