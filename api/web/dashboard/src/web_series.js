// What figures are made of others, without a page: tests/web/series_test.mjs tries it.

const WINDOW_FRAC = 0.04; // of the points that are shown, for the mean of the losses
const LEAST_WINDOW = 5;
export const WEEK_S = 7 * 86400;
export const LEAST_GAIN = 1.03; // what a plan has to gain to be run

// --- series --------------------------------------------------------------------------------------

// Points whose iterations do not follow each other get a hole between them. POINTS have
// `iteration` and `n_iterations`; COLUMNS turn one into a value each.
export function withGaps(points, perPoint, columns) {
  const rows = [];
  let next = null;
  for (const point of points) {
    if (next !== null && point.iteration > next + Math.max(perPoint, 1)) {
      rows.push([next, ...columns.map(() => null)]);
    }
    rows.push([point.iteration, ...columns.map((column) => column(point) ?? null)]);
    next = point.iteration + Math.max(point.n_iterations, 1);
  }
  return Array.from({ length: columns.length + 1 }, (_, i) => rows.map((row) => row[i]));
}

// Mean of the losses around each point, and the 95 % band of that mean, as their scatter has it:
// [mean, from, to] each. What lies behind a hole (null) is not around.
export function lossBand(losses) {
  const half = Math.max(LEAST_WINDOW, Math.round(losses.length * WINDOW_FRAC)) >> 1;
  let begin = 0; // of the run without a hole
  return losses.map((loss, i) => {
    if (loss === null) {
      begin = i + 1;
      return [null, null, null];
    }
    const hole = losses.indexOf(null, i);
    const end = Math.min(i + half + 1, hole < 0 ? losses.length : hole);
    const near = losses.slice(Math.max(begin, i - half), end);
    const mean = near.reduce((a, b) => a + b, 0) / near.length;
    const square = near.reduce((a, b) => a + (b - mean) ** 2, 0) / Math.max(1, near.length - 1);
    const error = near.length > 1 ? 1.96 * Math.sqrt(square / near.length) : 0;
    return [mean, mean - error, mean + error];
  });
}

// --- jobs ----------------------------------------------------------------------------------------

// What a plan would gain that nobody lets run, as predicted. Under auto a plan is running, is about
// to be tried, or has been tried and was not better.
export function leftOnTable(job) {
  return job.state === "running" && job.mode === "observe" && !isTuned(job) &&
    job.predicted_gain > 1 ? job.predicted_gain : null;
}

export function isTuned(job) {
  return Boolean(job.rule) && job.rule !== "exact";
}

// Rank-hours that the present plan has saved within the week, if it ran all the time. What a job
// trained before it was tuned counts too, so this is the most that it can be.
export function savedHours(job, now = Date.now()) {
  if (!isTuned(job) || !(job.step_ns > 0) || !(job.exact_step_ns > job.step_ns)) {
    return 0;
  }
  const begin = Math.max(Date.parse(job.registered_at) || now, now - WEEK_S * 1000);
  const end = job.state === "running" ? now : Date.parse(job.updated_at) || now;
  const room = Math.max(0, end - begin) / 1000 / (job.step_ns / 1e9);
  const steps = Math.min(job.iterations, room);
  return steps * (job.exact_step_ns - job.step_ns) * job.n_ranks / 3.6e12;
}

// The mean of the gains of tuned jobs, by ranks; null when there are none.
export function commonGain(jobs) {
  const tuned = jobs.filter((job) => isTuned(job) && job.gain > 0);
  const before = tuned.reduce((sum, job) => sum + job.n_ranks * job.gain, 0);
  const ranks = tuned.reduce((sum, job) => sum + job.n_ranks, 0);
  return ranks > 0 ? before / ranks : null;
}

// Whether a running job was looked at, and nothing came of it.
export function gainsNothing(job) {
  if (isTuned(job)) {
    return job.gain > 0 && job.gain < LEAST_GAIN;
  }
  const isSmall = job.predicted_gain > 0 && job.predicted_gain < LEAST_GAIN;
  return job.exact_step_ns > 0 && (isSmall || (job.mode === "auto" && job.n_rollbacks > 0));
}
