#!/usr/bin/env python3
"""api/openapi.yaml drives a real controller: what it describes is there, and nothing else.

usage: openapi_test.py DEFT_CONTROLLER [CASE]

Every answer that any case gets is held against the document: its status must be described for its
operation, its body must be what the schema says with no further member, its headers must be there.
The case `everything_is_described_and_driven` fails when an operation, a status or a problem code of
the document was never met.
"""

import json
import os
import re
import sys
import threading

import rest_controller

try:
    from openapi_document import Document, lint
except ImportError as error:  # PyYAML or jsonschema
    print(f"skipped: {error}")
    sys.exit(77)
from rest_controller import API, Agent, Controller, job_path, registration

# Codes that no request can bring about at will, and what tests them instead.
ELSEWHERE = {
    "client_certificate": "http_secure: clients_show_certificates_of_the_right_authority",
    "internal": "nothing is known that leads to it",
    "no_memory": "http_limits: connections and bodies at their bounds",
    "stopping": "http_serving: who_comes_at_the_end_is_sent_away",
    "store_stuck": "a write that takes 30 s",
    "tuner_stuck": "a solver that takes 30 s",
}
STREAMS = {"events", "watchJob"}
LARGE = {"schema": "deft.profile/1", "compute": {"forward_ns": 10**9, "backward_ns": 2 * 10**9},
         "links": [{"name": "a", "alpha_ns": 20000, "bytes_per_s": 10**9},
                   {"name": "b", "alpha_ns": 30000, "bytes_per_s": 7 * 10**8}],
         "tensors": [{"name": f"t{i}", "elements": 4099 * (1 + i % 97)} for i in range(4096)]}
SMALL = dict(LARGE, tensors=LARGE["tensors"][:4])


class Driver:
    """Asks, checks each answer against the document, and remembers what was met."""

    def __init__(self, controller, document):
        self.controller = controller
        self.document = document
        self.met = set()  # (operation id, status)
        self.codes = set()
        self.heads = set()

    def ask(self, method, path, body=None, expect=None, **more):
        reply = self.controller.ask(method, path, body, **more)
        return self.judge(method, path, reply, expect)

    def judge(self, method, path, reply, expect=None):
        what = f"{method} {path} ({reply.status})"
        if expect is not None:
            assert reply.status == expect, f"{what}: {expect} was expected: {reply.body[:400]!r}"
        kind = reply.headers.get_content_type()
        operation = self.document.find("GET" if method == "HEAD" else method, path)
        if operation is None:
            self.check_problem(self.document.operations["index"], what, reply)
            return reply
        response = operation.responses.get(str(reply.status))
        if response is None:
            anywhere = operation.responses["default"]["x-deft-statuses"]
            assert str(reply.status) in anywhere, f"{what} is not described: {reply.body[:400]!r}"
        for name, header in (response or {}).get("headers", {}).items():
            assert name in reply.headers, f"{what} lacks {name}"
            self.document.check(header["schema"],
                                int(reply.headers[name]) if name == "Retry-After"
                                else reply.headers[name], what)
        if method == "HEAD":
            assert reply.body == b"", f"{what} has a body"
            self.heads.add(operation.id)
        elif reply.status >= 400:
            self.check_problem(operation, what, reply)
        elif "content" in response:
            assert kind in response["content"], f"{what} is {kind}"
            if kind == "application/json":
                self.document.check(response["content"][kind]["schema"], reply.json, what)
        else:
            assert reply.body == b"", f"{what} has a body"
        if method != "HEAD":
            self.met.add((operation.id, reply.status))
        return reply

    def check_problem(self, operation, what, reply):
        assert reply.headers.get_content_type() == "application/problem+json", what
        problem = reply.json
        self.document.check({"$ref": "#/components/schemas/problem"}, problem, what)
        assert problem["status"] == reply.status, what
        codes = operation.codes(reply.status)
        assert problem["code"] in codes, f"{what}: {problem['code']} is not among {codes}"
        if reply.status in (429, 503):
            assert int(reply.headers["Retry-After"]) >= 1, what
        self.codes.add(problem["code"])


def read_document(controller):
    return Document(controller.expect(200, "GET", "/openapi.yaml").text)


