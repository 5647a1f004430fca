// What the dashboard computes by itself, on random input: node series_test.mjs. DEFT_TEST_SEED.

import assert from "node:assert/strict";

import { csv, plainName } from "../../api/web/dashboard/src/web_elements.js";
import {
  commonGain, gainsNothing, leftOnTable, lossBand, savedHours, withGaps,
} from "../../api/web/dashboard/src/web_series.js";
import { exposedShare } from "../../api/web/dashboard/src/web_units.js";

const ROUNDS = 300;
const WEEK_H = 168;
let seed = Number(process.env.DEFT_TEST_SEED || 1);

// Marsaglia's xorshift, of 32 bits.
function random(n) {
  seed ^= seed << 13;
  seed ^= seed >>> 17;
  seed ^= seed << 5;
  return (seed >>> 0) % n;
}

function close(a, b, what) {
  assert.ok(Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(a), Math.abs(b)), `${what}: ${a}, ${b}`);
}

// --- series --------------------------------------------------------------------------------------

// Points of `per` iterations, some with fewer, some missing.
function randomPoints(per) {
  const points = [];
  let at = random(50);
  for (let i = random(60); i > 0; i--) {
    points.push({ iteration: at, n_iterations: 1 + random(per), loss: random(1000) });
    at += per * (random(5) === 0 ? 2 + random(9) : 1);
  }
  return points;
}

function holesAreWhereIterationsAreMissing() {
  for (let round = 0; round < ROUNDS; round++) {
    const per = 1 + random(20);
    const points = randomPoints(per);
    const [x, loss, twice] = withGaps(points, per, [(p) => p.loss, (p) => 2 * p.loss]);
    const kept = x.map((_, i) => i).filter((i) => loss[i] !== null);
    assert.deepEqual(kept.map((i) => x[i]), points.map((p) => p.iteration));
    assert.deepEqual(kept.map((i) => twice[i]), points.map((p) => 2 * p.loss));
    assert.ok(x.every((at, i) => i === 0 || at > x[i - 1]), "x rises");
    points.slice(1).forEach((point, i) => {
      const end = points[i].iteration + points[i].n_iterations;
      const isMissing = point.iteration - end > per;
      assert.equal(kept[i + 1] - kept[i], isMissing ? 2 : 1, `hole before ${point.iteration}`);
    });
  }
  assert.deepEqual(withGaps([], 1, [(p) => p.loss]), [[], []]);
}

function bandsAreOfWhatIsAround() {
  for (let round = 0; round < ROUNDS; round++) {
    const losses = Array.from({ length: random(80) }, () =>
      (random(12) === 0 ? null : random(1000) / 10));
    const bands = lossBand(losses);
    assert.equal(bands.length, losses.length);
    const scaled = lossBand(losses.map((loss) => (loss === null ? null : 3 * loss - 7)));
    bands.forEach(([mean, from, to], i) => {
      assert.equal(mean === null, losses[i] === null);
      if (mean !== null) {
        assert.ok(from <= mean && mean <= to);
        scaled[i].forEach((value, j) => close(value, 3 * bands[i][j] - 7, "scaled"));
      }
    });
    // Nothing comes through a hole.
    const other = lossBand([...losses, null, 1e9, 1e9]);
    assert.deepEqual(other.slice(0, losses.length).map((b) => b[0] === null || b[0] < 200),
                     losses.map(() => true));
  }
  assert.deepEqual(lossBand([5]), [[5, 5, 5]]);
  assert.deepEqual(lossBand([2, 2, 2]), [[2, 2, 2], [2, 2, 2], [2, 2, 2]]);
  // 1, 3 and their mean 2: s = sqrt(2), 1.96 s / sqrt(2).
  const [mean, from, to] = lossBand([1, 3])[0];
  close(mean, 2, "mean");
  close(to - from, 2 * 1.96, "width");
}

// --- jobs ----------------------------------------------------------------------------------------

const NOW = Date.parse("2026-11-30T00:00:00Z");
const TUNED = { state: "running", mode: "auto", rule: "averaged", step_ns: 1e9, exact_step_ns: 2e9,
                gain: 2, n_ranks: 4, iterations: 3600, registered_at: "2026-11-29T00:00:00Z",
                updated_at: "2026-11-29T01:00:00Z" };

