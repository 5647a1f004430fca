// One plan: why it was chosen, what it was predicted to do and what it did, and its lanes.

import { drawLanes } from "../../lanes/lanes.js";
import { get, jobPath, Refusal } from "./web_api.js";
import { figures, fill, h, jobPlace, note, place, table } from "./web_elements.js";
import { jobHead } from "./job_parts.js";
import { bytes, isKnown, moment, number, ratio, span, time, times } from "./web_units.js";

const SVG = "http://www.w3.org/2000/svg";
const STAGES = [["forward", "Forward"], ["backward", "Backward"], ["optimizer", "Optimizer"],
                ["exposed", "Waiting for communication"]];
const MAX_ROWS = 200;

function stagesPredicted(timeline) {
  const sums = Object.fromEntries(STAGES.map(([stage]) => [stage, 0]));
  for (const [stage, , begin, end] of timeline.window.stages) {
    sums[stage] += end - Math.max(begin, 0);
  }
  return Object.fromEntries(STAGES.map(([stage]) =>
    [stage, sums[stage] / timeline.window.n_iterations]));
}

// Of the iterations that ran this plan, as the ranks reported them.
function stagesMeasured(points, seq) {
  const sums = Object.fromEntries(STAGES.map(([stage]) => [stage, 0]));
  let n = 0;
  for (const point of points.filter((p) => p.plan_seq === seq)) {
    n += point.n_iterations;
    for (const [stage] of STAGES) {
      sums[stage] += point[`${stage}_ns`] * point.n_iterations;
    }
  }
  return n > 0 ? Object.fromEntries(STAGES.map(([stage]) => [stage, sums[stage] / n])) : null;
}

function svg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  return element;
}

function stageBar(stages, longest) {
  const bar = svg("svg", { class: "stage-bar", viewBox: "0 0 1000 26", preserveAspectRatio: "none",
                           "aria-hidden": "true" });
  let at = 0;
  for (const [stage] of STAGES) {
    const width = stages[stage] / longest * 1000;
    bar.append(svg("rect", { class: `lanes-${stage}`, x: at, y: 0, width, height: 26 }));
    at += width;
  }
  return bar;
}

// Both on one scale, so that lengths can be compared; the table says the same in figures.
function comparison(predicted, measured) {
  const total = (stages) => STAGES.reduce((sum, [stage]) => sum + stages[stage], 0);
  const rows = [["Predicted", predicted], ["Measured", measured]].filter(([, s]) => s !== null);
  const longest = Math.max(1, ...rows.map(([, stages]) => total(stages)));
  return h("section", { class: "lanes" }, h("h2", {}, "A step, predicted over measured"),
    rows.map(([name, stages]) => h("div", { class: "stage-row" }, h("span", {}, name),
                                   stageBar(stages, longest))),
    note(measured === null ? "No iteration of this plan has been reported yet."
      : "Of each stage the slowest rank in it, so that the sum may be more than the step."),
    table("A step by stages", [["Step", false], ...STAGES.map(([, text]) => [text, true]),
                               ["Sum", true]],
      rows.map(([name, stages]) => [name, ...STAGES.map(([stage]) => span(stages[stage])),
                                    time(total(stages))])));
}

function planFigures(plan) {
  const forecast = plan.plan.forecast;
  const measured = plan.measured;
  const isPredicted = forecast.step_ns > 0;
  const slowness = measured.step_ns > 0 && forecast.step_ns > 0
    ? measured.step_ns / forecast.step_ns : null;
  return figures([
    ["Update rule", plan.plan.rule],
    ["Step, predicted", time(forecast.step_ns), isPredicted ? null : "it was not solved for"],
    ["Step, measured", measured.n_iterations > 0 ? time(measured.step_ns) : "–",
     measured.n_iterations > 0 ? `${number(measured.n_iterations)} iterations` : "none yet"],
    ["Measured over predicted", times(slowness)],
    ["Exposed, predicted", isPredicted ? span(forecast.exposed_ns) : "–"],
    ["Exposed, measured", measured.n_iterations > 0 ? span(measured.exposed_ns) : "–"],
    ["Coverage rate", plan.solution ? ratio(plan.solution.coverage) : "–"],
    ["Updates per step", isPredicted ? number(forecast.updates_per_step, 3) : "–"],
    ["Delay, mean", isPredicted && isKnown(forecast.mean_delay_steps)
      ? `${number(forecast.mean_delay_steps, 2)} steps` : "–"],
    ["Pending memory", isPredicted ? bytes(forecast.pending_bytes) : "–"],
    ["Made", moment(plan.created_at)],
  ]);
}

