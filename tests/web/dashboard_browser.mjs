// A headless Chromium at a dashboard, for dashboard_test.py:
//
//   node dashboard_browser.mjs MODULES SPEC.json
//
// SPEC: {"case", "url", "names": {kind: job}, "tokens": {role: text}, "plans": {kind: id},
//        "chromium", "shots": folder, "full": bool, "pages": [[name, hash]], "slowness": n}
// Says what was found on standard output; exit status 1: something is wrong.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const [modules, specFile] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), "package.json"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const spec = JSON.parse(readFileSync(specFile, "utf8"));
const WIDTHS = [360, 768, 1440, 2560];
const PATIENCE_MS = 60000 * (spec.slowness || 1);
const complaints = [];

function check(truth, text) {
  if (!truth) {
    throw new Error(text);
  }
}

function job(kind, rest = "") {
  return `#/job/${encodeURIComponent(spec.names[kind])}${rest}`;
}

function allPages() {
  return [["jobs", "#/jobs"], ["cluster", "#/cluster"], ["sign-in", "#/sign-in"],
          ["job", job("tuned")], ["job-back", job("back")], ["job-one", job("one")],
          ["job-none", job("none")], ["job-hostile", job("hostile")],
          ["plan", job("tuned", "/plan")], ["plan-none", job("one", "/plan")],
          ["plan-back", job("back", `/plan/${spec.plans.back}`)],
          ["links", job("tuned", "/links")], ["decisions", job("back", "/decisions")],
          ["nowhere", "#/nowhere"]];
}

// A page that tells of everything that it should not do.
async function open(browser, options = {}) {
  const { allowed = [], ...rest } = options;
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...rest });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const complain = (text) => {
    if (!allowed.some((part) => text.includes(part))) {
      complaints.push(text);
    }
  };
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      complain(`console: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => complain(`thrown: ${error.stack}`));
  page.on("dialog", (dialog) => complain(`dialog: ${dialog.message()}`));
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol !== "blob:" && origin !== new URL(spec.url).origin) {
      complain(`request to ${request.url()}`);
    }
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  return page;
}

async function go(page, hash) {
  await page.goto("about:blank");
  await page.goto(`${spec.url}/${hash}`);
  await settle(page);
}

// Until the page says it is there, and two frames later, in which sizes are looked at.
async function settle(page) {
  await page.waitForSelector("#main[data-state]");
  const state = await page.getAttribute("#main", "data-state");
  check(state === "ready", `${page.url()}: ${await page.innerText("#main")}`);
  await page.evaluate(() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(done))));
}

async function axe(page, where) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() =>
    axe.run(document, { resultTypes: ["violations"] }));
  check(violations.length === 0, `${where}: ${violations.map((v) =>
    `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.target} ${n.failureSummary}`).join(" | ")}`)
    .join("\n")}`);
}

// What is wider than the window, unless it scrolls by itself; texts of buttons that are cut.
function misplaced() {
  const bad = [];
  if (document.documentElement.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((e) =>
      e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, .lanes-scroll"));
    bad.push(`wider than ${innerWidth}: ${wide.slice(0, 4).map((e) =>
      `${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}`).join("; ")}`);
  }
  for (const e of document.querySelectorAll("button, summary, dt, h1, h2, .legend li")) {
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) {
      bad.push(`cut: ${e.tagName} ${e.textContent.slice(0, 40)}`);
    }
  }
  return bad;
}

// --- cases ---------------------------------------------------------------------------------------

async function pages(browser) {
  const quick = { light: [360], dark: [1440] };
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, { colorScheme });
    for (const [name, hash] of allPages()) {
      for (const width of spec.full ? WIDTHS : quick[colorScheme]) {
        await page.setViewportSize({ width, height: width < 500 ? 800 : 1000 });
        await go(page, hash);
        const bad = await page.evaluate(misplaced);
        check(bad.length === 0, `${name}, ${width}, ${colorScheme}: ${bad.join("; ")}`);
        await axe(page, `${name}, ${width}, ${colorScheme}`);
        if (spec.shots) {
          await page.screenshot({ path: join(spec.shots, `${name}-${width}-${colorScheme}.png`),
                                  fullPage: true });
        }
      }
    }
    // The way back to exact was not predicted: no figure may say that it was.
    await go(page, job("back", "/plan"));
    const told = await page.evaluate(() => document.querySelector(".figures").innerText);
    check(/it was not solved for/.test(told) && /Updates per step\s*–/.test(told), told);
    await page.context().close();
  }
}

// For docs/dashboard.md.
async function pictures(browser) {
  for (const [name, hash, colorScheme] of [
    ["dashboard-job", job("tuned"), "light"],
    ["dashboard-plan", job("back", `/plan/${spec.plans.back}`), "dark"]]) {
    const page = await open(browser, { colorScheme, viewport: { width: 1000, height: 1160 } });
    await go(page, hash);
    await page.screenshot({ path: join(spec.shots, `${name}.png`) });
  }
}