function hoursAreAtMostThoseOfTheWeek() {
  close(savedHours(TUNED, NOW), 4, "an hour of steps, each half as long, on 4 ranks");
  close(savedHours({ ...TUNED, iterations: 1e12 }, NOW), 24 * 4, "since it began");
  close(savedHours({ ...TUNED, iterations: 1e12, registered_at: "2020-01-01T00:00:00Z" }, NOW),
        WEEK_H * 4, "of the week");
  close(savedHours({ ...TUNED, iterations: 1e12, state: "finished" }, NOW), 4, "until it ended");
  for (const less of [{ rule: "exact" }, { rule: "" }, { step_ns: 0 }, { step_ns: 3e9 },
                      { exact_step_ns: 0 }, { iterations: 0 }]) {
    assert.equal(savedHours({ ...TUNED, ...less }, NOW), 0, JSON.stringify(less));
  }
  for (let round = 0; round < ROUNDS; round++) {
    const job = { ...TUNED, step_ns: 1 + random(1e9), exact_step_ns: 1 + random(1e9),
                  n_ranks: 1 + random(1000), iterations: random(2 ** 31),
                  registered_at: new Date(NOW - random(2 ** 31)).toISOString() };
    const most = job.n_ranks * WEEK_H * Math.max(0, job.exact_step_ns / job.step_ns - 1);
    const hours = savedHours(job, NOW);
    assert.ok(hours >= 0 && hours <= most * (1 + 1e-9), `${hours} of ${most}`);
    assert.ok(savedHours({ ...job, iterations: job.iterations + 1 }, NOW) >= hours);
  }
}

function jobsAreCountedOnce() {
  const observed = { ...TUNED, mode: "observe", rule: "exact", predicted_gain: 1.5 };
  assert.equal(leftOnTable(observed), 1.5);
  assert.equal(leftOnTable({ ...observed, mode: "auto" }), null);
  assert.equal(leftOnTable({ ...observed, state: "finished" }), null);
  assert.equal(leftOnTable({ ...observed, predicted_gain: null }), null);
  assert.equal(leftOnTable(TUNED), null);
  assert.equal(commonGain([]), null);
  close(commonGain([TUNED, { ...TUNED, gain: 1, n_ranks: 12 }, observed]), 1.25, "by ranks");
  assert.equal(gainsNothing(TUNED), false);
  assert.equal(gainsNothing({ ...TUNED, gain: 1.01 }), true);
  assert.equal(gainsNothing(observed), false);
  assert.equal(gainsNothing({ ...observed, predicted_gain: 1.01 }), true);
  assert.equal(gainsNothing({ ...observed, mode: "auto", n_rollbacks: 1 }), true);
}

// --- files ---------------------------------------------------------------------------------------

// As RFC 4180 has it.
function parseCsv(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end !== ",") {
      rows.push([]);
    }
  }
  return rows.slice(0, -1);
}

function filesHoldWhatWasPutIn() {
  const letters = ["a", '"', ",", "\n", "\r", "=", "-", " ", "é", "'", "1"];
  for (let round = 0; round < ROUNDS; round++) {
    const text = () => Array.from({ length: random(6) }, () => letters[random(letters.length)])
      .join("");
    const rows = Array.from({ length: 1 + random(4) }, () => [text(), -random(9), null, text()]);
    const parsed = parseCsv(csv(["a", "b", "c", "d"], rows)).slice(1);
    assert.equal(parsed.length, rows.length);
    parsed.forEach((row, i) => {
      assert.deepEqual([Number(row[1]), row[2]], [rows[i][1] + 0, ""]);
      for (const j of [0, 3]) {
        assert.ok(!/^[=+\-@\t\r]/.test(row[j]), `a formula: ${row[j]}`);
        assert.equal(/^[=+\-@\t\r]/.test(rows[i][j]) ? `'${rows[i][j]}` : rows[i][j], row[j]);
      }
    });
  }
  assert.match(plainName("../../etc/passwd"), /^[A-Za-z0-9._-]+$/);
  assert.equal(plainName("\u202e"), "_");
}

function sharesAreShares() {
  assert.equal(exposedShare({ step_ns: 0, exposed_ns: 5 }), null);
  for (let round = 0; round < ROUNDS; round++) {
    const point = { step_ns: 1 + random(1000), exposed_ns: random(2000) };
    const share = exposedShare(point);
    assert.ok(share >= 0 && share <= 1, `${share}`);
    assert.ok(share === 1 || Math.abs(share * point.step_ns - point.exposed_ns) < 1e-9);
  }
}

for (const test of [sharesAreShares, holesAreWhereIterationsAreMissing, bandsAreOfWhatIsAround,
                    hoursAreAtMostThoseOfTheWeek, jobsAreCountedOnce, filesHoldWhatWasPutIn]) {
  test();
  console.log(`${test.name}: fine`);
}
