// What the pages of one job share: its heading, the way between them, and its decisions as marks.

import { h, jobPlace, place } from "./web_elements.js";
import { time } from "./web_units.js";

const PAGES = [["job", "", "Overview"], ["plan", "/plan", "Plan"], ["links", "/links", "Links"],
               ["decisions", "/decisions", "Decisions"]];

export function jobAbout(job) {
  return [job.state, `mode ${job.mode}`, job.phase || null, job.frozen ? "frozen" : null,
          job.pin ? `pinned ${job.pin}` : null, job.user ? `user ${job.user}` : null]
    .filter((text) => text !== null).join(" · ");
}

export function jobHead(job, page) {
  return h("div", { class: "job-head" },
    h("h1", { class: "name" }, job.id),
    h("p", { class: "soft" }, jobAbout(job)),
    h("nav", { class: "tabs", "aria-label": "Pages of this job" }, PAGES.map(([key, rest, text]) =>
      place(jobPlace(job.id, rest), text, { "aria-current": key === page ? "page" : null }))));
}

// How each kind of decision is marked: letter, colour, whether it is a step back, name.
export const KINDS = {
  observed: ["o", "soft", false, "observed"],
  push: ["P", "purple", false, "plan pushed"],
  commit: ["C", "green", false, "plan kept"],
  keep: ["k", "soft", false, "left as it is"],
  compare: ["x", "soft", false, "exact for a comparison"],
  resume: ["r", "purple", false, "plan goes on"],
  rollback: ["B", "wait", true, "stepped back: too slow"],
  halt: ["H", "wait", true, "stepped back: losses"],
  fused: ["F", "wait", true, "stepped back by the ranks"],
  refused: ["R", "wait", true, "plan refused by a rank"],
};
const SILENT = new Set(["observed", "keep"]);

export function marksOf(decisions) {
  return decisions.filter((decision) => !SILENT.has(decision.kind)).map((decision) => {
    const [label, colour, isDashed, name] = KINDS[decision.kind] ??
      ["?", "soft", false, decision.kind];
    return { at: decision.iteration, label, colour, isDashed, name: `${label}: ${name}`,
             text: `${name} (plan ${decision.plan_seq}, step ${time(decision.measured_step_ns)})` };
  });
}