// Everything by keys alone: into a job, along its pages, through a chart, into a dialog and out.
async function keyboard(browser) {
  const page = await open(browser, { allowed: ["403"] });
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim() ||
                                            document.activeElement.getAttribute("aria-label"));
  const tabTo = async (text, most = 80) => {
    for (let i = 0; i < most; i++) {
      await page.keyboard.press("Tab");
      if ((await focused())?.startsWith(text)) {
        const seen = await page.evaluate(() => {
          const style = getComputedStyle(document.activeElement);
          // Blocks of the lanes have a ring of their own around them.
          return document.querySelector(".lanes-ring[visibility=visible]") !== null ||
            (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0);
        });
        check(seen, `the focus on '${text}' cannot be seen`);
        return;
      }
    }
    throw new Error(`the Tab key does not lead to '${text}'`);
  };
  await go(page, "#/jobs");
  await page.keyboard.press("Tab");
  check((await focused()) === "Skip to the page", `the first Tab leads to '${await focused()}'`);
  await page.keyboard.press("Enter");
  check(await page.evaluate(() => document.activeElement.id === "main"), "the skip link");
  await tabTo(spec.names.tuned);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".chart canvas");
  await settle(page);
  check(await page.evaluate(() => document.activeElement.id === "main"), "focus of a new page");
  await tabTo("Step time over iterations");
  const readout = page.locator(".readout").first();
  await page.keyboard.press("Home");
  const first = await readout.textContent();
  check(/^Iteration 0: mean step 3[0-9.]+ ms/.test(first), first);
  await page.keyboard.press("End");
  check((await readout.textContent()) !== first, "the End key");
  await page.keyboard.press("ArrowLeft");
  check(/since .*plan kept/.test(await readout.textContent()), await readout.textContent());
  await page.evaluate(() => document.querySelector(".tabs a").focus());
  await tabTo("Mode");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]");
  await axe(page, "dialog");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  check((await focused()).startsWith("Mode"), `behind the dialog: '${await focused()}'`);
  await tabTo("Values as a table");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".rows[open] tbody tr");
  await go(page, job("tuned", "/plan"));
  await tabTo("Stage");
  await page.keyboard.press("ArrowRight");
}

// An operator's change asks for its reason, and is in the record; what is refused is said.
async function changes(browser) {
  const page = await open(browser, { allowed: ["403", "401"] });
  const signIn = async (text) => {
    await page.fill("#token", text);
    await page.click("form button");
  };
  await page.goto(`${spec.url}/${job("observed")}`);
  await page.waitForSelector("#token");
  await signIn("deft_wrong");
  await page.waitForFunction(() => document.querySelector(".answer").textContent
    .includes("Not signed in"));
  await signIn(` ${spec.tokens.viewer}\n`);
  await page.waitForSelector(".chart canvas");
  check(page.url().includes(encodeURIComponent(spec.names.observed)), page.url());
  const stored = await page.evaluate(() => [Object.keys(localStorage).length, document.cookie]);
  check(stored[0] === 0 && stored[1] === "", `the token is kept elsewhere: ${stored}`);
  const setMode = async (mode) => {
    await page.click("text=Mode…");
    await page.selectOption("#choice", mode);
    await page.click("dialog >> text=Change it");
    check(await page.isVisible("dialog"), "a change without a reason was taken");
    await page.fill("#reason", `a test: ${mode}`);
    await page.click("dialog >> text=Change it");
  };
  await setMode("off");
  await page.waitForFunction(() => document.querySelector(".answer").textContent
    .includes("is not an operator's"));
  await page.click("text=Sign out");
  await page.waitForSelector("#token");
  await signIn(spec.tokens.operator);
  await page.waitForSelector("table");
  await page.goto(`${spec.url}/${job("observed")}`);
  await page.waitForSelector(".chart canvas");
  await setMode("off");
  // What has changed comes by the stream.
  await page.waitForFunction(() => document.querySelector(".job-head p").textContent
    .includes("mode off"));
  await page.click("text=Freeze…");
  await page.fill("#reason", "a test: freeze");
  await page.click("dialog >> text=Change it");
  await page.waitForSelector("text=Thaw…");
}

// New iterations, and what is decided, come to two browsers without a reload.
async function live(browser) {
  const both = [await open(browser), await open(browser)];
  const figure = (page) => page.evaluate(() => [...document.querySelectorAll(".figures div")]
    .find((div) => div.firstChild.textContent === "Iterations").children[1].textContent);
  for (const page of both) {
    await go(page, job("tuned"));
  }
  const before = await figure(both[0]);
  for (const page of both) { // the test goes on reporting
    await page.waitForFunction((old) => [...document.querySelectorAll(".figures div")]
      .find((div) => div.firstChild.textContent === "Iterations").children[1].textContent !== old,
      before);
  }
  await both[0].reload();
  await settle(both[0]);
  check(await both[0].locator(".chart canvas").count() === 3, "charts after a reload");
}

