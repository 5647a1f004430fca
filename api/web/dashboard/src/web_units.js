// Figures as people read them, each with its unit; "–" where there is none.

import { formatBytes, formatFraction, formatTime } from "../../lanes/lanes.js";

export const NONE = "–";

export function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function time(ns) {
  return isKnown(ns) && ns > 0 ? formatTime(ns) : NONE;
}

// 0 is a figure here: nothing is waited for.
export function span(ns) {
  return isKnown(ns) ? formatTime(ns) : NONE;
}

export function bytes(value) {
  return isKnown(value) ? formatBytes(value) : NONE;
}

export function rate(value) {
  return isKnown(value) && value > 0 ? `${formatBytes(value)}/s` : NONE;
}

export function times(value) {
  return isKnown(value) ? `${value.toFixed(2)}×` : NONE;
}

// As the coverage rate is written everywhere: 1.3 is 1.3 times the compute.
export function ratio(value) {
  return isKnown(value) && value > 0 ? value.toFixed(2) : NONE;
}

// For axes: no digits that say nothing.
export function roundBytes(value) {
  return bytes(value).replace(/[.]0+(?=\D)/, "");
}

export function fraction(value) {
  return isKnown(value) ? formatFraction(value) : NONE;
}

export function number(value, digits = 0) {
  return isKnown(value)
    ? value.toLocaleString("en", { maximumFractionDigits: digits, useGrouping: true }) : NONE;
}

export function plural(n, one) {
  return `${number(n)} ${one}${n === 1 ? "" : "s"}`;
}

// A point in time, in the reader's own zone.
export function moment(text) {
  const at = new Date(text);
  return text && !Number.isNaN(at.getTime())
    ? at.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : NONE;
}

// The share of a step that is waited for communication. A drain waits behind the step, maybe for
// longer than that took.
export function exposedShare(point) {
  return point.step_ns > 0 ? Math.min(1, point.exposed_ns / point.step_ns) : null;
}
