// Asks for a token, which stays in this tab until it is closed.

import { get, keepToken, token } from "./web_api.js";
import { fill, h, note } from "./web_elements.js";

export async function showSignIn(root, _, view) {
  const field = h("input", { type: "password", id: "token", name: "token", required: true,
                             autocomplete: "off", spellcheck: "false", maxlength: 1024 });
  const said = h("p", { class: "answer", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const before = token();
    // Line ends and blanks come along when a token is copied.
    const text = field.value.trim();
    if (/[^\x21-\x7e]/.test(text)) {
      said.textContent = "A token has letters, digits and signs of ASCII only.";
      return;
    }
    keepToken(text);
    try {
      await get("/jobs?limit=1", view.signal);
      location.hash = view.params.get("then") || "#/jobs";
    } catch (error) {
      keepToken(before);
      said.textContent = `Not signed in: ${error.message}`;
    }
  };
  fill(root, h("h1", {}, "Sign in"),
    note("This controller asks for a token, of role viewer or operator: ",
         h("code", {}, "deft token create --role viewer NAME"),
         ". It stays in this tab, until that is closed."),
    h("form", { class: "sign-in", submit }, h("label", { for: "token" }, "Token"), field,
      h("button", { type: "submit", class: "main" }, "Sign in")), said);
  view.ready();
}
