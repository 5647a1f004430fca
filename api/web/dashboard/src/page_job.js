// One job: what it gains, its steps and losses with what was decided, and what operators can do.

import { get, jobPath, watchJob } from "./web_api.js";
import { Chart } from "./web_charts.js";
import { figures, fill, h } from "./web_elements.js";
import { operatorButtons } from "./job_actions.js";
import { jobAbout, jobHead, marksOf } from "./job_parts.js";
import { exposedShare, fraction, moment, number, ratio, time, times } from "./web_units.js";
import { isTuned, leftOnTable, lossBand, withGaps } from "./web_series.js";
import { heard } from "./page_jobs.js";

// Of losses many, which the mean nearby goes through; of steps fewer, since under a plan that merges
// they take turns, and their mean and range say more.
const LOSS_POINTS = 1000;
const STEP_POINTS = 300;
const RANGES = [["", "All"], ["100000", "Last 100,000"], ["10000", "Last 10,000"],
                ["1000", "Last 1,000"], ["100", "Last 100"]];
const REFRESH_MS = 1000;

function makeCharts(job, onRange) {
  const common = { file: job, onRange };
  return {
    step: new Chart({
      ...common, title: "Step time", unit: "ms", what: "Step time over iterations",
      isFromZero: true, bands: [[3, 2, "blue"]],
      series: [{ name: "mean step", colour: "blue" },
               { title: "fastest", colour: "blue", isHidden: true },
               { name: "fastest to slowest", title: "slowest", colour: "blue", isBand: true },
               { name: "of it waiting for communication", colour: "wait" }] }),
    loss: new Chart({
      ...common, title: "Loss", unit: "loss", what: "Loss over iterations",
      empty: "The job reports no losses.", bands: [[4, 3, "green"]],
      series: [{ name: "loss", colour: "blue", isPoints: true },
               { name: "mean nearby", colour: "green" },
               { title: "95 % of the mean, from", colour: "green", isHidden: true },
               { name: "95 % confidence of the mean", title: "95 % of the mean, to",
                 colour: "green", isBand: true }] }),
    share: new Chart({
      ...common, title: "Exposed share of the step", unit: "%", isFromZero: true, height: 180,
      what: "Share of the step that is waited for communication",
      series: [{ name: "exposed share", colour: "wait" }] }),
  };
}

function headFigures(job) {
  const left = leftOnTable(job);
  return figures([
    ["Gain, measured", isTuned(job) ? times(job.gain) : "–",
     isTuned(job) ? "exact step over step" : "it runs exact"],
    ["Left on the table", times(left), left ? "predicted, not measured" : "in mode observe only"],
    ["Step", time(job.step_ns)],
    ["Step under exact", time(job.exact_step_ns)],
    ["Step, predicted", time(job.predicted_step_ns),
     job.predicted_step_ns > 0 && !isTuned(job) ? "of the plan found last" : null],
    ["Coverage rate", ratio(job.coverage),
     "communication over compute"],
    ["Update rule", job.rule || "exact",
     isTuned(job) ? `merge ${job.merge}, delay ${job.delay}` : null],
    ["Progress per sample", fraction(job.progress), "of exact's, predicted"],
    ["Loss", number(job.loss, 4), job.loss_state || "not reported"],
    ["Ranks heard", heard(job)],
    ["Iterations", number(job.iterations)],
    ["Changed", moment(job.updated_at)],
  ]);
}

class JobPage {
  constructor(root, view, job) {
    this.view = view;
    this.name = job;
    this.job = null;
    this.seen = null;
    this.head = h("div");
    this.live = h("p", { class: "live", role: "status" });
    this.status = h("p", { class: "status" });
    this.figures = h("div");
    this.actions = operatorButtons(job, () => this.job, () => this.refresh());
    this.charts = makeCharts(job, (from, to) => view.go({ last: "", from, to }));
    view.signal.addEventListener("abort", () =>
      Object.values(this.charts).forEach((chart) => chart.destroy()));
    fill(root, this.head, this.live, this.status, this.figures, this.actions.element,
      this.rangeBar(), ...Object.values(this.charts).map((chart) => chart.element));
  }

