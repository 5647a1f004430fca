#!/usr/bin/env python3
"""Bodies that are not what they should be, sent to a real controller: each is refused with a
problem that is the client's fault, nothing of it is stored, and the controller goes on.

usage: hostile_json_test.py DEFT_CONTROLLER [CASE]
"""

import json
import random
import sys

import rest_controller
from rest_controller import API, SEED, Agent, Controller, registration

PROFILE = {"schema": "deft.profile/1", "compute": {"forward_ns": 1000, "backward_ns": 2000},
           "links": [{"name": "a", "bytes_per_s": 10**9}],
           "tensors": [{"name": "t", "elements": 1000}]}


def bodies(agent):
    """What every operation that takes a body takes."""
    jobs = API + "/jobs/j"
    return [("POST", jobs + "/incarnations", registration()),
            ("POST", API + agent.path("/reports"), {
                "agent": "host-1", "seq": 1,
                "iterations": [[0, 0, 0, 1, 1, 1, 1, 1, 9, 0, 1.5, 1, 1, 1, 0, 1, 0, None, 0.1]],
                "ops": [[0, 0, 4096, 1, 10, 20, 30]],
                "readiness": [{"rank": 0, "iteration": 0, "offsets_ns": [1] * 8}],
                "events": [{"rank": 0, "kind": "dropped", "count": 3}]}),
            ("PUT", jobs + "/mode", {"mode": "observe"}),
            ("PUT", jobs + "/limits", {"max_merge": 2, "max_delay": 1, "epsilon": 0.5}),
            ("PUT", jobs + "/pin", {"plan": "i1.1"}),
            ("PUT", jobs + "/freeze", {"frozen": True}),
            ("PUT", jobs + "/keep", {"keep": "raw=2d"}),
            ("POST", API + "/simulate", PROFILE),
            ("POST", API + "/tokens", {"name": "t", "role": "viewer", "expires_in_s": 7})]


def state_of(controller, agent):
    """What may not change."""
    job = controller.get("/jobs/j")
    job.pop("updated_at")
    return (job, controller.get(agent.path())["agents"], controller.get("/audit")["records"],
            controller.get(agent.path("/iterations"))["points"])


def leaves(value, at=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, at + (key,))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, at + (i,))
    else:
        yield at


def with_text(body, at, text):
    """The body with JSON text in one place."""
    copy = json.loads(json.dumps(body))
    inner = copy
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = "@HERE@"
    return json.dumps(copy).replace('"@HERE@"', text)


