// A lane chart of a timeline (deft.timeline/1, api/wire/wire.h): compute and each link, with the
// figures of the simulation, details on hover and focus, and the same data as a table. Needs
// lanes.css. Asks nothing of a network, and makes elements only, never markup out of names.

const SVG = "http://www.w3.org/2000/svg";
const AXIS_HEIGHT = 36;
const LANE_HEIGHT = 34;
const LANE_GAP = 18; // above each lane, for the names of generations
const ITERATION_WIDTH = 260; // at least, so that buckets can be told apart
const MAX_WIDTH = 60000; // browsers draw no elements much wider
const WAIT_WIDTH = 3; // at least: waits are what one looks for
const PRINT_WIDTH = 560; // beside the names on a page of A4 or Letter
const N_GENERATION_COLOURS = 3;

const STAGES = {
  forward: "Forward",
  backward: "Backward",
  optimizer: "Optimizer",
  exposed: "Waiting for communication",
};

// --- figures with units --------------------------------------------------------------------------

const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const BYTE_UNITS = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];

function unitOf(units, value) {
  return units.find(([, size]) => Math.abs(value) >= size) ?? units[units.length - 1];
}

function inUnit(value, [name, size]) {
  const number = value / size;
  const digits = size === 1 || Math.abs(number) >= 1000 ? 0 : Math.abs(number) >= 100 ? 1 : 2;
  return `${number.toFixed(digits)}\u00a0${name}`;
}

export function formatTime(ns) {
  return ns === 0 ? "0" : inUnit(ns, Math.abs(ns) < 1e10 && Math.abs(ns) >= 1e9
    ? TIME_UNITS[1] : unitOf(TIME_UNITS, ns));
}

export function formatBytes(bytes) {
  return bytes === null ? "not told by this policy" : inUnit(bytes, unitOf(BYTE_UNITS, bytes));
}

export function formatFraction(value) {
  return `${(100 * value).toFixed(1)}\u00a0%`;
}

function figures(timeline) {
  const report = timeline.report;
  const busy = timeline.links.map((name, i) =>
    `${name}\u00a0${formatFraction(report.link_busy_frac[i] ?? 0)}`);
  const longest = report.max_delay_steps;
  return [
    ["Step", formatTime(report.step_ns)],
    ["Compute T", formatTime(timeline.compute_ns)],
    ["Exposed, per step", formatTime(report.exposed_ns)],
    ["Updates per step", report.updates_per_step.toFixed(3)],
    ["Update rule", timeline.rule],
    ["Delay, mean", `${report.mean_delay_steps.toFixed(2)} steps`],
    ["Delay, longest", `${longest} ${longest === 1 ? "step" : "steps"}`],
    ["Pending memory", formatBytes(report.pending_bytes)],
    ["Coverage rate", timeline.coverage.toFixed(2)],
    ["All-reduces per step", report.ops_per_step.toFixed(1)],
    ["Links busy", busy.join(", ")],
  ];
}

// --- elements ------------------------------------------------------------------------------------

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function description(pairs) {
  return pairs.map(([term, value]) => html("div", {}, html("dt", {}, term), html("dd", {}, value)));
}

// --- blocks --------------------------------------------------------------------------------------

function stageBlock([stage, iteration, begin, end]) {
  return {
    what: STAGES[stage],
    style: `lanes-${stage}`,
    label: stage === "exposed" ? "" : stage,
    isHatched: stage === "exposed",
    iteration, generation: null, bucket: null, bytes: null, begin, end,
    details: [["Stage", STAGES[stage]], ["Iteration", String(iteration)]],
  };
}

function transferBlock(link, [, generation, bucket, bytes, begin, end]) {
  return {
    what: "All-reduce",
    style: `lanes-gen${generation % N_GENERATION_COLOURS}`,
    label: String(bucket),
    isHatched: false,
    iteration: null, generation, bucket, bytes, begin, end,
    details: [["Bucket", String(bucket)], ["Generation", String(generation)],
              ["Size", formatBytes(bytes)], ["Link", link]],
  };
}

function lanesOf(timeline) {
  const { stages, transfers } = timeline.window;
  const compute = { name: "compute", isLink: false, blocks: stages.map(stageBlock) };
  const links = timeline.links.map((name, i) => ({
    name, isLink: true,
    blocks: transfers.filter(([link]) => link === i).map((row) => transferBlock(name, row)),
  }));
  const lanes = [compute, ...links];
  for (const lane of lanes) {
    for (const block of lane.blocks) {
      block.lane = lane;
      block.details.push(["Begin", formatTime(block.begin)], ["End", formatTime(block.end)],
                         ["Duration", formatTime(block.end - block.begin)]);
    }
  }
  return lanes;
}

function spoken(block) {
  return block.details.map(([term, value]) => `${term} ${value}`).join(", ");
}

