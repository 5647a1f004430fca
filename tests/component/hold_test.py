#!/usr/bin/env python3
"""What operators hold, what a new start takes from the old one, and what ends with it.

usage: hold_test.py DEFT_CONTROLLER [CASE]
"""

import json
import os
import signal
import subprocess
import sys

import rest_controller
from rest_controller import API, Agent, Controller, registration


def replay(controller, job):
    """Exit status and output of the replay, beside the controller."""
    done = subprocess.run([controller.program, "replay", controller.db, job],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode()


def shell(controller, *words, status=0):
    """`deft WORDS` at this controller; what it said."""
    program = os.path.join(os.path.dirname(controller.program), "deft")
    environment = dict(os.environ, DEFT_CONTROLLER=f"http://127.0.0.1:{controller.port}")
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=environment, check=False)
    text = done.stdout.decode()
    assert done.returncode == status, f"{words}: {done.returncode} {text}"
    return text


def put(controller, job, what, body, status=200):
    return controller.expect(status, "PUT", f"{API}/jobs/{job}/{what}", body)


def kinds(agent):
    return [decision["kind"] for decision in agent.decisions()]


def a_frozen_job_is_left_as_it_is(program):
    with Controller(program, "--guard", "100000") as controller:
        agent = Agent(controller, "j")
        put(controller, "j", "freeze", {"frozen": True, "reason": "a measurement"})
        agent.run(250)
        assert agent.view["frozen"] is True and agent.view["phase"] == "observing", agent.view
        assert "frozen" in agent.view["status"] and kinds(agent) == []
        controller.restart(signal.SIGKILL)
        assert agent.look()["frozen"] is True
        agent.run(100)
        assert kinds(agent) == []
        put(controller, "j", "freeze", {"frozen": False})
        agent.run_to("committed", 600)
        put(controller, "j", "freeze", {"frozen": True})
        rest_controller.await_true(lambda: kinds(agent)[-1] == "commit")
        plan, n = agent.view["plan"], len(kinds(agent))
        agent.step_ns = int(agent.step_ns * 1.3)  # drift, and still better than exact
        agent.run(300)
        assert agent.view["plan"] == plan and len(kinds(agent)) == n, agent.view["decision"]
        agent.step_ns = agent.COMPUTE_NS + 2 * agent.EXPOSED_NS  # the way back stays open
        agent.run(300)
        rest_controller.await_true(lambda: len(kinds(agent)) > n)
        assert kinds(agent)[n] == "rollback", kinds(agent)[n:]
        agent.run(600)
        assert kinds(agent)[n + 1:] == [], "a frozen job was given another plan"
        assert replay(controller, "j")[0] == 0


def a_job_of_one_rank_is_left_as_it_is(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=1)
        agent.run(600)
        assert set(kinds(agent)) == {"keep"}, kinds(agent)
        assert "one rank has nobody to all-reduce with" in agent.decisions()[0]["reason"]


def a_pinned_plan_runs_and_no_other(program):
    with Controller(program, "--guard", "100000") as controller:
        agent = Agent(controller, "j")
        agent.run_to("committed", 600)
        plan = agent.view["plan"]
        content = controller.get(f"/plans/{plan}")
        put(controller, "j", "mode", {"mode": "observe"})
        agent.switch()
        agent.run(20)
        # By its hash: the newest plan of the job that has it.
        assert put(controller, "j", "pin", {"plan": content["hash"]}).json == {"plan": plan}
        assert agent.look()["pin"] == plan
        put(controller, "j", "mode", {"mode": "auto"})
        n = len(kinds(agent))
        agent.stretch = 2.5  # slower than exact: the operator wants it so
        agent.run_to("committed", 600)
        pushed = [d for d in agent.decisions()[n:] if d["kind"] == "push"]
        assert "is pinned" in pushed[0]["reason"], pushed
        now = controller.get(f"/plans/{agent.view['plan']}")
        assert now["hash"] == content["hash"]
        agent.run(400)
        assert "rollback" not in kinds(agent)[n:] and agent.view["pin"] == plan
        # The guard of the losses may still leave it; then nothing else is tried.
        agent.report(events=[{"rank": r, "kind": "fused", "plan_seq": agent.plan_seq,
                              "iteration": agent.iteration, "text": "a test"} for r in (0, 1)])
        agent.is_exact, agent.stretch = True, 1.0
        agent.step_ns = agent.COMPUTE_NS + agent.EXPOSED_NS
        rest_controller.await_true(lambda: kinds(agent)[-1] == "fused")
        n = len(kinds(agent))
        agent.run(600)
        assert kinds(agent)[n:] == [] and "pinned plan was left" in agent.view["status"], agent.view
        # Pinned anew it is tried anew; a new start has the pin as well.
        put(controller, "j", "pin", {"plan": plan, "reason": "once more"})
        agent.run_to("committed", 600)
        agent.finish()
        again = Agent(controller, "j", key="start-2")
        again.run_to("canary", 300)
        assert "is pinned" in again.decisions()[0]["reason"]
        put(controller, "j", "pin", {"plan": ""})
        assert again.look()["pin"] == ""
        assert replay(controller, "j")[0] == 0, replay(controller, "j")[1]
        actions = [r for r in controller.get("/audit?subject=j")["records"]
                   if r["action"] == "job.pin"]
        assert [r["after"]["plan"] for r in actions] == ["", plan, plan]
        assert [r["before"]["plan"] for r in actions] == [plan, plan, ""]
        assert actions[1]["reason"] == "once more"