// A stream that ends is said, and opened again: the controller is started anew meanwhile.
async function restarts(browser) {
  const page = await open(browser, { allowed: ["ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY"] });
  await go(page, job("tuned"));
  console.log("watching");
  await page.waitForFunction(() => document.querySelector(".live").textContent !== "");
  await page.waitForFunction(() => document.querySelector(".live").textContent === "");
}

async function files(browser) {
  const page = await open(browser, { acceptDownloads: true });
  await go(page, `${job("tuned")}?from=100&to=520`);
  const take = async (label) => {
    const [download] = await Promise.all([page.waitForEvent("download"),
                                          page.click(`[aria-label="${label}"]`)]);
    return [download.suggestedFilename(), readFileSync(await download.path())];
  };
  const [name, text] = await take("Step time: save as CSV");
  const lines = text.toString().trim().split("\r\n");
  check(name === "bert-large-pretraining-Step_time.csv", name);
  check(lines[0].startsWith("Iteration,mean step (ms),fastest (ms)"), lines[0]);
  check(lines[1].startsWith("100,380"), lines[1]);
  check(lines.some((line) => /^\d+,,,,$/.test(line)), "the gap is not in the file");
  const [, picture] = await take("Loss: save as PNG");
  check(picture.subarray(1, 4).toString() === "PNG" && picture.length > 5000, "the PNG");
  // The same address is the same picture, and the ranges of the buttons are in it.
  await page.click("text=Last 100 >> nth=-1");
  await page.waitForURL(/last=100$/);
  await settle(page);
  await go(page, job("back", "/decisions"));
  await page.selectOption("select", "rollback");
  await page.waitForURL(/kind=rollback/);
}

// Names that try to get out stay text, in the page and in its title.
async function hostile(browser) {
  const page = await open(browser);
  for (const hash of ["#/jobs", job("hostile"), job("hostile", "/plan"), job("hostile", "/links"),
                      job("hostile", "/decisions")]) {
    await go(page, hash);
    const found = await page.evaluate(() => [document.querySelectorAll("main img, main script")
      .length, document.body.innerText]);
    check(found[0] === 0, `${hash}: elements out of a name`);
    check(found[1].includes("<img src=x onerror=alert(1)>"), `${hash}: the name is not shown`);
  }
  await go(page, "#/jobs");
  await page.click("text=</script>");
  await page.waitForSelector(".job-head");
  check((await page.title()).startsWith(spec.names.hostile.slice(0, 20)), await page.title());
  for (const hash of ["#/job/%", "#/job/", "#/job/a/b/c/d", "#/plan/1", "#/__proto__",
                      "#/job/x/constructor"]) {
    await page.goto(`${spec.url}/${hash}`);
    await settle(page);
    check((await page.innerText("h1")) === "No such page", hash);
  }
}

async function empty(browser) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, { colorScheme });
    for (const hash of ["#/jobs", "#/cluster"]) {
      await go(page, hash);
      await axe(page, hash);
    }
    check((await page.innerText("#main")).includes("No running job is tuned"), "no jobs");
  }
}

// Figures, printed and not judged: they are those of this machine.
async function figures(browser) {
  for (const [name, hash] of spec.pages) {
    const page = await open(browser);
    await page.goto("about:blank");
    await page.goto(`${spec.url}/${hash}`, { waitUntil: "commit" });
    await settle(page);
    const paint = await page.evaluate(() => [
      performance.getEntriesByName("first-contentful-paint")[0].startTime, performance.now()]);
    const begin = await page.evaluate(() => {
      const chart = document.querySelector(".plot-keys");
      const at = performance.now();
      if (chart) {
        chart.focus();
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "End" }));
      } else {
        document.querySelector("main select, nav a").focus();
      }
      return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
        done(performance.now() - at))));
    });
    console.log(`${name}: first paint ${paint[0].toFixed(0)} ms, all there ` +
                `${paint[1].toFixed(0)} ms, a key ${begin.toFixed(0)} ms`);
    await page.context().close();
  }
}

const CASES = { pages, pictures, keyboard, changes, live, restarts, files, hostile, empty, figures };
const browser = await chromium.launch({
  executablePath: spec.chromium, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
try {
  await CASES[spec.case](browser);
  check(complaints.length === 0, [...new Set(complaints)].join("\n"));
} catch (error) {
  console.log(error.stack, "\n", [...new Set(complaints)].slice(0, 10).join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
}
