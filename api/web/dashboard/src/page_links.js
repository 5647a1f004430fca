// The links of a job: how long all-reduces of each size take, measured and as the ranks probed.

import { get, jobPath, Refusal } from "./web_api.js";
import { Chart } from "./web_charts.js";
import { fill, h, note, table } from "./web_elements.js";
import { jobHead } from "./job_parts.js";
import { bytes, number, rate, roundBytes, time } from "./web_units.js";

async function profileOf(job, signal) {
  try {
    return await get(`/incarnations/${job.incarnation}/profile`, signal);
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) {
      return null;
    }
    throw error;
  }
}

// [[bytes, ns of what was measured, its least, its most, ns of a probe]] by size.
function curve(ops, probes) {
  const sizes = new Map();
  const at = (size) => {
    if (!sizes.has(size)) {
      sizes.set(size, [size, null, null, null, null]);
    }
    return sizes.get(size);
  };
  for (const op of ops.filter((o) => o.bytes > 0 && o.median_ns > 0)) {
    at(op.bytes).splice(1, 3, op.median_ns, Math.max(op.min_ns, 1), Math.max(op.max_ns, 1));
  }
  for (const [size, ns] of probes.filter(([s, t]) => s > 0 && t > 0)) {
    at(size)[4] = ns;
  }
  return [...sizes.values()].sort((a, b) => a[0] - b[0]);
}

function linkChart(job, name, rows) {
  const chart = new Chart({
    title: `Link ${name}`, unit: "ms", what: `Time of an all-reduce on ${name} over its size`,
    file: job, xLabel: "Size", xFormat: roundBytes, isLog: true, bands: [[3, 2, "blue"]],
    empty: "Nothing has been sent on this link yet.",
    series: [{ name: "median", colour: "blue", spanGaps: true },
             { title: "least", colour: "blue", isHidden: true, spanGaps: true },
             { name: "least to most", title: "most", colour: "blue", isBand: true, spanGaps: true },
             { name: "probed at the start", colour: "green", dash: [5, 4], spanGaps: true }] });
  const ms = (i) => rows.map((row) => (row[i] === null ? null : row[i] / 1e6));
  chart.set([rows.map((row) => row[0]), ms(1), ms(2), ms(3), ms(4)]);
  return chart;
}

export async function showLinks(root, [name], view) {
  const { signal } = view;
  const job = await get(jobPath(name), signal);
  const [{ ops }, profile] = await Promise.all([
    get(`/incarnations/${job.incarnation}/links`, signal), profileOf(job, signal)]);
  const links = profile?.links ?? [];
  const n = Math.max(links.length, ...ops.map((op) => op.link + 1), 0);
  const charts = Array.from({ length: n }, (_, i) =>
    linkChart(name, links[i]?.name ?? `${i}`,
              curve(ops.filter((op) => op.link === i), links[i]?.samples ?? [])));
  signal.addEventListener("abort", () => charts.forEach((chart) => chart.destroy()));
  const rows = ops.map((op) => [links[op.link]?.name ?? `${op.link}`, bytes(op.bytes),
                                number(op.count), time(op.min_ns), time(op.median_ns),
                                time(op.max_ns), rate(op.bytes / (op.median_ns / 1e9))]);
  fill(root, jobHead(job, "links"),
    n === 0 ? note("No link is known of this start yet.") : "",
    ...charts.map((chart) => chart.element), h("h2", {}, "All-reduces by link and size"),
    rows.length === 0 ? note("None has been reported yet.")
      : table("All-reduces by link and size",
              [["Link", false], ["Size", true], ["Count", true], ["Least", true], ["Median", true],
               ["Most", true], ["Bandwidth at the median", true]], rows));
  view.ready();
}