def pins_that_do_not_fit_are_refused_or_left(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        agent.run_to("committed", 600)
        plan = agent.view["plan"]
        other = Agent(controller, "other")
        put(controller, "other", "pin", {"plan": plan}, 404)  # another job's
        for wrong in ("i0.1", "i1", "x", "0123", "i1.999", "f" * 16):
            assert controller.ask("PUT", API + "/jobs/j/pin", {"plan": wrong}).status in (400, 404)
        put(controller, "j", "pin", {"plan": plan})
        agent.finish()
        # The next start has other tensors, and stays exact.
        new = Agent(controller, "j", key="start-2", table_hash="8" * 16,
                    tensors=registration()["tensors"][:3])
        new.run(300)
        assert new.view["plan"] == "" and "keep" in kinds(new), new.view
        assert "not for this job's tensors" in new.view["decision"], new.view
        put(controller, "j", "pin", {"plan": plan}, 409)
        put(controller, "j", "pin", {"plan": ""})
        new.run_to("canary", 900)
        assert other.look()["pin"] == ""


def history_is_kept_as_the_operator_says(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=1)
        assert controller.get("/jobs/j/keep") == {"keep": "default"}
        for wish, is_now in (("raw=30d", "raw=30d"),
                             ("raw=48h,jobs=forever", "raw=2d,jobs=forever"),
                             ("iterations=100,minutes=365d", "iterations=100,minutes=1y"),
                             ("logs=90m,hours=1w", "hours=1w,logs=90m"), ("default", "default")):
            assert put(controller, "j", "keep", {"keep": wish}).json == {"keep": is_now}
            assert controller.get("/jobs/j/keep") == {"keep": is_now}
        for wrong in ("raw=1s", "raw", "=1d", "raw=", "raw=-1d", "raw=1", "days=1d", "raw=1d,",
                      "raw=99999999999999999999d", "", "x" * 200):
            reply = put(controller, "j", "keep", {"keep": wrong}, 400)
            assert reply.json["field"] == "keep", reply.text
        agent.finish()
        assert put(controller, "j", "keep", {"keep": "jobs=2d"}).json == {"keep": "jobs=2d"}


def tokens_of_a_removed_job_end_with_it(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=1)
        agent.finish()
        tokens = {}
        for name, more in (("op", {"role": "operator"}), ("mine", {"role": "agent", "job": "j"}),
                           ("other", {"role": "agent", "job": "k"}),
                           ("all", {"role": "agent", "job_prefix": "j"})):
            reply = controller.expect(201, "POST", API + "/tokens", {"name": name, **more})
            tokens[name] = reply.json["token"]
            controller.token = tokens["op"]
        path = API + "/jobs/j/incarnations"
        controller.expect(201, "POST", path, agent.body, token=tokens["mine"])
        controller.expect(200, "DELETE", API + "/jobs/j")
        controller.expect(401, "POST", path, agent.body, token=tokens["mine"])
        states = {t["name"]: t["state"] for t in controller.get("/tokens")["tokens"]}
        assert states == {"op": "live", "mine": "revoked", "other": "live", "all": "live"}
        records = controller.get("/audit?subject=mine")["records"]
        assert [r["action"] for r in records] == ["token.revoke", "token.create"]
        assert records[0]["who"] == "op" and records[0]["reason"] == "its job was removed"
        controller.expect(201, "POST", path, agent.body, token=tokens["all"])


def a_shell_holds_a_job(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j 1")
        agent.run_to("committed", 600)
        plan = agent.view["plan"]
        assert f"{plan} is pinned" in shell(controller, "pin", "j 1", plan, "--reason", "mine")
        text = shell(controller, "job", "j 1")
        assert f"pinned       {plan}, and no other plan" in text, text
        assert "no plan is pinned" in shell(controller, "pin", "j 1", "none")
        assert "j 1: frozen" in shell(controller, "freeze", "j 1", "on")
        assert "frozen: no plan is looked for" in shell(controller, "job", "j 1")
        assert "not frozen" in shell(controller, "freeze", "j 1", "off")
        assert shell(controller, "keep", "j 1") == "job j 1: default\n"
        assert "raw=2d" in shell(controller, "keep", "j 1", "raw=48h")
        assert shell(controller, "keep", "j 1", "default") == "job j 1: default\n"
        for words, code, says in (
                (("pin", "j 1"), 2, "is expected"), (("pin",), 2, "id of a job"),
                (("pin", "j 1", "x" * 200), 2, "too long"),
                (("pin", "j 1", "i1.999"), 1, "no plan"),
                (("pin", "nobody", plan), 1, "no such job"), (("freeze", "j 1"), 2, "the freeze"),
                (("freeze", "j 1", "maybe"), 2, "maybe"), (("keep", "j 1", "raw=1s"), 2, "raw"),
                (("keep", "j 1", "raw=2d", "more"), 2, "more"),
                (("keep", "nobody"), 1, "no such job")):
            assert says in shell(controller, *words, status=code), words
        for i in range(4):
            Agent(controller, f"k{i}", user=f"u {i % 2}", n_ranks=1)
        for words, ids in ((("--sort", "id", "--limit", "2"), ["j 1", "k0"]),
                           (("--sort", "-id", "--limit", "2", "--offset", "1"), ["k2", "k1"]),
                           (("--user", "u 1", "--sort", "id"), ["k1", "k3"]),
                           (("--state", "lost"), []),
                           (("--since", "2020-01-01T00:00:00Z", "--sort", "created", "--limit",
                             "1"), ["j 1"])):
            found = json.loads(shell(controller, "jobs", "--json", *words))
            assert [job["id"] for job in found["jobs"]] == ids, words
        assert "3 more are not shown" in shell(controller, "jobs", "--limit", "2")
        for words in (("--sort", "size"), ("--state", "x"), ("--since", "now"), ("--limit", "0")):
            shell(controller, "jobs", *words, status=2)
        records = controller.get("/audit?subject=j%201")["records"]
        assert records[-1]["reason"] == "mine" and records[-1]["action"] == "job.pin", records


def a_job_travels_between_controllers_at_work(program):
    with Controller(program) as here, Controller(program) as there:
        agent = Agent(here, "j")
        agent.run_to("committed", 600)
        put(here, "j", "pin", {"plan": agent.view["plan"]})
        put(here, "j", "keep", {"keep": "raw=30d"})
        archive = os.path.join(here.folder, "j.gz")
        shell(here, "db", "export", here.db, "j", archive)
        other = Agent(there, "other", user="user-7")
        assert shell(there, "db", "import", there.db, archive) == "j\n"
        other.run(20)
        assert "another name with --as" in shell(there, "db", "import", there.db, archive, status=1)
        assert shell(there, "db", "import", there.db, archive, "--as", "k") == "k\n"
        for name in ("j", "k"):
            job = there.get(f"/jobs/{name}")
            assert job["state"] == "lost" and job["pin"] == "", job  # a pin is of its database
            assert there.get(f"/jobs/{name}/keep") == {"keep": "raw=30d"}
            plans = there.get(f"/incarnations/{job['incarnation']}/plans")["plans"]
            was = here.get(agent.path("/plans"))["plans"]
            assert [p["hash"] for p in plans] == [p["hash"] for p in was]
            assert replay(there, name)[0] == 0
        # What did well there begins the next start here.
        again = Agent(there, "j", key="start-2")
        again.run_to("canary", 300)
        assert "it did well as i" in again.decisions()[0]["reason"]
        assert here.is_well() and there.is_well()


# --- one start after the other --------------------------------------------------------------------


def a_new_start_begins_with_the_plan_that_did_well(program):
    with Controller(program) as controller:
        first = Agent(controller, "j")
        first.run_to("committed", 600)
        plan = controller.get(f"/plans/{first.view['plan']}")
        second = Agent(controller, "j", key="start-2", restart_count=1)
        second.run(90)
        assert kinds(second) == [], "nothing is tried before the warm-up is over"
        second.run_to("committed", 600)
        push = second.decisions()[0]
        assert push["kind"] == "push" and "it did well as i1." in push["reason"], push
        assert controller.get(f"/plans/{second.id}.1")["hash"] == plan["hash"]
        assert "compare" in kinds(second), "it is guarded as any other"
        assert controller.expect(
            200, "GET", f"{API}/plans/{second.id}.1/explain").json["solution"] is None
        # Also of another job of the same user; not of another world, links, table or user.
        same = Agent(controller, "k")
        same.run_to("canary", 300)
        assert "it did well as i2." in same.decisions()[0]["reason"]
        for change in ({"n_ranks": 4}, {"user": "user-2"}, {"table_hash": "8" * 16},
                       {"links": [dict(registration()["links"][0], name="gloo:eth0")]}):
            other = Agent(controller, f"other {change}".replace(" ", "-"), **change)
            other.run_to("canary", 300)
            assert "did well" not in other.decisions()[0]["reason"], change
        status, text = replay(controller, "j")
        assert status == 0, text


def a_plan_that_did_harm_is_not_begun_with(program):
    with Controller(program) as controller:
        first = Agent(controller, "j")
        first.run_to("committed", 600)
        first.report(events=[{"rank": r, "kind": "fused", "plan_seq": first.plan_seq,
                              "iteration": first.iteration, "text": "a test"} for r in (0, 1)])
        rest_controller.await_true(lambda: kinds(first)[-1] == "fused")
        second = Agent(controller, "j", key="start-2")
        second.run_to("canary", 300)
        assert "did well" not in second.decisions()[0]["reason"]


def a_plan_of_the_past_that_gains_nothing_now_is_left_out(program):
    with Controller(program) as controller:
        first = Agent(controller, "j")
        first.run_to("committed", 600)
        second = Agent(controller, "j", key="start-2")
        second.step_ns = second.COMPUTE_NS  # a network that nobody waits for
        second.run(300)
        assert second.view["plan"] == "" and "push" not in kinds(second), second.view
        controller.await_log("a plan of the past is left out")


def another_world_is_another_start_and_the_old_one_is_closed(program):
    with Controller(program) as controller:
        old = Agent(controller, "j", n_ranks=2)
        old.run_to("committed", 600)
        new = Agent(controller, "j", key="start-2", n_ranks=4)
        assert new.id != old.id
        assert new.look()["plan"] == "" and new.view["n_ranks"] == 4, new.view
        assert controller.get(old.path())["state"] == "lost"
        n = len(old.decisions())
        old.seq += 100
        for _ in range(20):  # ranks of before that still speak are heard, and led nowhere
            old.report(iterations=old.rows(5))
        assert len(old.decisions()) == n
        assert controller.get(old.path())["state"] == "lost"
        new.run_to("committed", 600)
        plan = controller.get(f"/plans/{new.view['plan']}")
        assert plan["incarnation"] == new.id
        job = controller.get("/jobs/j")
        assert job["incarnation"] == new.id and job["state"] == "running", job
        controller.restart()
        job = controller.get("/jobs/j")
        assert job["incarnation"] == new.id and job["plan"] == new.view["plan"], job
        old.report(events=[{"rank": r, "kind": "finished"} for r in (0, 1)])
        rest_controller.await_true(lambda: controller.get(old.path())["state"] == "finished")
        assert controller.get("/jobs/j")["state"] == "running"
        assert controller.get("/jobs?state=running")["total"] == 1
        status, text = replay(controller, "j")
        assert status == 0, text


def two_jobs_of_one_id_leave_the_older_one_exact(program):
    """Its ranks are at work, and nobody judges its plan any more."""
    with Controller(program) as controller:
        old = Agent(controller, "j", key="one")
        old.run_to("committed", 600)
        with controller.listen(old.path("/events")) as stream:
            while b"event: mode" not in stream.readline():
                pass
            new = Agent(controller, "j", key="another")
            old.report(iterations=old.rows(5))
            while b"event: plan" not in stream.readline():
                pass
            old.switch()
            assert old.is_exact
            assert old.decisions()[-1]["reason"] == "the job has started anew: back to exact"
            for _ in range(80):
                old.report(iterations=old.rows(5))
            assert kinds(old)[-1] == "rollback"
        new.run_to("committed", 600)
        assert "it did well as i1." in new.decisions()[0]["reason"]  # it did no harm
        assert replay(controller, "j")[0] == 0


def a_requeued_job_is_another_start(program):
    with Controller(program) as controller:
        starts = [Agent(controller, "j", key=f"4711/{i}", restart_count=i) for i in range(5)]
        assert len({agent.id for agent in starts}) == 5
        rest_controller.await_true(
            lambda: [controller.get(agent.path())["state"] for agent in starts] ==
            ["lost"] * 4 + ["running"])
        assert controller.get("/jobs/j")["incarnation"] == starts[-1].id
        assert controller.get("/jobs")["total"] == 1


CASES = (a_frozen_job_is_left_as_it_is, a_job_of_one_rank_is_left_as_it_is,
         a_pinned_plan_runs_and_no_other, pins_that_do_not_fit_are_refused_or_left,
         history_is_kept_as_the_operator_says, tokens_of_a_removed_job_end_with_it,
         a_shell_holds_a_job,
         a_job_travels_between_controllers_at_work, a_new_start_begins_with_the_plan_that_did_well,
         a_plan_that_did_harm_is_not_begun_with,
         a_plan_of_the_past_that_gains_nothing_now_is_left_out,
         another_world_is_another_start_and_the_old_one_is_closed,
         two_jobs_of_one_id_leave_the_older_one_exact, a_requeued_job_is_another_start)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
