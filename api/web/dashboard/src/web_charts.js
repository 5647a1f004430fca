// Charts over iterations: uPlot draws, and here is what it leaves to others: a readout that the
// arrow keys move, the same values as a table, marks with names, gaps, and files to take away.

import uPlot from "uplot";

import { csv, h, plainName, save, table } from "./web_elements.js";
import { number } from "./web_units.js";

const HEIGHT = 260;
const MAX_ROWS = 1000; // of the table; the file has all
const DARK = window.matchMedia("(prefers-color-scheme: dark)");

// Okabe and Ito's colours, which differ for every kind of colour vision.
const COLOURS = {
  ink: ["#1b1f24", "#e6e9ed"], soft: ["#57606a", "#a5aeb8"], rule: ["#dde1e6", "#2d343c"],
  paper: ["#ffffff", "#14171b"], blue: ["#0072b2", "#56b4e9"], wait: ["#d55e00", "#ff7f2a"],
  green: ["#00724f", "#2bc59a"], purple: ["#9c4f7c", "#dd9abf"],
};

export function colour(name) {
  return COLOURS[name][DARK.matches ? 1 : 0];
}

function faint(name) {
  return `${colour(name)}33`;
}

// --- marks ---------------------------------------------------------------------------------------

// Vertical lines with a letter on top: what was decided at that iteration.
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  let free = -Infinity;
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) {
      continue;
    }
    ctx.strokeStyle = colour(mark.colour);
    ctx.fillStyle = colour(mark.colour);
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash(mark.isDashed ? [4 * ratio, 3 * ratio] : []);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const half = ctx.measureText(mark.label).width / 2 + 2 * ratio;
    if (x - half > free) {
      ctx.fillText(mark.label, x, bbox.top - 4 * ratio);
      free = x + half;
    }
  }
  ctx.restore();
}

// --- a chart -------------------------------------------------------------------------------------

