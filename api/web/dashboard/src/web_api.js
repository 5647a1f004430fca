// The controller's API. The token stays in this tab: it is in sessionStorage and goes nowhere but
// into the header of requests to where the page came from.

const TOKEN = "deft-token";
const BASE = "/api/v1";
const RETRY_MS = 1000;
const MAX_RETRY_MS = 10000;

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.detail || `the controller answered ${status}`);
    this.status = status;
    this.code = problem.code || "";
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(text) {
  if (text === null) {
    sessionStorage.removeItem(TOKEN);
  } else {
    sessionStorage.setItem(TOKEN, text);
  }
}

async function ask(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (token()) {
    headers.Authorization = `Bearer ${token()}`;
  }
  const answer = await fetch(BASE + path, { ...options, headers, credentials: "omit",
                                            redirect: "error" });
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    throw new Refusal(answer.status, problem);
  }
  return answer;
}

export async function get(path, signal) {
  return (await ask(path, { signal })).json();
}

export async function put(path, body) {
  const answer = await ask(path, { method: "PUT", body: JSON.stringify(body),
                                   headers: { "Content-Type": "application/json" } });
  return answer.json();
}

export function jobPath(job) {
  return `/jobs/${encodeURIComponent(job)}`;
}

export async function version() {
  const answer = await fetch("/healthz", { credentials: "omit" });
  return answer.json();
}

// --- events --------------------------------------------------------------------------------------

// One event's lines as {event, data}.
function parseEvent(text) {
  const event = { event: "message", data: [] };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("data:")) {
      event.data.push(value);
    } else if (line.startsWith("event:")) {
      event.event = value;
    }
  }
  return { event: event.event, data: event.data.join("\n") };
}

// EventSource cannot send a token, so the stream is read by hand.
async function readEvents(path, signal, onEvent) {
  const answer = await ask(path, { signal, headers: { Accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = parseEvent(part);
      if (event.data !== "") {
        onEvent(event);
      }
    }
  }
}

export function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      done();
    }, { once: true });
  });
}

// Calls onJob with the job, at once and whenever it has changed, until the signal. A stream that
// ends is opened again; meanwhile onState gets the reason, and "" once it is there again.
export async function watchJob(job, signal, onJob, onState) {
  let wait = RETRY_MS;
  while (!signal.aborted) {
    let why = "the stream of changes has ended";
    try {
      await readEvents(`${jobPath(job)}/changes`, signal, (event) => {
        wait = RETRY_MS;
        if (event.event === "job" && !signal.aborted) {
          onState("");
          onJob(JSON.parse(event.data));
        }
      });
    } catch (error) {
      if (error instanceof Refusal && error.status !== 429 && error.status < 500) {
        onState(error.message);
        return;
      }
      why = error.message;
    }
    if (!signal.aborted) {
      onState(`Not live: ${why}. It is tried again.`);
      await pause(wait, signal);
      wait = Math.min(2 * wait, MAX_RETRY_MS);
    }
  }
}
