// What was decided about a job, newest first, each with its reason.

import { get, jobPath, pause } from "./web_api.js";
import { csv, fill, h, note, plainName, save, table } from "./web_elements.js";
import { jobHead, KINDS } from "./job_parts.js";
import { moment, number, time } from "./web_units.js";

const EVERY_MS = 3000;
const COLUMNS = [["Iteration", true], ["Decision", false], ["Reason", false], ["Plan", true],
                 ["Step measured", true], ["Step predicted", true], ["Step before", true],
                 ["Step under exact", true], ["At", false]];

function row(decision) {
  const [, , isBack, text] = KINDS[decision.kind] ?? ["", "", false, decision.kind];
  return [number(decision.iteration), h("span", { class: isBack ? "back" : null }, text),
          h("span", { class: "reason" }, decision.reason), String(decision.plan_seq),
          time(decision.measured_step_ns), time(decision.predicted_step_ns),
          time(decision.before_step_ns), time(decision.exact_step_ns), moment(decision.at)];
}

function saveCsv(job, decisions) {
  const keys = ["at", "kind", "iteration", "plan_seq", "exact_step_ns", "before_step_ns",
                "predicted_step_ns", "measured_step_ns", "reason"];
  const rows = decisions.map((decision) => keys.map((key) => decision[key]));
  save(`${plainName(job)}-decisions.csv`, new Blob([csv(keys, rows)], { type: "text/csv" }));
}

export async function showDecisions(root, [name], view) {
  const { params, signal } = view;
  const kind = params.get("kind") || "";
  let shown = "";
  while (!signal.aborted) {
    const job = await get(jobPath(name), signal);
    const { decisions } = await get(`/incarnations/${job.incarnation}/decisions`, signal);
    const text = JSON.stringify(decisions);
    if (text !== shown) {
      shown = text;
      const kinds = [...new Set(decisions.map((decision) => decision.kind))];
      const found = decisions.filter((decision) => kind === "" || decision.kind === kind);
      fill(root, jobHead(job, "decisions"),
        h("div", { class: "bar" },
          h("label", {}, "Decision ", h("select", {
            change: (event) => view.go({ kind: event.target.value }) },
            ["", ...kinds].map((key) => h("option", { value: key, selected: key === kind },
                                          key === "" ? "all" : KINDS[key]?.[3] ?? key)))),
          h("button", { type: "button", click: () => saveCsv(name, found) }, "CSV")),
        found.length > 0 ? table("Decisions", COLUMNS, found.toReversed().map(row))
          : note("Nothing has been decided yet: a job is looked at for its first iterations."));
    }
    view.ready();
    await pause(EVERY_MS, signal);
  }
}
