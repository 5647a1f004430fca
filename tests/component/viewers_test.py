#!/usr/bin/env python3
"""What the dashboard asks of a controller besides the plain views: a job's changes as a stream, and
plans as timelines.

usage: viewers_test.py DEFT_CONTROLLER [CASE]
"""

import json
import sys
import time

import rest_controller
from rest_controller import API, DEADLINE_S, Agent, Controller, await_true, job_path

MAX_STREAMS = 512  # controller/service_changes.h


class Stream:
    """Reads one job's changes; `job` is what came last."""

    def __init__(self, controller, job, token=None):
        headers = f"Authorization: Bearer {token}\r\n" if token else ""
        self.file = controller.listen(f"{job_path(job)}/changes", headers)
        self.status = int(self.file.readline().split()[1])
        while True:
            line = self.file.readline()
            if line in (b"\r\n", b""):
                break
        self.job = None

    def next(self):
        """The next event; None when the stream has ended."""
        while True:
            line = self.file.readline()
            if line == b"" or line == b"0\r\n":
                return None
            if line.startswith(b"data: "):
                self.job = json.loads(line[len(b"data: "):])
                return self.job

    def until(self, holds):
        deadline = time.monotonic() + DEADLINE_S
        while self.job is None or not holds(self.job):
            assert time.monotonic() < deadline, f"it does not come: {self.job}"
            assert self.next() is not None, "the stream has ended"
        return self.job

    def close(self):
        self.file.close()


def a_job_is_sent_at_once_and_when_it_changes(program):
    with Controller(program) as controller:
        agent = Agent(controller, "a/b c")
        stream = Stream(controller, "a/b c")
        assert stream.status == 200
        assert stream.next() == controller.get(job_path("a/b c"))
        agent.run(10)
        assert stream.until(lambda job: job["iterations"] == 10)["id"] == "a/b c"
        controller.expect(200, "PUT", API + job_path("a/b c") + "/freeze", {"frozen": True})
        stream.until(lambda job: job["frozen"])
        agent.finish()
        assert stream.until(lambda job: job["state"] == "finished")["frozen"]
        stream.close()
        again = Stream(controller, "a/b c")  # read from the database, sooner or later
        again.until(lambda job: job["state"] == "finished")
        again.close()
        assert controller.ask("GET", API + "/jobs/nobody/changes").status == 404


def streams_end_with_their_job_and_their_token(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        agent.run(5)
        agent.finish()
        stream = Stream(controller, "j")
        stream.until(lambda job: job["state"] == "finished")
        other = Agent(controller, "k")
        controller.expect(200, "DELETE", API + "/jobs/j", {"reason": "a test"})
        while stream.next() is not None:
            pass
        stream.close()
        reply = controller.expect(201, "POST", API + "/tokens", {"name": "o", "role": "operator"})
        controller.token = reply.json["token"]
        viewer = controller.expect(201, "POST", API + "/tokens",
                                   {"name": "v", "role": "viewer"}).json["token"]
        stream = Stream(controller, "k", viewer)
        stream.until(lambda job: job["id"] == other.job)
        controller.expect(200, "DELETE", API + "/tokens/v", {"reason": "a test"})
        while stream.next() is not None:
            pass
        stream.close()


def there_is_room_for_so_many_and_again_when_they_go(program):
    with Controller(program) as controller:
        Agent(controller, "j")
        streams = [Stream(controller, "j") for _ in range(MAX_STREAMS)]
        assert {stream.status for stream in streams} == {200}
        reply = controller.ask("GET", API + "/jobs/j/changes")
        assert reply.status == 429 and reply.json["code"] == "busy", reply.text
        for stream in streams:
            assert stream.next()["id"] == "j"
            stream.close()

        def is_served():
            last = Stream(controller, "j")
            last.close()
            return last.status == 200

        await_true(is_served)
        assert controller.is_well()


def every_pushed_plan_is_drawn(program):
    with Controller(program, "--guard", "100000") as controller:
        agent = Agent(controller, "j")
        agent.run_to("committed", 600)
        plans = controller.get(agent.path("/plans"))["plans"]
        assert len(plans) >= 2
        for plan in plans:
            timeline = controller.get(f"/plans/{plan['id']}/timeline")
            made = controller.get(f"/plans/{plan['id']}")["plan"]
            assert timeline["rule"] == made["rule"]
            window = timeline["window"]
            buckets = {transfer[2] for transfer in window["transfers"]}
            assert buckets == set(range(len(made["buckets"]))), plan
            steps = window["span_ns"] / window["n_iterations"]
            assert abs(steps / timeline["report"]["step_ns"] - 1) < 0.05, plan
        agent.finish()
        controller.restart()  # the profile that was solved is what there is now
        assert controller.get(f"/plans/{plans[0]['id']}/timeline")["rule"] == "averaged"
        for path in ("/plans/i1.99/timeline", "/plans/i9.1/timeline", "/plans/x/timeline"):
            assert controller.ask("GET", API + path).status == 404, path


CASES = (a_job_is_sent_at_once_and_when_it_changes, streams_end_with_their_job_and_their_token,
         there_is_room_for_so_many_and_again_when_they_go, every_pushed_plan_is_drawn)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
