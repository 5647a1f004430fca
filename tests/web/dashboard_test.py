#!/usr/bin/env python3
"""The dashboard of a real controller in a headless Chromium: every page, as dashboard_browser.mjs
looks at it, with jobs of every kind.

usage: dashboard_test.py DEFT_CONTROLLER MODULES [CASE]
       dashboard_test.py DEFT_CONTROLLER MODULES --pictures FOLDER

MODULES holds node_modules with playwright-core and axe-core, as scripts/build-web fetches them.
DEFT_WEB_SHOTS names a folder for pictures of all pages; --pictures makes those of
docs/dashboard.md.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from urllib.parse import quote

import browser
import dashboard_world
from dashboard_world import API, Agent, Controller, OPTIONS, fill, job_path, many, names

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_PACKED_BYTES = 300000
POLICY = {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'",
          "img-src": "'self' data: blob:", "connect-src": "'self'", "frame-ancestors": "'none'",
          "base-uri": "'none'", "form-action": "'self'"}
HTML = {"Accept": "text/html,*/*;q=0.8"}
LONG = 10**7  # iterations
LONG_ROWS = 20000  # of one report


def node(modules, case, controller, world=None, **more):
    """Starts it; the caller looks at what it says, or waits for its end with `done`."""
    spec = {"case": case, "url": f"http://127.0.0.1:{controller.port}",
            "names": names(world or {}), "tokens": {}, "chromium": browser.find(),
            "shots": os.environ.get("DEFT_WEB_SHOTS", ""),
            "slowness": int(os.environ.get("DEFT_TEST_SLOWNESS", "1")), **more}
    folder = tempfile.mkdtemp(prefix="deft_web.")
    path = os.path.join(folder, "spec.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file)
    process = subprocess.Popen(["node", os.path.join(HERE, "dashboard_browser.mjs"), modules, path],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process.folder = folder
    return process


def done(process):
    text, _ = process.communicate()
    shutil.rmtree(process.folder)
    assert process.returncode == 0, text
    return text


def look(modules, case, controller, world=None, **more):
    return done(node(modules, case, controller, world, **more))


@contextlib.contextmanager
def reporting(agent):
    """The job trains on meanwhile."""
    end = threading.Event()

    def train():
        while not end.wait(0.2):
            agent.run(agent.BATCH)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


# --- without a browser ----------------------------------------------------------------------------


def headers_are_strict_and_names_last(program, _modules):
    with Controller(program) as controller:
        page = controller.expect(200, "GET", "/", headers=HTML)
        assert page.headers["Cache-Control"] == "no-cache"
        assert "Accept" in page.headers["Vary"], "a cache would give pages to programs"
        assets = re.findall(r'(?:src|href)="(/[^"]*)"', page.text)
        assert len(assets) == 3 and "<style" not in page.text and "style=" not in page.text, assets
        assert not re.search(r"<script(?![^>]* src=)", page.text), "a script inside the page"
        total = 0
        for path in ["/"] + assets:
            reply = controller.expect(200, "GET", path, headers=HTML)
            policy = dict(part.strip().split(" ", 1) for part in
                          reply.headers["Content-Security-Policy"].split(";"))
            assert policy == POLICY, policy
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert reply.headers["Referrer-Policy"] == "no-referrer"
            packed = controller.expect(200, "GET", path,
                                       headers={**HTML, "Accept-Encoding": "gzip"})
            assert packed.headers["Content-Encoding"] == "gzip"
            total += len(packed.body)
            assert "://" not in re.sub(r"http://www\.w3\.org/\S+", "", reply.text), path
            known = {**HTML, "If-None-Match": reply.headers["ETag"]}
            assert controller.ask("GET", path, headers=known).status == 304, path
            if path != "/":
                assert "immutable" in reply.headers["Cache-Control"], path
                assert re.fullmatch(r"/assets/\w+-[0-9a-f]{12}\.\w+", path), path
        assert total <= MAX_PACKED_BYTES, f"the dashboard has {total} bytes"
        print(f"{total} bytes in gzip")
        assert controller.expect(200, "GET", "/").json["dashboard"] == "/"
        for path in ("/assets/", "/assets/index.html", "/assets/..%2f..%2fetc%2fpasswd"):
            assert controller.ask("GET", path).status == 404, path


# --- with one -------------------------------------------------------------------------------------


def look_at_all(modules, case, program, **more):
    with Controller(program, *OPTIONS) as controller:
        world = fill(controller)
        first = controller.get(world["back"].path("/plans"))["plans"][0]["id"]
        look(modules, case, controller, world, plans={"back": first}, **more)


def pages_are_sound(program, modules):
    look_at_all(modules, "pages", program, full=False)


def every_page_at_every_width(program, modules):
    look_at_all(modules, "pages", program, full=True)


def keys_are_enough(program, modules):
    with Controller(program, *OPTIONS) as controller:
        look(modules, "keyboard", controller, fill(controller))


def changes_need_a_token_and_a_reason(program, modules):
    with Controller(program, *OPTIONS) as controller:
        world = {"observed": dashboard_world.observed(controller)}
        tokens = {}
        for role in ("operator", "viewer"):
            reply = controller.expect(201, "POST", API + "/tokens", {"name": role, "role": role})
            tokens[role] = reply.json["token"]
            controller.token = tokens["operator"]
        look(modules, "changes", controller, world, tokens=tokens)
        record = controller.get("/audit")["records"][:2]
        assert [(r["action"], r["who"], r["reason"]) for r in record] == [
            ("job.freeze", "operator", "a test: freeze"),
            ("job.mode", "operator", "a test: off")], record


def what_happens_is_seen_at_once(program, modules):
    with Controller(program, *OPTIONS) as controller:
        agent = dashboard_world.tuned(controller)
        with reporting(agent):
            look(modules, "live", controller, {"tuned": agent})


def streams_outlive_the_controller(program, modules):
    with Controller(program, *OPTIONS) as controller:
        world = {"tuned": dashboard_world.tuned(controller)}
        process = node(modules, "restarts", controller, world)
        assert process.stdout.readline() == "watching\n"
        controller.end()
        controller.options = (*controller.options, "--port", str(controller.port))
        controller.launch()
        done(process)


def what_is_shown_can_be_taken_away(program, modules):
    with Controller(program, *OPTIONS) as controller:
        world = {"tuned": dashboard_world.tuned(controller),
                 "back": dashboard_world.stepped_back(controller)}
        look(modules, "files", controller, world)


def names_stay_text(program, modules):
    with Controller(program) as controller:
        world = {"hostile": Agent(controller, dashboard_world.HOSTILE)}
        world["hostile"].run(10)
        look(modules, "hostile", controller, world)


def nothing_is_there_yet(program, modules):
    with Controller(program) as controller:
        look(modules, "empty", controller)


def ten_thousand_jobs_and_ten_million_iterations(program, modules):
    """Prints how long pages take; see docs/dashboard.md."""
    with Controller(program, *OPTIONS, "--keep", "iterations=20000000") as controller:
        agent = Agent(controller, "long", n_ranks=1)
        agent.BATCH = LONG_ROWS
        row = [0, 0, 0, 60000000, 120000000, 180000000, 20000000, 0, 380000000, 0, 2.0]
        for begin in range(0, LONG, LONG_ROWS):
            agent.report(iterations=[[0, begin + i, *row[2:10], 2.0 + (i % 97) / 100]
                                     for i in range(LONG_ROWS)])
        many(controller, 10000)
        path = f"#/job/{quote('long', safe='')}"
        print(look(modules, "figures", controller, {"long": agent}, pages=[
            ["10,001 jobs", "#/jobs"], ["all of them together", "#/cluster"],
            ["a job with 10,000,000 iterations", path],
            ["its last 1,000", path + "?last=1000"]]))
        assert controller.get(job_path("long"))["iterations"] == LONG


CASES = (headers_are_strict_and_names_last, pages_are_sound, every_page_at_every_width,
         keys_are_enough, changes_need_a_token_and_a_reason, what_happens_is_seen_at_once,
         streams_outlive_the_controller, what_is_shown_can_be_taken_away, names_stay_text,
         nothing_is_there_yet, ten_thousand_jobs_and_ten_million_iterations)


def main(argv):
    program, modules = argv[1:3]
    found = {case.__name__: case for case in CASES}
    if shutil.which("node") is None or not os.path.isdir(os.path.join(modules, "node_modules")):
        print("SKIPPED: there is no Node.js, or its packages could not be fetched")
        return browser.SKIPPED
    with Controller(program) as controller:
        dashboard = controller.expect(200, "GET", "/").json["dashboard"]
    if dashboard != "/":
        print(f"SKIPPED: the dashboard is {dashboard}")
        return browser.SKIPPED
    if argv[3:4] == ["--pictures"]:
        look_at_all(modules, "pictures", program, shots=argv[4])
        return 0
    for name in argv[3:] or found:
        found[name](program, modules)
        print(f"{name}: fine")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
