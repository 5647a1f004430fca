// All jobs together: what tuning has gained, what it would gain, and where it gains nothing.

import { get } from "./web_api.js";
import { figures, fill, h, jobPlace, note, place, table } from "./web_elements.js";
import {
  commonGain, gainsNothing, isTuned, LEAST_GAIN, leftOnTable, savedHours, WEEK_S,
} from "./web_series.js";
import { number, plural, ratio, time, times } from "./web_units.js";

const PER_PAGE = 1000;
const MOST = 20000; // jobs that are looked at
const SHOWN = 50; // rows of each table

async function allJobs(signal) {
  const jobs = [];
  const since = new Date(Date.now() - WEEK_S * 1000).toISOString();
  for (;;) {
    const page = await get(`/jobs?limit=${PER_PAGE}&offset=${jobs.length}&since=${since}`, signal);
    jobs.push(...page.jobs);
    if (page.jobs.length === 0 || jobs.length >= Math.min(page.total, MOST)) {
      return { jobs, total: page.total };
    }
  }
}

function why(job) {
  return job.status || job.decision || "–";
}

function name(job) {
  return place(jobPlace(job.id), job.id, { class: "name" });
}

function top(rows, total) {
  return rows.length < total ? note(`The first ${number(rows.length)} of ${number(total)}.`) : null;
}

function gainTable(jobs) {
  const tuned = jobs.filter((job) => isTuned(job) && job.gain > 0)
    .sort((a, b) => b.gain * b.n_ranks - a.gain * a.n_ranks);
  const rows = tuned.slice(0, SHOWN);
  return h("section", {}, h("h2", {}, "Gain, measured"),
    rows.length === 0 ? note("No running job is tuned.") : table("Jobs that are tuned",
      [["Job", false], ["Ranks", true], ["Rule", false], ["Step under exact", true],
       ["Step", true], ["Gain", true]],
      rows.map((job) => [name(job), number(job.n_ranks), job.rule, time(job.exact_step_ns),
                         time(job.step_ns), times(job.gain)])), top(rows, tuned.length));
}

function leftTable(jobs) {
  const left = jobs.filter((job) => leftOnTable(job) >= LEAST_GAIN)
    .sort((a, b) => leftOnTable(b) * b.n_ranks - leftOnTable(a) * a.n_ranks);
  const rows = left.slice(0, SHOWN);
  return h("section", {}, h("h2", {}, "Left on the table, predicted"),
    rows.length === 0 ? note("Nothing is predicted that is not run.") : table(
      "Jobs that could be tuned",
      [["Job", false], ["Ranks", true], ["Mode", false], ["Step", true], ["Predicted", true],
       ["Gain, predicted", true]],
      rows.map((job) => [name(job), number(job.n_ranks), job.mode, time(job.step_ns),
                         time(job.predicted_step_ns), times(leftOnTable(job))])),
    top(rows, left.length));
}

function nothingTable(jobs) {
  const none = jobs.filter(gainsNothing);
  const rows = none.slice(0, SHOWN);
  return h("section", {}, h("h2", {}, "Where tuning gives nothing"),
    rows.length === 0 ? note("There is no such job.") : table("Jobs where tuning gives nothing",
      [["Job", false], ["Ranks", true], ["Mode", false], ["Step", true], ["Coverage rate", true],
       ["Why", false]],
      rows.map((job) => [name(job), number(job.n_ranks), job.mode, time(job.step_ns),
                         ratio(job.coverage),
                         h("span", { class: "reason" }, why(job))])), top(rows, none.length));
}

export async function showCluster(root, _, view) {
  const { jobs, total } = await allJobs(view.signal);
  const running = jobs.filter((job) => job.state === "running");
  const ranks = (list) => list.reduce((sum, job) => sum + job.n_ranks, 0);
  const tuned = running.filter(isTuned);
  const left = running.filter((job) => leftOnTable(job) >= LEAST_GAIN);
  const lost = left.reduce((sum, job) => sum + job.n_ranks * (1 - 1 / leftOnTable(job)), 0);
  const saved = jobs.reduce((sum, job) => sum + savedHours(job), 0);
  fill(root, h("h1", {}, "Cluster"),
    figures([
      ["Jobs running", number(running.length), plural(ranks(running), "rank")],
      ["Tuned", number(tuned.length), plural(ranks(tuned), "rank")],
      ["Gain, measured", times(commonGain(running)), "mean over tuned ranks"],
      ["GPU-hours saved this week", number(saved, 2), "an estimate: see below"],
      ["Left on the table", `${number(lost, 1)} GPUs`,
       `predicted for ${plural(left.length, "job")}`],
    ]),
    note("A rank counts as one GPU. Hours saved are estimated from each job's newest start, as " +
         "if it had run its present plan since it began, or for the whole week: at most so many. " +
         "What is left on the table is predicted for jobs in mode observe, and is the share of " +
         "their ranks' time that the plans would free."),
    total > jobs.length ? note(`Only ${number(jobs.length)} of ${number(total)} jobs are counted.`)
      : null,
    gainTable(running), leftTable(running), nothingTable(running));
  view.ready();
}