function candidates(solution) {
  if (!solution || solution.candidates.length === 0) {
    return note("This plan was not searched for: it is a way back, or it was offered.");
  }
  const keys = Object.keys(solution.candidates[0]).filter((key) =>
    ["number", "string", "boolean"].includes(typeof solution.candidates[0][key]));
  const shown = (key, value) => (key.endsWith("_ns") ? span(value)
    : key.endsWith("_bytes") ? bytes(value)
      : typeof value === "number" ? number(value, 4) : String(value ?? "–"));
  const heading = (key) => {
    const words = key.replace(/_(ns|bytes)$/, "").replaceAll("_", " ");
    return words[0].toUpperCase() + words.slice(1);
  };
  const isFigure = (key) => typeof solution.candidates[0][key] === "number";
  const rows = solution.candidates.slice(0, MAX_ROWS).map((candidate, i) =>
    [i === solution.chosen ? `${i} (chosen)` : String(i),
     ...keys.map((key) => shown(key, candidate[key]))]);
  return table("Candidates",
    [["Candidate", false], ...keys.map((key) => [heading(key), isFigure(key)])], rows);
}

function generations(plan) {
  const rows = plan.generations.slice(0, MAX_ROWS).map((generation, i) =>
    [String(i), String(generation.merge), generation.links.slice(0, 64).join(" "),
     generation.delays.slice(0, 64).join(" ")]);
  return table("Generations of one cycle",
    [["Generation", false], ["Iterations merged", true], ["Link of each bucket", false],
     ["Delay of each bucket, in steps", false]], rows);
}

function planList(job, plans, current) {
  return table("Plans of this start",
    [["Plan", false], ["Made", false], ["Ran from iteration", true]],
    plans.slice(-MAX_ROWS).reverse().map((plan) =>
      [place(jobPlace(job.id, `/plan/${plan.id}`), plan.id,
             { "aria-current": plan.id === current ? "true" : null }),
       moment(plan.created_at),
       plan.switched_at_iteration === null ? "not switched to"
         : number(plan.switched_at_iteration)]));
}

async function orNull(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Refusal && (error.status === 404 || error.status === 409)) {
      return null;
    }
    throw error;
  }
}

// A plan that goes on after a comparison was searched for when it was first pushed.
async function withSolution(plan, plans, signal) {
  const first = plans.find((other) => other.hash === plan.hash && other.id !== plan.id);
  if (plan.solution !== null || first === undefined) {
    return plan;
  }
  const { solution } = await get(`/plans/${first.id}/explain`, signal);
  return { ...plan, solution };
}

export async function showPlan(root, [name, wanted], view) {
  const { signal } = view;
  const job = await get(jobPath(name), signal);
  const { plans } = await get(`/incarnations/${job.incarnation}/plans`, signal);
  const id = wanted || job.plan || plans.at(-1)?.id;
  if (!id) {
    fill(root, jobHead(job, "plan"),
      note("The job runs the built-in exact plan, and no other has been pushed yet."));
    view.ready();
    return;
  }
  const [plan, timeline, steps] = await Promise.all([
    get(`/plans/${id}/explain`, signal).then((found) => withSolution(found, plans, signal)),
    orNull(get(`/plans/${id}/timeline`, signal)),
    get(`/incarnations/${job.incarnation}/iterations?points=10000`, signal)]);
  const lanes = h("div");
  fill(root, jobHead(job, "plan"),
    h("h2", {}, `Plan ${id}`, id !== job.plan ? "" : job.state === "running" ? " (running)" : " (ran last)"),
    plan.reason ? h("p", { class: "status" }, plan.reason) : null, planFigures(plan),
    timeline ? comparison(stagesPredicted(timeline), stagesMeasured(steps.points, plan.seq)) : "",
    h("h2", {}, "Lanes, predicted: two cycles"), lanes,
    h("h2", {}, "What it was chosen from"), candidates(plan.solution),
    h("h2", {}, "Generations"), generations(plan.plan),
    h("h2", {}, "Plans"), planList(job, plans, id));
  if (timeline) {
    signal.addEventListener("abort", drawLanes(lanes, timeline), { once: true });
  } else {
    lanes.replaceChildren(note("It does not fit the profile that is there now, or there is none."));
  }
  view.ready();
}