function laneTop(index) {
  return AXIS_HEIGHT + index * (LANE_HEIGHT + LANE_GAP) + LANE_GAP;
}

// --- one drawing at one width --------------------------------------------------------------------

// A round number of units, so that labels are at least `least` apart.
function tickStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

function drawAxis(chart, width, span, height) {
  const step = tickStep(span * 80 / width);
  const unit = unitOf(TIME_UNITS, Math.max(step, 1));
  for (let at = 0; at <= span; at += step) {
    const x = at / span * width;
    const anchor = x < 24 ? "start" : x > width - 30 ? "end" : "middle";
    const number = Number((at / unit[1]).toFixed(3));
    chart.append(
      svg("line", { class: "lanes-tick", x1: x, x2: x, y1: AXIS_HEIGHT - 4, y2: height }),
      svg("text", { class: "lanes-soft", x: anchor === "start" ? x + 2 : x, y: AXIS_HEIGHT - 8,
                    "text-anchor": anchor }, `${number} ${unit[0]}`));
  }
}

function drawIterations(chart, lane, width, span, height) {
  let last = null;
  let free = -Infinity; // where the next label may begin
  for (const block of lane.blocks) {
    if (block.iteration === last) {
      continue;
    }
    last = block.iteration;
    const x = Math.max(0, block.begin / span * width);
    // Not through the row of the axis' figures.
    chart.append(svg("line", { class: "lanes-iteration", x1: x, x2: x, y1: 2, y2: 15 }),
                 svg("line", { class: "lanes-iteration", x1: x, x2: x, y1: AXIS_HEIGHT - 4,
                               y2: height }));
    const text = `iteration ${block.iteration}`;
    if (x >= free && x + 6.2 * text.length < width) {
      chart.append(svg("text", { class: "lanes-soft", x: x + 4, y: 12 }, text));
      free = x + 6.5 * text.length + 8;
    }
  }
}

function drawGenerations(chart, lane, top, width, span) {
  let last = null;
  let free = -Infinity;
  for (const block of lane.blocks) {
    if (block.generation === last) {
      continue;
    }
    last = block.generation;
    const x = Math.max(0, block.begin / span * width);
    const text = `gen ${block.generation}`;
    if (x >= free && x + 6.2 * text.length < width) {
      chart.append(svg("text", { class: "lanes-soft", x, y: top - 4 }, text));
      free = x + 6.5 * text.length + 6;
    }
  }
}

function drawBlock(group, block, top, width, span, hatch) {
  const to = Math.min(width, block.end / span * width);
  // What is shorter than a pixel is shown all the same.
  const least = block.isHatched ? WAIT_WIDTH : 1;
  const from = Math.max(0, Math.min(block.begin / span * width, to - least));
  const size = { x: from, y: top, width: to - from, height: LANE_HEIGHT };
  block.rect = svg("rect", { ...size, class: `lanes-block ${block.style}`, role: "img",
                             tabindex: -1, "aria-label": spoken(block) });
  block.rect.block = block;
  group.append(block.rect);
  if (block.isHatched) {
    group.append(svg("rect", { ...size, fill: `url(#${hatch})`, "pointer-events": "none" }));
  }
  if (block.label !== "" && to - from > 7 * block.label.length + 6) {
    const style = block.style === "lanes-gen1" ? "lanes-on-dark" : "lanes-on-light";
    group.append(svg("text", { class: style, x: (from + to) / 2, y: top + LANE_HEIGHT / 2 + 4,
                               "text-anchor": "middle", "aria-hidden": "true" }, block.label));
  }
}

function hatchPattern(id) {
  return svg("defs", {}, svg("pattern", { id, width: 6, height: 6,
                                          patternUnits: "userSpaceOnUse",
                                          patternTransform: "rotate(45)" },
                             svg("line", { class: "lanes-hatch", x1: 1, x2: 1, y1: 0, y2: 6 })));
}

function drawChart(lanes, width, span, hatch) {
  const height = laneTop(lanes.length - 1) + LANE_HEIGHT + 6;
  const chart = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
                             "aria-label": "Lanes; the arrow keys move between blocks and lanes" },
                    hatchPattern(hatch));
  lanes.forEach((_, i) => {
    chart.append(svg("rect", { class: "lanes-lane", x: 0, y: laneTop(i), width,
                               height: LANE_HEIGHT }));
  });
  drawAxis(chart, width, span, height);
  lanes.forEach((lane, i) => {
    const group = svg("g", { role: "group",
                             "aria-label": `${lane.name}, ${lane.blocks.length} blocks` });
    for (const block of lane.blocks) {
      drawBlock(group, block, laneTop(i), width, span, hatch);
    }
    chart.append(group);
    if (lane.isLink) {
      drawGenerations(chart, lane, laneTop(i), width, span);
    }
  });
  drawIterations(chart, lanes[0], width, span, height);
  return chart;
}

