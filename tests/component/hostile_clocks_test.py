#!/usr/bin/env python3
"""Clocks that step, of clients and of the controller's own machine (by libfaketime): nothing that
was acknowledged is lost, nothing counts twice, no plan changes, and nothing goes for its age.

usage: hostile_clocks_test.py DEFT_CONTROLLER [CASE]
"""

import glob
import os
import random
import sqlite3
import sys
import time

import rest_controller
from rest_controller import API, SEED, Agent, Controller, registration

HOUR_NS = 3600 * 10**9
STEPS = ("-3600", "+3600", "+0", "@1970-01-01 00:00:10", "@2038-01-19 03:14:06", "+95000000", "+0")


def faketime(folder):
    """The environment under which a program's clock is what a file says; the file."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found or int(os.environ.get("DEFT_TEST_SLOWNESS", "1")) > 1:
        print("skipped: there is no libfaketime, or a sanitizer wants to be the first to be loaded")
        sys.exit(77)
    path = os.path.join(folder, "clock")
    return dict(os.environ, LD_PRELOAD=found[0], FAKETIME_TIMESTAMP_FILE=path,
                FAKETIME_NO_CACHE="1", FAKETIME_DONT_FAKE_MONOTONIC="1", TZ="UTC"), path


def set_clock(path, step):
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(step + "\n")
    os.rename(path + ".new", path)


def a_controller_whose_clock_steps_loses_nothing(program):
    with rest_controller.folder() as folder:
        environment, clock = faketime(folder)
        set_clock(clock, "+0")
        with Controller(program, folder=folder, environment=environment) as controller:
            agent = Agent(controller, "j")
            agent.run_to("committed", 600)
            plan = agent.view["plan"]
            years = set()
            for step in STEPS:
                set_clock(clock, step)
                agent.run(20)
                late = Agent(controller, f"late {step}", n_ranks=1)
                late.run(5)
                years.add(controller.get(late.path())["registered_at"][:4])
                points = controller.get(agent.path("/iterations?points=10000"))["points"]
                assert sum(p["n_iterations"] for p in points) == agent.iteration
                assert sum(p["updates"] for p in points) == agent.iteration
                job = controller.get("/jobs/j")
                assert (job["state"], job["plan"]) == ("running", plan), job
                assert job["iterations"] == agent.iteration, job
                assert controller.is_well()
            assert {"1970", "2038"} <= years, f"its clock did not step: {years}"
            ids = [controller.get(f"/jobs/{name}")["incarnation"] for name in
                   (f"late%20{step.replace('+', '%2B').replace(' ', '%20')}" for step in STEPS[:3])]
            assert ids == sorted(ids, key=lambda i: int(i[1:])), ids
            # Also over a restart under a clock of the past.
            set_clock(clock, "@1970-01-01 00:01:00")
            controller.restart()
            agent.run(20)
            points = controller.get(agent.path("/iterations?points=10000"))["points"]
            assert sum(p["n_iterations"] for p in points) == agent.iteration
            assert agent.view["plan"] == plan, agent.view


def clients_clocks_order_nothing(program):
    """Whatever clocks say, in any order: what came later is newer, and nothing else differs."""
    dice = random.Random(SEED)
    now = time.time_ns()
    clocks = [now - HOUR_NS, now + HOUR_NS, 0, 1, 2**31 * 10**9, 2**63 - 1, 2**63, 2**64 - 1,
              now - 400 * 24 * HOUR_NS, now]
    with Controller(program) as controller:
        agents = []
        for i in range(40):
            clock = dice.choice(clocks) if i >= len(clocks) else clocks[i]
            agents.append(Agent(controller, f"j{i}", started_ns=str(clock), n_ranks=1))
            agents[-1].report(iterations=agents[-1].rows(5))
            # The same job once more, by a clock that has stepped.
            agents.append(Agent(controller, f"j{i}", key="start-2", n_ranks=1,
                                started_ns=str(dice.choice(clocks))))
        listed = controller.get("/jobs?limit=1000")["jobs"]
        assert [job["id"] for job in listed] == [f"j{i}" for i in range(39, -1, -1)]
        earliest = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
        for i, job in enumerate(reversed(listed)):
            assert job["incarnation"] == agents[2 * i + 1].id, job
            starts = [controller.get(agents[k].path())["registered_at"] for k in (2 * i, 2 * i + 1)]
            assert earliest <= starts[0] <= starts[1], starts
        for wrong in ("-1", "1e9", "", "18446744073709551616", "now", " 1"):
            controller.expect(400, "POST", API + "/jobs/x/incarnations",
                              registration(started_ns=wrong))
        controller.restart()
        again = controller.get("/jobs?limit=1000")["jobs"]
        assert [job["id"] for job in again] == [job["id"] for job in listed]
        controller.end()
        rows = sqlite3.connect(controller.db).execute(
            "SELECT registration ->> 'started_ns' FROM incarnations").fetchall()
        assert len(rows) == 80
        for (text,) in rows:  # kept within what can be
            assert now - 367 * 24 * HOUR_NS <= int(text) <= time.time_ns(), text
        controller.launch()


CASES = (a_controller_whose_clock_steps_loses_nothing, clients_clocks_order_nothing)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