// OPTIONS: title, unit, what (a sentence for who does not see it), xLabel, xFormat, series
// [{name, colour, dash, format, isPoints, isBand}], isLog, height, file, onRange(from, to).
export class Chart {
  constructor(options) {
    this.options = options;
    this.marks = [];
    this.columns = null;
    this.plot = null;
    this.at = null;
    this.box = h("div", { class: "plot" });
    this.focusable = h("div", {
      class: "plot-keys", tabindex: 0, role: "img", keydown: (event) => this.onKey(event),
      blur: () => this.readOut(null),
    }, this.box);
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.rows = h("div");
    this.details = h("details", { class: "rows", toggle: () => this.fillTable() },
                     h("summary", {}, "Values as a table"), this.rows);
    this.legend = h("ul", { class: "legend" });
    this.element = h("section", { class: "chart" },
      h("div", { class: "chart-head" }, h("h2", {}, options.title),
        h("div", { class: "buttons" },
          h("button", { type: "button", click: () => this.saveCsv(),
                        "aria-label": `${options.title}: save as CSV` }, "CSV"),
          h("button", { type: "button", click: () => this.savePng(),
                        "aria-label": `${options.title}: save as PNG` }, "PNG"))),
      this.legend, this.focusable, this.readout, this.details);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.box);
    this.onScheme = () => this.draw();
    DARK.addEventListener("change", this.onScheme);
    this.readOut(null);
  }

  destroy() {
    this.observer.disconnect();
    DARK.removeEventListener("change", this.onScheme);
    this.plot?.destroy();
    this.plot = null;
  }

  // COLUMNS: x, then one list per series, with null for holes.
  set(columns, marks = []) {
    this.columns = columns;
    this.marks = marks.toSorted((a, b) => a.at - b.at);
    if (this.plot !== null && columns[0].length > 0) {
      this.plot.setData(columns);
      this.drawLegend();
    } else {
      this.draw();
    }
    this.fillTable();
    this.describe();
  }

  describe() {
    const n = this.columns[0].filter((_, i) => this.columns[1][i] !== null).length;
    const what = n === 0 ? "no values yet" : `${number(n)} points; the arrow keys read them`;
    this.focusable.setAttribute("aria-label", `${this.options.what}: ${what}`);
  }

  drawLegend() {
    const marks = new Map(this.marks.map((mark) => [mark.name, mark]));
    const swatch = (kind, name) => {
      const element = h("span", { class: `swatch ${kind}`, "aria-hidden": "true" });
      element.style.color = colour(name);
      return element;
    };
    this.legend.replaceChildren(
      ...this.options.series.filter((s) => s.name).map((s) =>
        h("li", {}, swatch(s.isBand ? "band" : s.isPoints ? "dot" : s.dash ? "line dashes" : "line", s.colour), s.name)),
      ...[...marks.values()].map((mark) =>
        h("li", {}, swatch(mark.isDashed ? "dashed" : "upright", mark.colour), mark.name)));
  }

  plotOptions() {
    const { options } = this;
    const axis = { stroke: colour("soft"), grid: { stroke: colour("rule"), width: 1 },
                   ticks: { stroke: colour("rule"), width: 1 }, font: "12px system-ui, sans-serif",
                   labelFont: "12px system-ui, sans-serif" };
    const xFormat = options.xFormat ?? number;
    return {
      width: Math.max(this.box.clientWidth, 200), height: options.height ?? HEIGHT,
      padding: [20, options.isLog ? 36 : 18, 0, 4], legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: options.onRange !== undefined, y: false,
                                                       setScale: false } },
      scales: { x: { time: false, distr: options.isLog ? 3 : 1 },
                y: { distr: options.isLog ? 3 : 1,
                     range: options.isLog ? undefined
                       : (_, low, high) => uPlot.rangeNum(options.isFromZero ? 0 : low ?? 0,
                                                          high ?? 1, 0.1, true) } },
      axes: [{ ...axis, label: options.xLabel ?? "Iteration", labelSize: 18, size: 34, space: 70,
               values: (_, ticks) => ticks.map((t) => (t === null ? "" : xFormat(t))) },
             { ...axis, label: options.unit, labelSize: 18, size: 56,
               values: (_, ticks) => ticks.map((t) => (t === null ? "" : number(t, 6))) }],
      series: [{}, ...options.series.map((s) => ({
        stroke: s.isHidden ? "transparent" : s.isPoints || s.isBand ? faint(s.colour)
          : colour(s.colour),
        width: s.isHidden || s.isBand ? 0 : s.isPoints ? 0 : 1.75, dash: s.dash,
        spanGaps: s.spanGaps ?? false,
        paths: s.isPoints ? () => null : undefined,
        points: s.isHidden || s.isBand ? { show: false } : s.isPoints
          ? { show: true, size: 4, fill: `${colour(s.colour)}66`, stroke: `${colour(s.colour)}66` }
          : { size: 6, fill: colour(s.colour), stroke: colour(s.colour) },
      }))],
      bands: options.bands?.map(([upper, lower, name]) => ({ series: [upper, lower],
                                                             fill: faint(name) })),
      hooks: {
        draw: [(plot) => drawMarks(plot, this.marks)],
        setCursor: [(plot) => this.readOut(plot.cursor.idx ?? null)],
        setSelect: [(plot) => this.onSelect(plot)],
      },
    };
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    if (this.columns === null) {
      return;
    }
    this.drawLegend();
    if (this.columns[0].length === 0) {
      this.box.replaceChildren(h("p", { class: "note" }, this.options.empty ?? "No values yet."));
      return;
    }
    this.box.replaceChildren();
    this.plot = new uPlot(this.plotOptions(), this.columns, this.box);
  }

  resize() {
    const width = this.box.clientWidth;
    if (this.plot !== null && width > 0 && width !== this.plot.width) {
      this.plot.setSize({ width, height: this.options.height ?? HEIGHT });
    }
  }

  onSelect(plot) {
    if (plot.select.width < 8 || this.options.onRange === undefined) {
      return;
    }
    const from = plot.posToVal(plot.select.left, "x");
    const to = plot.posToVal(plot.select.left + plot.select.width, "x");
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.options.onRange(Math.max(0, Math.floor(from)), Math.max(0, Math.ceil(to)));
  }

  onKey(event) {
    if (this.plot === null || event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    const n = this.columns[0].length;
    const step = event.shiftKey ? Math.max(1, Math.round(n / 20)) : 1;
    const from = this.plot.cursor.idx ?? this.at ?? -1;
    const to = { ArrowRight: from + step, ArrowLeft: from - step, Home: 0, End: n - 1 }[event.key];
    if (to === undefined) {
      return;
    }
    event.preventDefault();
    const index = Math.min(Math.max(to, 0), n - 1);
    this.plot.setCursor({ left: this.plot.valToPos(this.columns[0][index], "x"), top: 10 });
    this.readOut(index);
  }

  valueText(series, value) {
    if (value === null || value === undefined) {
      return "–";
    }
    return series.format ? series.format(value) : `${number(value, 4)} ${this.options.unit}`;
  }

  readOut(index) {
    this.at = index;
    if (index === null || this.columns === null) {
      this.readout.textContent = "Point at the chart, or use the arrow keys, to read its values.";
      return;
    }
    const x = this.columns[0][index];
    const parts = this.options.series.flatMap((s, i) =>
      (s.name && !s.isBand ? [`${s.name} ${this.valueText(s, this.columns[i + 1][index])}`] : []));
    const before = this.marks.filter((mark) => mark.at <= x).at(-1);
    const since = before ? `; since ${number(before.at)}: ${before.text}` : "";
    this.readout.textContent =
      `${this.options.xLabel ?? "Iteration"} ${(this.options.xFormat ?? number)(x)}: ` +
      parts.join(", ") + since;
  }

  headings() {
    return [this.options.xLabel ?? "Iteration",
            ...this.options.series.map((s) => `${s.title ?? s.name} (${this.options.unit})`)];
  }

  fillTable() {
    if (!this.details.open || this.columns === null) {
      return;
    }
    const n = this.columns[0].length;
    const every = Math.max(1, Math.ceil(n / MAX_ROWS));
    const rows = [];
    for (let i = 0; i < n; i += every) {
      rows.push(this.columns.map((column, c) => (column[i] === null || column[i] === undefined
        ? "–" : c === 0 ? (this.options.xFormat ?? number)(column[i]) : number(column[i], 6))));
    }
    const cut = every === 1 ? [] : [h("p", { class: "note" },
      `Every ${number(every)}th of ${number(n)} points; the CSV file has all.`)];
    this.rows.replaceChildren(table(`${this.options.title}, values`,
                                    this.headings().map((text) => [text, true]), rows), ...cut);
  }

  fileName(ending) {
    return `${plainName(this.options.file ?? "deft")}-${plainName(this.options.title)}.${ending}`;
  }

  saveCsv() {
    const columns = this.columns ?? [[]];
    const rows = columns[0].map((_, i) => columns.map((column) => column[i]));
    save(this.fileName("csv"), new Blob([csv(this.headings(), rows)], { type: "text/csv" }));
  }

  savePng() {
    if (this.plot === null) {
      return;
    }
    const from = this.plot.ctx.canvas;
    const ratio = devicePixelRatio || 1;
    const canvas = h("canvas", { width: from.width, height: from.height + 30 * ratio });
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = colour("paper");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = colour("ink");
    ctx.font = `${14 * ratio}px system-ui, sans-serif`;
    ctx.fillText(this.options.file ? `${this.options.title}, ${this.options.file}`
                                   : this.options.title, 10 * ratio, 20 * ratio);
    ctx.drawImage(from, 0, 30 * ratio);
    canvas.toBlob((blob) => save(this.fileName("png"), blob), "image/png");
  }
}
