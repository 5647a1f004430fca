// The list of jobs: filters and order in the address, a page at a time, asked for again while it
// is looked at.

import { get, pause } from "./web_api.js";
import { fill, h, jobPlace, note, place, table } from "./web_elements.js";
import { isTuned, leftOnTable } from "./web_series.js";
import { moment, number, plural, ratio, time, times } from "./web_units.js";

const PER_PAGE = 100;
const EVERY_MS = 2000;
const STATES = [["", "all states"], ["running", "running"], ["finished", "finished"],
                ["failed", "failed"], ["lost", "lost"]];
const ORDERS = [["-created", "newest first"], ["created", "oldest first"], ["id", "by name"],
                ["-id", "by name, falling"], ["user", "by user"], ["-user", "by user, falling"]];
const COLUMNS = [["Job", false], ["User", false], ["State", false], ["Mode", false],
                 ["Phase", false], ["Rule", false], ["Ranks heard", true], ["Step", true],
                 ["Gain", true], ["Left on the table", true], ["Coverage rate", true],
                 ["Changed", false]];

export function heard(job) {
  return job.state === "running" ? `${number(job.n_ranks_heard)} of ${number(job.n_ranks)}`
    : number(job.n_ranks);
}

function row(job) {
  return [place(jobPlace(job.id), job.id, { class: "name" }), job.user || "–", job.state, job.mode,
          job.phase || "–", job.rule || "exact", heard(job), time(job.step_ns),
          isTuned(job) ? times(job.gain) : "–", times(leftOnTable(job)),
          ratio(job.coverage), moment(job.updated_at)];
}

function select(label, options, value, onChange) {
  return h("label", {}, `${label} `, h("select", { change: (e) => onChange(e.target.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));
}

function query(params) {
  const asked = new URLSearchParams({ limit: PER_PAGE, offset: params.get("offset") || 0,
                                      sort: params.get("sort") || "-created" });
  for (const name of ["state", "user"]) {
    if (params.get(name)) {
      asked.set(name, params.get(name));
    }
  }
  return `/jobs?${asked}`;
}

function pages(total, offset, go) {
  const last = Math.min(offset + PER_PAGE, total);
  const text = total === 0 ? "No jobs." : `${number(offset + 1)} to ${number(last)} of ` +
    plural(total, "job");
  const button = (label, to, can) =>
    h("button", { type: "button", disabled: !can, click: () => go(to) }, label);
  return h("div", { class: "pages" }, h("span", {}, text),
    total > PER_PAGE ? [button("Previous", Math.max(0, offset - PER_PAGE), offset > 0),
                        button("Next", offset + PER_PAGE, last < total)] : null);
}

export async function showJobs(root, _, view) {
  const { params, signal } = view;
  const offset = Number(params.get("offset")) || 0;
  const change = (name, value) => view.go({ [name]: value, offset: "" });
  const list = h("div");
  const about = h("div");
  fill(root, h("h1", {}, "Jobs"),
    h("div", { class: "bar" },
      select("State", STATES, params.get("state") || "", (value) => change("state", value)),
      h("label", {}, "User ", h("input", {
        type: "search", value: params.get("user") || "", size: 12, maxlength: 127,
        change: (event) => change("user", event.target.value.trim()) })),
      select("Order", ORDERS, params.get("sort") || "-created", (value) => change("sort", value))),
    about, list);
  let shown = "";
  while (!signal.aborted) {
    if (!document.hidden) {
      const found = await get(query(params), signal);
      const text = JSON.stringify(found);
      if (text !== shown) {
        shown = text;
        const focused = document.activeElement?.getAttribute("href");
        const left = list.querySelector(".scroll")?.scrollLeft ?? 0;
        about.replaceChildren(pages(found.total, offset, (to) => view.go({ offset: to || "" })));
        list.replaceChildren(found.jobs.length > 0 ? table("Jobs", COLUMNS, found.jobs.map(row))
          : note("A job appears here when its agent registers it: ", h("code", {}, "deft run"),
                 ", ", h("code", {}, "srun --deft=auto"), " or a pod that asks for it."));
        const scroll = list.querySelector(".scroll");
        if (scroll) {
          scroll.scrollLeft = left;
        }
        if (focused?.startsWith("#/job/")) {
          list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
        }
      }
      view.ready();
    }
    await pause(EVERY_MS, signal);
  }
}