  rangeBar() {
    const { params } = this.view;
    const isOwn = params.get("from") !== null;
    const last = params.get("last") || "";
    return h("div", { class: "bar", role: "group", "aria-label": "Range of iterations" },
      RANGES.map(([n, text]) => h("button", {
        type: "button", "aria-pressed": String(!isOwn && last === n),
        click: () => this.view.go({ last: n, from: "", to: "" }) }, text)),
      isOwn ? h("span", {}, `Iterations ${number(Number(params.get("from")))} to ` +
                            number(Number(params.get("to"))))
        : h("span", { class: "soft" }, "Drag across a chart for a range of your own."));
  }

  range() {
    const { params } = this.view;
    const query = new URLSearchParams();
    const last = Number(params.get("last"));
    if (params.get("from") !== null) {
      query.set("from", params.get("from"));
      query.set("to", params.get("to") ?? "9007199254740991");
    } else if (last > 0 && this.newest !== undefined) {
      query.set("from", Math.max(0, this.newest - last + 1));
    }
    return query;
  }

  take(job) {
    this.job = job;
    if (this.head.childElementCount === 0) {
      this.head.replaceChildren(jobHead(job, "job"));
    }
    this.head.querySelector("p").textContent = jobAbout(job);
    // What comes next is of no use to a job that has ended.
    this.status.textContent = (job.state === "running" && job.status) || job.decision || "";
    this.figures.replaceChildren(headFigures(job));
    this.actions.update(job);
    this.refresh();
  }

  // The series, when something new may be in them; one look at a time.
  async refresh() {
    const job = this.job;
    if (job === null || this.isLooking) {
      this.isLate = true;
      return;
    }
    this.isLooking = true;
    this.isLate = false;
    try {
      await this.look(job);
    } catch (error) {
      if (!this.view.signal.aborted) {
        this.live.textContent = `The series cannot be read: ${error.message}`;
      }
    }
    this.view.ready();
    setTimeout(() => {
      this.isLooking = false;
      if (this.isLate && !this.view.signal.aborted) {
        this.refresh();
      }
    }, REFRESH_MS);
  }

  async look(job) {
    const { signal } = this.view;
    const base = `/incarnations/${job.incarnation}`;
    if (Number(this.view.params.get("last")) > 0) {
      const all = await get(`${base}/iterations?points=1`, signal);
      this.newest = all.to;
    }
    const query = this.range();
    const [steps, losses, decisions] = await Promise.all([
      get(`${base}/iterations?points=${STEP_POINTS}&${query}`, signal),
      get(`${base}/losses?points=${LOSS_POINTS}&${query}`, signal),
      get(`${base}/decisions`, signal)]);
    if (!signal.aborted) {
      this.draw(steps, losses, marksOf(decisions.decisions));
    }
  }

  draw(steps, losses, marks) {
    const ms = (name) => (point) => (point[name] > 0 ? point[name] / 1e6 : null);
    const inside = (points) => {
      const end = points.at(-1);
      return points.length === 0 ? [] : marks.filter((mark) =>
        mark.at >= points[0].iteration && mark.at <= end.iteration + end.n_iterations);
    };
    const per = steps.iterations_per_point;
    this.charts.step.set(withGaps(steps.points, per, [
      ms("step_ns"), ms("step_min_ns"), ms("step_max_ns"),
      (point) => (point.step_ns > 0 ? point.exposed_ns / 1e6 : null)]), inside(steps.points));
    this.charts.share.set(withGaps(steps.points, per, [
      (point) => (point.step_ns > 0 ? 100 * exposedShare(point) : null)]), inside(steps.points));
    const known = losses.points.filter((point) => point.loss !== null);
    const [x, loss] = withGaps(known, losses.iterations_per_point, [(point) => point.loss]);
    const band = lossBand(loss);
    this.charts.loss.set([x, loss, ...[0, 1, 2].map((i) => band.map((b) => b[i]))],
                         inside(known));
  }
}

export async function showJob(root, [name], view) {
  const first = await get(jobPath(name), view.signal);
  const page = new JobPage(root, view, name);
  page.take(first);
  await watchJob(name, view.signal, (job) => page.take(job), (why) => {
    if (page.live.textContent !== why) {
      page.live.textContent = why;
    }
  });
}