def text_that_is_no_json_is_refused(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        before = state_of(controller, agent)
        for method, path, body in bodies(agent):
            text = json.dumps(body)
            wrong = [text[:-1], text + "x", text + text, "\ufeff" + text, text.replace('"', "'"),
                     text[:-1] + ",}", "{" + text[1:-1] + ",,}", text.replace(":", "=", 1),
                     "[" * 40 + "]" * 40, '{"a":' * 40 + "1" + "}" * 40, text[:-1] + ',"x":\x01}',
                     text[:-1] + ',"x":"\n"}', text[:-1] + ',"x":"\\u12"}',
                     text[:-1] + ',"x":"\\ud800"}', text[:-1] + ',"x":"\\q"}',
                     text[:-1] + ',"x":01}', text[:-1] + ',"x":.5}', text[:-1] + ',"x":+1}',
                     text[:-1] + ',"x":0x1}', text[:-1] + ',"x":NaN}',
                     text[:-1] + ',"x":-Infinity}',
                     text[:-1] + ',"x":True}', "/**/" + text, text + "//", "\x00" + text,
                     text[:1] + text[1:].split(",")[0].rstrip("}]") + "," + text[1:]]
            wrong = [w.encode("utf-8", "surrogatepass") for w in wrong]
            wrong += [text.encode() + b"\x00", text.encode("utf-16"), b"\xff\xfe" + text.encode(),
                      text[:-1].encode() + b',"x":"\xc0\xaf"}',
                      text[:-1].encode() + b',"\xff":1}']
            for data in wrong:
                reply = controller.ask(method, path, data)
                assert reply.status == 400, f"{method} {path} {data[:200]!r}: {reply.status}"
                assert reply.json["code"] == "invalid" and len(reply.json["detail"]) > 10
        assert state_of(controller, agent) == before
        assert controller.is_well()


def numbers_beyond_all_bounds_are_refused(program):
    """Each number of each body becomes one that is none, or that nothing can hold."""
    never = ["NaN", "Infinity", "1e999", "-1e999", "1e400", "1" * 400, '"1"', "[]", "{}", "true"]
    no_integer = ["9007199254740992", "9223372036854775808", "18446744073709551616", "-1",
                  "-9223372036854775809", "0.5"]
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        for method, path, body in bodies(agent):
            for at in leaves(body):
                inner = body
                for step in at:
                    inner = inner[step]
                if not isinstance(inner, (int, float)) or isinstance(inner, bool):
                    continue
                is_real = at[0] in ("epsilon", "momentum", "learning_rate") or (
                    at[0] == "iterations" and at[-1] in (10, 11, 12, 17, 18))
                for text in never + no_integer:
                    reply = controller.ask(method, path, with_text(body, at, text))
                    what = f"{path} {at} {text[:30]}: {reply.status} {reply.text[:200]}"
                    if is_real and text in no_integer:
                        assert reply.status in (200, 201, 400), what
                    else:
                        assert reply.status == 400, what
                    if reply.status == 400:
                        assert reply.json["code"] == "invalid", what
        assert controller.is_well()
        for point in controller.get(agent.path("/losses"))["points"]:
            assert point["loss"] is None or abs(point["loss"]) < 1e308
        assert "NaN" not in controller.ask("GET", API + agent.path("/losses")).text


def texts_of_every_kind_come_back_as_they_were(program):
    names = ["quote\"s", "back\\slash", "sl/ash", "<script>alert(1)</script>", "\U0001f600 emoji",
             "%2e%2e%2f..", "36199_0", "123+1", "12.3", "null", " ", "\u202eright to left",
             "'; DROP TABLE jobs; --", "\u0000".replace("\u0000", "nul"), "a" * 127, "\u00e4" * 63]
    with Controller(program) as controller:
        for name in names:
            agent = Agent(controller, name, name=name, user=name, agent=name, n_ranks=1)
            agent.report(events=[{"rank": 0, "kind": "dropped", "text": name}])
            job = controller.get(rest_controller.job_path(name))
            assert (job["id"], job["name"], job["user"]) == (name, name, name), job
            assert controller.get(agent.path())["agents"][0]["agent"] == name
            controller.expect(200, "PUT", API + rest_controller.job_path(name) + "/mode",
                              {"mode": "off", "reason": name})
        listed = controller.get("/jobs?limit=1000")
        assert sorted(job["id"] for job in listed["jobs"]) == sorted(names)
        reasons = [record["reason"] for record in controller.get("/audit")["records"]]
        assert reasons == names[::-1]
        # Beyond the bounds: refused with a sentence, and nothing of it is there.
        for name in ("a" * 128, "a" * 300, "\u00e4" * 64, "\U0001f600" * 80):
            path = API + rest_controller.job_path(name)
            reply = controller.expect(400, "POST", path + "/incarnations", registration())
            assert reply.json["field"] == "job", reply.text
            controller.expect(404, "GET", path)
        for bad in ("%00", "%0a", "%ff", "%c0%af", "%ed%a0%80"):
            assert controller.ask("GET", f"{API}/jobs/{bad}").status == 400, bad
        for member in ("key", "name", "user", "agent"):
            body = registration(**{member: "x" * 300})
            reply = controller.expect(400, "POST", API + "/jobs/long/incarnations", body)
            assert reply.json["field"] == member, reply.text
        assert controller.get("/jobs")["total"] == len(names)


def damaged_bodies_never_break_it(program):
    dice = random.Random(SEED)
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        controller.token = controller.expect(
            201, "POST", API + "/tokens", {"name": "op", "role": "operator"}).json["token"]
        for _ in range(60):
            for method, path, body in bodies(agent):
                data = bytearray(json.dumps(body).encode())
                for _ in range(dice.randrange(1, 5)):
                    kind, at = dice.randrange(3), dice.randrange(len(data))
                    if kind == 0:
                        data[at] = dice.randrange(256)
                    elif kind == 1:
                        del data[at:at + dice.randrange(1, 9)]
                    else:
                        data[at:at] = bytes(data[at:at + dice.randrange(1, 9)])
                    data = data or bytearray(b"{")
                status = controller.ask(method, path, bytes(data)).status
                assert status in (200, 201, 400, 404, 409, 429), f"{status}: {path} {bytes(data)!r}"
        assert controller.process.poll() is None
        assert controller.ask("GET", "/healthz").json["status"] == "ok"


CASES = (text_that_is_no_json_is_refused, numbers_beyond_all_bounds_are_refused,
         texts_of_every_kind_come_back_as_they_were, damaged_bodies_never_break_it)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