// --- moving about --------------------------------------------------------------------------------

function nearest(lane, time) {
  const distance = (block) => Math.max(block.begin - time, time - block.end, 0);
  return lane.blocks.reduce((best, block) =>
    distance(block) < distance(best) ? block : best, lane.blocks[0]);
}

// The block that `key` leads to from `block`; the same one at the end, undefined for other keys.
function neighbour(lanes, block, key) {
  const blocks = block.lane.blocks;
  const at = blocks.indexOf(block);
  const filled = lanes.filter((lane) => lane.blocks.length > 0);
  const lane = filled.indexOf(block.lane);
  const middle = (Math.max(block.begin, 0) + block.end) / 2;
  switch (key) {
    case "ArrowRight": return blocks[Math.min(at + 1, blocks.length - 1)];
    case "ArrowLeft": return blocks[Math.max(at - 1, 0)];
    case "Home": return blocks[0];
    case "End": return blocks[blocks.length - 1];
    case "ArrowDown": return lane + 1 < filled.length ? nearest(filled[lane + 1], middle) : block;
    case "ArrowUp": return lane > 0 ? nearest(filled[lane - 1], middle) : block;
    default: return undefined;
  }
}

// --- the parts around it -------------------------------------------------------------------------

function legend(timeline, hatch) {
  const swatch = (style, isHatched) => svg("svg", { width: 16, height: 12, "aria-hidden": "true" },
    svg("rect", { class: style, width: 16, height: 12 }),
    ...(isHatched ? [svg("rect", { fill: `url(#${hatch})`, width: 16, height: 12 })] : []));
  const items = Object.entries(STAGES).map(([stage, name]) =>
    html("li", {}, swatch(`lanes-${stage}`, stage === "exposed"), name));
  const generations = html("li", {});
  for (let i = 0; i < N_GENERATION_COLOURS; i++) {
    generations.append(swatch(`lanes-gen${i}`, false));
  }
  generations.append("Buckets on a link, one colour per generation in turn");
  return html("ul", { class: "lanes-legend", "aria-label": "Legend" }, ...items, generations);
}

function tableRow(block) {
  const text = (value) => (value === null ? "" : String(value));
  const ms = (ns) => (ns / 1e6).toFixed(6);
  const cells = [block.lane.name, block.what, text(block.iteration), text(block.generation),
                 text(block.bucket), text(block.bytes), ms(block.begin), ms(block.end),
                 ms(block.end - block.begin)];
  return html("tr", {}, ...cells.map((cell) => html("td", {}, cell)));
}

