// What operators can do to a job. Each change asks for its reason, which the record keeps.

import { get, jobPath, put } from "./web_api.js";
import { h, say } from "./web_elements.js";

const MODES = [["off", "off: nothing is measured or changed"],
               ["observe", "observe: measure and predict, change nothing"],
               ["auto", "auto: run the best plan"]];

// Asks in a dialog of its own; OPTIONS [[value, text]] is what can be chosen, or null.
// Resolves with {value, reason}, or null when it was left.
function askReason(title, options, value) {
  const choice = options && h("select", { name: "value", id: "choice" },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  const reason = h("input", { name: "reason", id: "reason", required: true, maxlength: 511,
                              autocomplete: "off" });
  const form = h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title),
    choice ? h("p", {}, h("label", { for: "choice" }, "To"), choice) : null,
    h("p", {}, h("label", { for: "reason" }, "Reason, for the record"), reason),
    h("div", { class: "buttons" },
      h("button", { type: "button", click: () => dialog.close("") }, "Leave it"),
      h("button", { type: "submit", class: "main", value: "ok" }, "Change it")));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  document.body.append(dialog);
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      const isMeant = dialog.returnValue === "ok";
      dialog.remove();
      done(isMeant ? { value: choice ? choice.value : null, reason: reason.value } : null);
    });
    dialog.showModal();
  });
}

export function operatorButtons(name, currentJob, onChanged) {
  const said = h("p", { class: "answer", role: "alert" });
  const change = async (what, body) => {
    try {
      await put(`${jobPath(name)}/${what}`, body);
      said.textContent = "";
      say("changed");
      onChanged();
    } catch (error) {
      said.textContent = `Nothing was changed: ${error.message}`;
    }
  };
  const mode = async () => {
    const wish = await askReason(`Mode of ${name}`, MODES, currentJob().mode);
    if (wish) {
      await change("mode", { mode: wish.value, reason: wish.reason });
    }
  };
  const pin = async () => {
    let plans;
    try {
      ({ plans } = await get(`/incarnations/${currentJob().incarnation}/plans`));
    } catch (error) {
      said.textContent = `The plans cannot be read: ${error.message}`;
      return;
    }
    const options = [["", "no plan: the tuner chooses"],
                     ...plans.slice(-100).reverse().map((plan) => [plan.id, `plan ${plan.id}`])];
    const wish = await askReason(`Pinned plan of ${name}`, options, currentJob().pin);
    if (wish) {
      await change("pin", { plan: wish.value, reason: wish.reason });
    }
  };
  const freeze = async () => {
    const frozen = !currentJob().frozen;
    const wish = await askReason(frozen ? `Freeze ${name}: keep what runs`
      : `Thaw ${name}: look for plans again`, null);
    if (wish) {
      await change("freeze", { frozen, reason: wish.reason });
    }
  };
  const freezeButton = h("button", { type: "button", click: freeze }, "Freeze…");
  return {
    element: h("div", {}, h("div", { class: "bar", role: "group", "aria-label": "For operators" },
      h("button", { type: "button", click: mode }, "Mode…"),
      h("button", { type: "button", click: pin }, "Pin a plan…"), freezeButton), said),
    update: (job) => {
      freezeButton.textContent = job.frozen ? "Thaw…" : "Freeze…";
    },
  };
}