class World:
    """One job that has gone its way, one that has ended, one that is new, and a token per role."""

    def __init__(self, controller):
        self.controller = controller
        self.job = "main 1/2"
        self.agent = Agent(controller, self.job)
        self.agent.run_to("committed", 600)
        self.ended = Agent(controller, "ended", key="start-9", user="user-2")
        self.ended.run(5)
        self.ended.finish()
        self.new = Agent(controller, "new", user="user-2")
        self.plan = self.agent.view["plan"]
        page = controller.expect(200, "GET", "/", headers={"Accept": "text/html"}).text
        found = re.search(r"/assets/([\w.-]+)", page)
        self.has_pages = found is not None
        self.asset = found.group(1) if found else "nothing"
        self.tokens = {}
        self.make_token("operator", "op")
        controller.token = self.tokens["op"]
        self.make_token("viewer", "viewer")
        self.make_token("agent", "agent", job=self.job)
        self.make_token("agent", "stranger", job="somebody else's")

    def make_token(self, role, name, **more):
        reply = self.controller.expect(201, "POST", API + "/tokens",
                                       {"name": name, "role": role, **more})
        self.tokens[name] = reply.json["token"]

    def paths(self, operation, known=True):
        """The operation's path with names that are there, or are not."""
        agent = self.agent.id if known else "i999"
        path = operation.path
        values = {"{job}": job_path(self.job if known else "nobody")[len("/jobs/"):],
                  "{name}": "nobody" if not known else
                            self.asset if "/assets/" in path else "stranger",
                  "{id}": (self.plan if known else "i1.999") if "/plans/" in path else agent}
        for name, value in values.items():
            path = path.replace(name, value)
        return path


def good_body(world, operation):
    """What the operation takes as it is."""
    bodies = {
        "register": dict(world.agent.body),
        "report": {"agent": "host-1", "seq": world.agent.seq},
        "setMode": {"mode": "auto", "reason": "as it was"},
        "setLimits": {"max_merge": 3, "max_delay": 8},
        "setPin": {"plan": ""},
        "setFreeze": {"frozen": False},
        "setKeep": {"keep": "raw=30d,jobs=forever,iterations=1000"},
        "createToken": {"name": "another", "role": "viewer"},
        "simulate": SMALL,
    }
    return bodies.get(operation.id)


# --- what is asked of every operation -------------------------------------------------------------


def drive_good(driver, world):
    later = ("removeJob", "revokeToken")  # what they end is still needed
    for operation in driver.document.operations.values():
        if operation.id not in later:
            success = min(s for s in operation.own_statuses if s < 300)
            driver.ask(operation.method, world.paths(operation), good_body(world, operation),
                       expect=success)
        if operation.method == "GET" and operation.id not in STREAMS:
            driver.ask("HEAD", world.paths(operation), expect=200)
    operations = driver.document.operations
    driver.ask("GET", world.paths(operations["explainPlan"]), expect=200)
    driver.ask("DELETE", API + "/jobs/ended", {"reason": "done"}, expect=200)
    driver.ask("DELETE", API + "/tokens/another", expect=200)
    for job in (world.job, "new"):
        driver.ask("DELETE", API + job_path(job), expect=409)  # it runs


def drive_events(driver, world):
    """What the stream begins with, against the schemas of its events."""
    for name, expected in (("events", ["plan", "mode"]), ("watchJob", ["job"])):
        operation = driver.document.operations[name]
        schemas = operation.responses["200"]["content"]["text/event-stream"]["x-deft-events"]
        text = driver.ask("GET", world.paths(operation), expect=200).text
        kinds = []
        for kind, data in re.findall(r"^event: (\w+)\n(?:id: \d+\n)?data: (.*)$", text,
                                     re.MULTILINE):
            driver.document.check(schemas[kind], json.loads(data), f"event {kind}")
            kinds.append(kind)
        assert kinds == expected, text[:300]


def drive_tags(driver, world):
    """An answer with a tag is asked for once; one without is not described as having one."""
    for operation in driver.document.operations.values():
        if operation.method != "GET" or operation.id in STREAMS:
            continue
        path = world.paths(operation)
        tag = driver.ask("GET", path, expect=200).headers.get("ETag")
        assert (tag is not None) == (304 in operation.own_statuses), operation.id
        if tag is not None:
            known = {"If-None-Match": f'"other", {tag}'}
            driver.ask("GET", path, expect=304, headers=known)
            assert driver.controller.ask("HEAD", path, headers=known).status == 304
            driver.ask("GET", path, expect=200, headers={"If-None-Match": '"other"'})