// Filled when it is opened first: thousands of rows cost time that most readers need not spend.
function table(lanes) {
  const headings = ["Lane", "What", "Iteration", "Generation", "Bucket", "Size (bytes)",
                    "Begin (ms)", "End (ms)", "Duration (ms)"];
  const box = html("div", { tabindex: 0, role: "region", "aria-label": "Blocks as a table" });
  const data = html("details", { class: "lanes-data" },
                    html("summary", {}, "All blocks as a table"), box);
  data.addEventListener("toggle", () => {
    if (data.open && box.childElementCount === 0) {
      const head = html("tr", {}, ...headings.map((h) => html("th", { scope: "col" }, h)));
      const rows = lanes.flatMap((lane) => lane.blocks.map(tableRow));
      box.append(html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
    }
  });
  return data;
}

function laneNames(lanes) {
  const names = html("div", { class: "lanes-names", "aria-hidden": "true" });
  lanes.forEach((lane, i) => {
    const name = html("span", { title: lane.name }, lane.name);
    name.style.top = `${laneTop(i)}px`;
    name.style.lineHeight = `${LANE_HEIGHT}px`;
    names.append(name);
  });
  return names;
}

function hint(window) {
  const cut = window.cut ? " Only the first blocks of the two cycles are drawn." : "";
  return html("p", { class: "lanes-hint" },
              `Point at a block or move to one with the arrow keys to read its figures.${cut}`);
}

// The chart that can be zoomed, pointed at and walked through with the keys.
class Chart {
  constructor(timeline, lanes, hatch) {
    this.window = timeline.window;
    this.lanes = lanes;
    this.hatch = hatch;
    this.zoom = 1;
    this.width = 0;
    this.isPrinting = false;
    this.current = lanes.flatMap((lane) => lane.blocks)[0];
    this.scroll = html("div", { class: "lanes-scroll" });
    this.details = html("div", { class: "lanes-details" }, hint(this.window));
    this.scroll.addEventListener("keydown", (event) => this.onKey(event));
    this.scroll.addEventListener("focusin", (event) => this.onFocus(event.target.block));
    this.scroll.addEventListener("pointerover", (event) => this.show(event.target.block));
    this.scroll.addEventListener("click", (event) => event.target.block?.rect.focus());
    this.scroll.addEventListener("pointerleave", () => this.show(this.focused()));
  }

  focused() {
    return this.scroll.contains(document.activeElement) ? document.activeElement.block : undefined;
  }

  show(block) {
    if (block !== undefined) {
      this.details.replaceChildren(html("dl", {}, ...description(block.details)));
    }
  }

  fitting() {
    return Math.max(this.scroll.clientWidth,
                    Math.min(this.window.n_iterations * ITERATION_WIDTH, MAX_WIDTH));
  }

  draw(width) {
    const hadFocus = this.focused() !== undefined;
    const half = this.scroll.clientWidth / 2;
    const centre = this.width > 0 ? (this.scroll.scrollLeft + half) / this.width : 0;
    this.width = width;
    const chart = drawChart(this.lanes, width, this.window.span_ns, this.hatch);
    this.ring = svg("rect", { class: "lanes-ring", visibility: "hidden", fill: "none",
                              height: LANE_HEIGHT + 4, rx: 2 });
    chart.append(this.ring);
    this.scroll.replaceChildren(chart);
    this.current?.rect.setAttribute("tabindex", 0);
    this.scroll.scrollLeft = centre * width - half;
    if (hadFocus) {
      this.current.rect.focus();
    }
  }

  // Drawn at its natural width times the zoom; a new width of the page changes the former.
  redraw() {
    const width = Math.round(this.fitting() * this.zoom);
    this.draw(Math.min(Math.max(width, this.scroll.clientWidth), MAX_WIDTH));
  }

  zoomBy(factor) {
    const least = this.scroll.clientWidth / this.fitting();
    this.zoom = factor === 0 ? least
      : Math.min(Math.max(this.zoom * factor, least), MAX_WIDTH / this.fitting());
    this.redraw();
  }

  onFocus(block) {
    if (block === undefined) {
      return;
    }
    this.current?.rect.setAttribute("tabindex", -1);
    block.rect.setAttribute("tabindex", 0);
    this.current = block;
    const rect = block.rect;
    this.ring.setAttribute("x", rect.x.baseVal.value - 2);
    this.ring.setAttribute("y", rect.y.baseVal.value - 2);
    this.ring.setAttribute("width", rect.width.baseVal.value + 4);
    this.ring.setAttribute("visibility", "visible");
    rect.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.show(block);
  }

  onKey(event) {
    const block = event.target.block;
    if (block === undefined || event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    const next = neighbour(this.lanes, block, event.key);
    if (next !== undefined) {
      event.preventDefault();
      next.rect.focus();
    }
  }
}

function zoomButtons(chart) {
  const button = (text, label, factor) => {
    const element = html("button", { type: "button", "aria-label": label, title: label }, text);
    element.addEventListener("click", () => chart.zoomBy(factor));
    return element;
  };
  return html("div", { class: "lanes-zoom" }, button("−", "Zoom out", 1 / 1.6),
              button("+", "Zoom in", 1.6), button("Fit", "Fit into the page", 0));
}

let nCharts = 0;

// Fills `element` with the chart of `timeline`. Returns a function that stops what watches the
// page's width and printer, for pages that take the chart away again.
export function drawLanes(element, timeline) {
  element.classList.add("lanes");
  element.replaceChildren(html("dl", { class: "lanes-figures" },
                               ...description(figures(timeline))));
  if (timeline.window === undefined) {
    return () => {};
  }
  const hatch = `lanes-hatch-${nCharts++}`;
  const lanes = lanesOf(timeline);
  const chart = new Chart(timeline, lanes, hatch);
  element.append(html("div", { class: "lanes-bar" }, legend(timeline, hatch), zoomButtons(chart)),
                 html("div", { class: "lanes-chart" }, laneNames(lanes), chart.scroll),
                 chart.details, table(lanes));
  chart.redraw();
  let seen = chart.scroll.clientWidth;
  const observer = new ResizeObserver(() => {
    if (chart.scroll.clientWidth !== seen && !chart.isPrinting) {
      seen = chart.scroll.clientWidth;
      chart.redraw();
    }
  });
  observer.observe(chart.scroll);
  const beforePrint = () => {
    chart.isPrinting = true;
    chart.draw(PRINT_WIDTH);
  };
  const afterPrint = () => {
    chart.isPrinting = false;
    chart.redraw();
  };
  window.addEventListener("beforeprint", beforePrint);
  window.addEventListener("afterprint", afterPrint);
  return () => {
    observer.disconnect();
    window.removeEventListener("beforeprint", beforePrint);
    window.removeEventListener("afterprint", afterPrint);
  };
}
