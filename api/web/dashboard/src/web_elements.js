// Elements, made by name and never by markup: whatever a job is called, it stays text.

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(key, value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Puts these into the element instead of what is there; null stands for nothing.
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null));
}

// PAIRS: [term, value, note]; a value may be an element.
export function figures(pairs) {
  return h("dl", { class: "figures" }, pairs.map(([term, value, note]) =>
    h("div", {}, h("dt", {}, term), h("dd", {}, value),
      note ? h("dd", { class: "soft" }, note) : null)));
}

// A region that can be scrolled with the keyboard, as wide tables need it.
export function scroller(label, ...children) {
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: 0 }, children);
}

// COLUMNS: [heading, is a figure]; ROWS: lists of texts or elements, the first names the row. On a
// narrow page cells stand below each other behind their headings; the roles keep it a table for
// those who listen.
export function table(label, columns, rows) {
  const cell = (content, i) => (i === 0
    ? h("th", { scope: "row", role: "rowheader", "data-heading": columns[0][1] ? columns[0][0] : null },
      content)
    : h("td", { class: columns[i][1] ? "figure" : null, role: "cell", "data-heading": columns[i][0] },
      content));
  return scroller(label, h("table", { role: "table" },
    h("caption", { class: "hidden" }, label),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([heading, isFigure]) =>
      h("th", { scope: "col", role: "columnheader", class: isFigure ? "figure" : null }, heading)))),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map(cell))))));
}

export function note(...children) {
  return h("p", { class: "note" }, children);
}

// A text that may be picked, as a link to a place of the dashboard.
export function place(hash, text, attributes = {}) {
  return h("a", { href: hash, ...attributes }, text);
}

export function jobPlace(job, rest = "") {
  return `#/job/${encodeURIComponent(job)}${rest}`;
}

export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// For names of files: what every system takes.
export function plainName(text) {
  return text.replace(/[^A-Za-z0-9._-]+/g, "_").slice(0, 60) || "job";
}

function csvCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  // Spreadsheets take what begins so for a formula; numbers are none.
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(headings, rows) {
  return [headings, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

// Says it to who listens rather than looks.
export function say(text) {
  document.getElementById("said").textContent = text;
}
