// The dashboard: which page, with which figures, is in the address, so that it can be sent around.

import { keepToken, Refusal, token, version } from "./web_api.js";
import { h, note, place } from "./web_elements.js";
import { showCluster } from "./page_cluster.js";
import { showDecisions } from "./page_decisions.js";
import { showJob } from "./page_job.js";
import { showJobs } from "./page_jobs.js";
import { showLinks } from "./page_links.js";
import { showPlan } from "./page_plan.js";
import { showSignIn } from "./page_sign_in.js";

const MAIN = document.getElementById("main");
const PAGES = new Map([["", showJobs], ["jobs", showJobs], ["cluster", showCluster],
                       ["sign-in", showSignIn]]);
const JOB_PAGES = { "": showJob, plan: showPlan, links: showLinks, decisions: showDecisions };
const NAMES = { jobs: "Jobs", cluster: "Cluster", "sign-in": "Sign in", plan: "plan",
                links: "links", decisions: "decisions" };

let leave = new AbortController();
let focusNext = false;

// "#/job/NAME/plan/i1.3?from=1" as {show, args, title, params}; null for what leads nowhere.
function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const params = new URLSearchParams(query);
  let steps;
  try {
    steps = path.split("/").map(decodeURIComponent);
  } catch {
    return null;
  }
  const [first, job, page = "", ...args] = steps;
  if (steps.length === 1) {
    const show = PAGES.get(first);
    return show ? { show, args: [], params, path, title: NAMES[first || "jobs"] } : null;
  }
  if (first !== "job" || job === "" || !Object.hasOwn(JOB_PAGES, page) || args.length > 1) {
    return null;
  }
  return { show: JOB_PAGES[page], args: [job, ...args], params, path,
           title: page === "" ? job : `${job}, ${NAMES[page]}` };
}

function drawTop(path) {
  const here = (name) => (path === name || (name === "jobs" && path === "") ? "page" : null);
  const out = () => {
    keepToken(null);
    location.hash = "#/sign-in";
  };
  document.getElementById("top").replaceChildren(
    place("#/jobs", "DeFT Tuner", { class: "brand" }),
    h("nav", { "aria-label": "Dashboard" },
      place("#/jobs", "Jobs", { "aria-current": here("jobs") }),
      place("#/cluster", "Cluster", { "aria-current": here("cluster") }),
      token() ? h("button", { type: "button", click: out }, "Sign out") : null),
    h("span", { class: "health soft", id: "health" }));
  showHealth();
}

async function showHealth() {
  try {
    const { status, version: name, database, upkeep } = await version();
    const reason = [database, upkeep].find((text) => text !== "ok");
    document.getElementById("health").textContent =
      status === "ok" ? `version ${name}` : `degraded: ${reason}`;
  } catch {
    document.getElementById("health").textContent = "the controller does not answer";
  }
}

function fail(error, hash) {
  if (error instanceof Refusal && error.status === 401) {
    location.hash = `#/sign-in?then=${encodeURIComponent(hash)}`;
    return;
  }
  MAIN.replaceChildren(h("h1", {}, "That did not work"), h("p", { role: "alert" }, error.message),
    h("button", { type: "button", click: () => route() }, "Try again"), " ",
    place("#/jobs", "All jobs"));
  MAIN.dataset.state = "failed";
}

async function route() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const hash = location.hash;
  const found = parse(hash);
  delete MAIN.dataset.state;
  drawTop(found?.path ?? "?");
  if (found === null) {
    MAIN.replaceChildren(h("h1", {}, "No such page"), note("This address leads nowhere."),
                         place("#/jobs", "All jobs"));
    document.title = "No such page · DeFT Tuner";
    MAIN.dataset.state = "ready";
    return;
  }
  document.title = `${found.title} · DeFT Tuner`;
  const view = {
    params: found.params, signal,
    // For who waits for the page, such as a test.
    ready: () => {
      if (!signal.aborted) {
        MAIN.dataset.state = "ready";
      }
    },
    // Changes what the address says beside the path; "" takes a value away.
    go: (changes) => {
      const params = new URLSearchParams(found.params);
      for (const [key, value] of Object.entries(changes)) {
        if (value === "") {
          params.delete(key);
        } else {
          params.set(key, value);
        }
      }
      const query = params.toString();
      location.hash = `#/${found.path}${query ? `?${query}` : ""}`;
    },
  };
  if (focusNext) {
    MAIN.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  focusNext = false;
  try {
    await found.show(MAIN, found.args, view);
  } catch (error) {
    if (!signal.aborted) {
      fail(error, hash);
    }
  }
}

window.addEventListener("hashchange", (event) => {
  // Of another page, not of other filters of the same one.
  focusNext = event.oldURL.split("?")[0] !== event.newURL.split("?")[0];
  route();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  MAIN.focus();
});
route();