def drive_rights(driver, world):
    wrong = {"agent": ("viewer", "stranger"), "viewer": ("agent",), "operator": ("agent", "viewer")}
    for operation in driver.document.operations.values():
        path, body = world.paths(operation), good_body(world, operation)
        if operation.is_open:
            assert driver.ask(operation.method, path, body, token="no").status < 400
            continue
        reply = driver.ask(operation.method, path, body, expect=401, token="deft_wrong")
        assert reply.json["code"] == "bad_token"
        token, driver.controller.token = driver.controller.token, None
        reply = driver.ask(operation.method, path, body, expect=401)
        driver.controller.token = token
        assert reply.json["code"] == "no_token"
        for name in wrong[operation.spec["x-deft-need"]]:
            driver.ask(operation.method, path, body, expect=403, token=world.tokens[name])


def drive_absence(driver, world):
    for operation in driver.document.operations.values():
        if 404 in operation.own_statuses:
            body = good_body(world, operation)
            driver.ask(operation.method, world.paths(operation, known=False), body, expect=404)
    for path in ("/nowhere", API, API + "/jobs/a/b/c", "/api/v2/jobs", API + "/incarnations/7"):
        driver.ask("GET", path, expect=404)


def drive_methods(driver, world):
    for path in driver.document.root["paths"]:
        here = [o for o in driver.document.operations.values() if o.path == path]
        allowed = sorted(o.method for o in here)
        allowed += ["HEAD"] if "GET" in allowed else []
        for method in ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"):
            if method in allowed:
                continue
            reply = driver.controller.ask(method, world.paths(here[0]))
            assert reply.status == 405, f"{method} {path}: {reply.status}"
            told = sorted(reply.headers["Allow"].split(", "))
            assert told == sorted(allowed), f"{path} allows {allowed} and says {told}"
            driver.check_problem(here[0], f"{method} {path}", reply)


def drive_bodies(driver, world):
    for operation in driver.document.operations.values():
        body = good_body(world, operation)
        if body is None:
            continue
        path = world.paths(operation)
        for kind in ("text/plain", None, "application/jsonx"):
            driver.ask(operation.method, path, body, expect=415, kind=kind)
        driver.ask(operation.method, path, body, expect=415, headers={"Content-Encoding": "br"})
        for wrong in ("", "[]", "null", "{", "{}}", '{"a":1,"a":2}', "nan", '"x"'):
            driver.ask(operation.method, path, wrong, expect=400)
        required = driver.document.close(
            operation.spec["requestBody"]["content"]["application/json"]["schema"])
        required = required.get("required") or required["allOf"][0]["required"]
        for name in required:
            less = {key: value for key, value in body.items() if key != name}
            problem = driver.ask(operation.method, path, less, expect=400).json
            assert name in problem["detail"], problem
        if "why" in str(operation.spec["requestBody"]):
            driver.ask(operation.method, path, dict(body, reason="x" * 512), expect=400)


def drive_values(driver, world):
    """Parameters and members at and beyond the bounds that the document gives them."""
    for operation in driver.document.operations.values():
        for parameter in operation.parameters:
            schema = parameter["schema"]
            if parameter["in"] != "query":
                continue
            good, bad = [], []
            if schema["type"] == "integer":
                bad = ["-1", "x", "", "1e3", " 1", str(2**64)]
                good = [str(schema["minimum"])]
                bad += [str(schema["minimum"] - 1)] if schema["minimum"] > 0 else []
                bad += [str(schema["maximum"] + 1)] if "maximum" in schema else []
                good += [str(schema["maximum"])] if "maximum" in schema else []
            elif "enum" in schema:
                good, bad = schema["enum"], ["other", ""]
            elif schema.get("format") == "date-time":
                good = ["2026-11-30T03:01:10Z", "1970-01-01T00:00:00.5Z"]
                bad = ["yesterday", "", "2026-11-30", "2026-11-30T03:01:10+01:00", "-1"]
            for value in good:
                driver.ask("GET", f"{world.paths(operation)}?{parameter['name']}={value}",
                           expect=200)
            for value in bad:
                value = value.replace(" ", "%20").replace("+", "%2B")
                problem = driver.ask("GET", f"{world.paths(operation)}?{parameter['name']}={value}",
                                     expect=400).json
                assert problem["field"] == parameter["name"], problem
    operations = driver.document.operations
    for operation_id, wrong in (
            ("setMode", {"mode": "fast"}), ("setLimits", {"max_merge": 0, "max_delay": 0}),
            ("setPin", {"plan": "7"}), ("setPin", {"plan": 7}), ("setFreeze", {"frozen": 1}),
            ("setKeep", {"keep": "raw=1s"}), ("setKeep", {"keep": ""}),
            ("createToken", {"name": "a b", "role": "viewer"}),
            ("simulate", dict(SMALL, links=[])),
            ("simulate", dict(SMALL, tensors=[{"name": "t", "elements": 9}] * 16385)),
            ("simulate", dict(SMALL, tensors=[{"name": "t", "elements": 2**40}] * 2)),
            ("report", {"agent": "host-1", "seq": 0}),
            ("register", registration(n_ranks=0, ranks=[]))):
        operation = operations[operation_id]
        driver.ask(operation.method, world.paths(operation), wrong, expect=400)
    events = operations["events"]
    driver.ask("GET", world.paths(events), expect=400, headers={"Last-Event-ID": "-1"})
    for operation_id in ("removeJob", "revokeToken"):
        driver.ask("DELETE", world.paths(operations[operation_id]), expect=400,
                   headers={"Deft-Reason": "x" * 512})


def drive_conflicts(driver, world):
    path = API + job_path(world.job)
    driver.ask("POST", path + "/incarnations", dict(world.agent.body, n_ranks=3), expect=409)
    driver.ask("POST", path + "/incarnations", dict(world.agent.body, table_hash="8" * 16),
               expect=409)
    driver.ask("POST", API + "/tokens", {"name": "op", "role": "viewer"}, expect=409)
    # A plan of the job as it was when its tensors were others.
    other = dict(world.agent.body, key="start-2", table_hash="0" * 15 + "9",
                 tensors=world.agent.body["tensors"][:3])
    driver.ask("POST", path + "/incarnations", other, expect=201)
    driver.ask("PUT", path + "/pin", {"plan": world.plan}, expect=409)
    driver.ask("PUT", path + "/pin", {"plan": "i1.77"}, expect=404)
    driver.ask("PUT", path + "/pin", {"plan": "0123456789abcdef"}, expect=404)


def drive_overload(driver, _world):
    """Two large profiles at once: one is answered, and while it is at work the others wait."""
    replies = []

    def simulate():
        replies.append(driver.controller.ask("POST", API + "/simulate", LARGE))

    while {r.status for r in replies} != {200, 429}:
        threads = [threading.Thread(target=simulate) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {r.status for r in replies} <= {200, 429}, [r.status for r in replies]
    for reply in replies:
        driver.judge("POST", API + "/simulate", reply)


def raw(driver, expect, lines, body=b""):
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    reply = driver.controller.raw(data)
    assert reply.status == expect, f"{lines[0][:80]}: {reply.status} {reply.body[:300]!r}"
    driver.check_problem(driver.document.operations["index"], lines[0][:80], reply)


def drive_anything(driver, world):
    """What the server says of requests of any kind."""
    host = "Host: localhost"
    auth = f"Authorization: Bearer {world.tokens['op']}"
    post = f"POST {API}/simulate HTTP/1.1"
    raw(driver, 400, ["GET / HTTP/1.1", host, "a b: c"])
    raw(driver, 400, ["GET / HTTP/1.1", host, host])
    raw(driver, 400, ["GET /%zz HTTP/1.1", host])
    raw(driver, 400, ["GET /healthz?a=1&a=2 HTTP/1.1", host])
    raw(driver, 400, [post, host, auth, "Content-Type: application/json", "Content-Encoding: gzip",
                      "Content-Length: 3"], b"abc")
    raw(driver, 413, [post, host, auth, "Content-Type: application/json",
                      "Content-Length: 9000000"])
    raw(driver, 414, [f"GET /{'a' * 60000} HTTP/1.1", host])
    raw(driver, 417, ["GET / HTTP/1.1", host, "Expect: miracles"])
    raw(driver, 431, ["GET / HTTP/1.1", host, f"X-Long: {'a' * 60000}"])
    raw(driver, 501, [post, host, auth, "Transfer-Encoding: br"])
    raw(driver, 505, ["GET / HTTP/3.0", host])


def fill(driver, agent):
    """Reports until one is refused."""
    reply = None
    while reply is None or reply.status == 200:
        agent.seq += 1
        reply = driver.ask("POST", API + agent.path("/reports"), {
            "agent": "host-1", "seq": agent.seq, "iterations": agent.rows(20)})
    assert reply.status == 503, reply.text


def drive_full_disk(driver, program):
    """Operations that write, while nothing can be written."""
    with Controller(program, file_bytes=700000) as full:
        agent = Agent(full, "full", n_ranks=1)
        asked, driver.controller = driver.controller, full
        for method, rest, body in (
                ("POST", "/jobs/full/incarnations", registration(key="start-2")),
                ("PUT", "/jobs/full/mode", {"mode": "off"}),
                ("PUT", "/jobs/full/limits", {"max_merge": 1, "max_delay": 0}),
                ("PUT", "/jobs/full/pin", {"plan": ""}),
                ("PUT", "/jobs/full/freeze", {"frozen": True}),
                ("PUT", "/jobs/full/keep", {"keep": "raw=2d"}),
                ("POST", "/tokens", {"name": "x", "role": "viewer"}),
                ("DELETE", "/jobs/full", None)):
            fill(driver, agent)
            while driver.ask(method, API + rest, body).status not in (409, 503):
                fill(driver, agent)  # there was room for one more
        fill(driver, agent)
        driver.ask("GET", "/readyz", expect=503)
        assert driver.ask("GET", "/healthz").json["status"] == "degraded"
        driver.controller = asked


def drive_full_disk_later(driver, program):
    """Likewise of what needs an ended job and a token: filled up behind them."""
    with Controller(program, file_bytes=1500000) as full:
        names = [f"old{i}" for i in range(6)]
        for name in names:
            Agent(full, name, n_ranks=1).finish()
        agent = Agent(full, "full", n_ranks=1)
        full.token = full.expect(201, "POST", API + "/tokens",
                                 {"name": "op", "role": "operator"}).json["token"]
        for name in names:
            full.expect(201, "POST", API + "/tokens", {"name": name, "role": "viewer"})
        asked, driver.controller = driver.controller, full
        fill(driver, agent)
        for what in ("jobs", "tokens"):  # there may be room for some that a report is larger than
            assert any(driver.ask("DELETE", f"{API}/{what}/{name}").status == 503
                       for name in names), what
        driver.controller = asked


def drive_other_servers(driver, program):
    """Limits of the server that are too wide, or off, in the other cases."""
    asked = driver.controller
    with Controller(program, "--max-rate", "1") as slow:
        driver.controller = slow
        statuses = {driver.ask("GET", "/healthz").status for _ in range(20)}
        assert statuses == {200, 429}, statuses
    with Controller(program, "--host", "deft.example") as named:
        driver.controller = named
        raw(driver, 421, ["GET / HTTP/1.1", "Host: evil.example"])
    driver.controller = asked


# --- cases ----------------------------------------------------------------------------------------


def the_document_is_sound(_program):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api")
    with open(os.path.join(root, "openapi.yaml"), encoding="utf-8") as file:
        document = Document(file.read())
    assert lint(document) > 100


def everything_is_described_and_driven(program):
    with Controller(program) as controller:
        driver = Driver(controller, read_document(controller))
        world = World(controller)
        if not world.has_pages:
            driver.document.leave_out("/assets/{name}")  # a build without the dashboard
        drive_good(driver, world)
        drive_events(driver, world)
        drive_tags(driver, world)
        drive_rights(driver, world)
        drive_absence(driver, world)
        drive_methods(driver, world)
        drive_bodies(driver, world)
        drive_values(driver, world)
        drive_anything(driver, world)
        drive_overload(driver, world)
        drive_conflicts(driver, world)
        assert controller.is_well()
        drive_full_disk(driver, program)
        drive_full_disk_later(driver, program)
        drive_other_servers(driver, program)
        operations = driver.document.operations.values()
        missed = {(o.id, s) for o in operations for s in o.own_statuses} - driver.met
        assert not missed, f"never met: {sorted(missed)}"
        named = {code for o in operations for r in o.responses.values()
                 for code in r.get("x-deft-codes", [])}
        for codes in next(iter(operations)).responses["default"]["x-deft-statuses"].values():
            named |= set(codes)
        assert named - driver.codes == set(ELSEWHERE), (
            f"never met: {named - driver.codes - set(ELSEWHERE)}; "
            f"met after all: {set(ELSEWHERE) & driver.codes}")
        unasked = {o.id for o in operations if o.method == "GET"} - driver.heads - STREAMS
        assert not unasked, f"HEAD was not asked of {unasked}"


def pages_have_every_job_once(program):
    with Controller(program) as controller:
        names = [f"j{i:02}" for i in range(23)]
        for i, name in enumerate(names):
            agent = Agent(controller, name, user=f"u{i % 3}", n_ranks=1)
            if i % 5 == 0:
                agent.finish("failed" if i % 2 else "finished")
        for query in ("", "&sort=id", "&sort=-id", "&sort=user", "&sort=-user", "&sort=created"):
            found = []
            while True:
                page = controller.get(f"/jobs?limit=5&offset={len(found)}{query}")
                assert page["total"] == len(names)
                assert len(page["jobs"]) == min(5, len(names) - len(found))
                if not page["jobs"]:
                    break
                found += page["jobs"]
            ids = [job["id"] for job in found]
            assert sorted(ids) == names, f"{query}: {ids}"
            users = [job["user"] for job in found]
            order = {"": ids == names[::-1], "&sort=created": ids == names,
                     "&sort=id": ids == names, "&sort=-id": ids == names[::-1],
                     "&sort=user": users == sorted(users),
                     "&sort=-user": users == sorted(users, reverse=True)}
            assert order[query], f"{query}: {ids}"
        for state, n in (("finished", 3), ("failed", 2), ("running", 18), ("lost", 0)):
            assert controller.get(f"/jobs?state={state}")["total"] == n, state
        assert controller.get("/jobs?user=u1")["total"] == 8
        assert controller.get("/jobs?user=u1&state=finished")["total"] == 1
        assert controller.get("/jobs?user=nobody")["jobs"] == []
        assert controller.get("/jobs?since=2020-01-01T00:00:00Z")["total"] == 23
        later = controller.get("/jobs?since=2100-01-01T00:00:00Z")
        assert {job["state"] for job in later["jobs"]} == {"running"} and later["total"] == 18
        assert controller.get("/jobs?offset=9007199254740991")["jobs"] == []


def records_are_paged_to_the_end(program):
    with Controller(program) as controller:
        Agent(controller, "j", n_ranks=1)
        for i in range(11):
            controller.expect(200, "PUT", API + "/jobs/j/freeze",
                              {"frozen": i % 2 == 0, "reason": f"number {i}"})
        reasons, before = [], ""
        while before is not None:
            page = controller.get(f"/audit?limit=4{before}")
            reasons += [record["reason"] for record in page["records"]]
            before = f"&before={page['next']}" if page["next"] is not None else None
        assert reasons == [f"number {i}" for i in range(10, -1, -1)], reasons


def series_are_thinned_and_lose_nothing(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        agent.run(60)
        for kind in ("iterations", "losses"):
            for first, last in ((0, 59), (7, 41), (59, 59), (100, 200)):
                n = max(0, min(last, 59) - first + 1)
                for points in (1, 3, 7, 60, 10000):
                    found = controller.get(agent.path(
                        f"/{kind}?from={first}&to={last}&points={points}"))
                    assert len(found["points"]) <= points
                    assert sum(p["n_iterations"] for p in found["points"]) == n, (kind, found)
                    at = [p["iteration"] for p in found["points"]]
                    assert at == sorted(at) and all(first <= i <= last for i in at)
            assert len(controller.get(agent.path(f"/{kind}"))["points"]) == 60


CASES = (the_document_is_sound, everything_is_described_and_driven, pages_have_every_job_once,
         records_are_paged_to_the_end, series_are_thinned_and_lose_nothing)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
