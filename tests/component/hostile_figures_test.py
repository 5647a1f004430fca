#!/usr/bin/env python3
"""Figures that no sound job has: the controller takes them or refuses them with a sentence, makes
plans of what is sound in them, and goes on.

usage: hostile_figures_test.py DEFT_CONTROLLER [CASE]
"""

import sys

import rest_controller
from rest_controller import API, Agent, Controller


def all_reduces_of_no_time_and_longer_than_the_step(program):
    with Controller(program) as controller:
        for job, times in (("zero", (0, 0, 0)), ("long", (10**12, 10**12, 10**15)),
                           ("mixed", (0, 5, 10**12)), ("backwards", (9, 5, 1))):
            agent = Agent(controller, job)
            for _ in range(40):
                agent.report(ops=[[rank, 0, 4 << 20, 8, *times] for rank in (0, 1)])
                agent.run(5)
            assert agent.view["phase"] != "", agent.view
            profile = controller.get(agent.path("/profile"))
            for link in profile["links"]:
                assert all(ns > 0 for _, ns in link.get("samples", [[1, 1]])), link
            controller.expect(200, "POST", API + "/simulate", profile)
        assert controller.is_well()


def readiness_beyond_the_stage(program):
    with Controller(program) as controller:
        for job, offsets in (("late", [10**12] * 8), ("zero", [0] * 8),
                             ("falling", range(8, 0, -1)), ("huge", [10**15] * 8)):
            agent = Agent(controller, job)
            agent.run(60)
            agent.report(readiness=[{"rank": 0, "iteration": 50, "offsets_ns": list(offsets)}])
            agent.run(150)
            controller.expect(200, "POST", API + "/simulate",
                              controller.get(agent.path("/profile")))
        assert controller.is_well()


def ten_thousand_tensors_are_a_job(program):
    tensors = [{"name": f"t{i}", "elements": 1000 + i, "dtype": "f32"} for i in range(10000)]
    with Controller(program) as controller:
        agent = Agent(controller, "wide", tensors=tensors)
        agent.report(readiness=[{"rank": r, "iteration": 0, "offsets_ns": list(range(10000))}
                                for r in (0, 1)])
        agent.report(ops=[[0, 0, 4000 + i, 1, 100, 200, 300] for i in range(10000)])
        agent.run(160)
        assert agent.view["decision"] != "", agent.view
        profile = controller.get(agent.path("/profile"))
        assert len(profile["tensors"]) == 10000
        controller.expect(200, "POST", API + "/simulate", profile)
        assert controller.is_well()


def stragglers_ten_times_slower(program):
    """The slowest rank is the step; one that becomes slow is no reason to keep a plan."""
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=4)
        rows = agent.rows

        def slowed(n):
            made = rows(n)
            for row in made:
                if row[0] == 3:
                    row[3:9] = [10 * ns for ns in row[3:9]]
            return made

        agent.rows = slowed
        agent.run(160)
        point = controller.get(agent.path("/iterations?points=1"))["points"][0]
        assert point["step_ns"] >= 9 * agent.step_ns, point
        assert agent.view["exact_step_ns"] >= 9 * agent.step_ns, agent.view
        profile = controller.get(agent.path("/profile"))
        assert profile["compute"]["backward_ns"] >= 9 * 120000000, profile["compute"]
        assert controller.is_well()


def steps_of_no_time_and_of_ages(program):
    with Controller(program) as controller:
        for job, step in (("zero", 0), ("tiny", 1), ("ages", 10**15)):
            agent = Agent(controller, job)
            agent.step_ns = step
            rows = agent.rows

            def made(n, rows=rows, step=step):
                out = rows(n)
                for row in out:
                    row[3:8] = [min(step, ns) for ns in row[3:8]]
                    row[8] = step
                return out

            agent.rows = made
            agent.run(160)
            assert agent.view["state"] == "running"
            assert controller.get("/jobs/" + job)["gain"] is None or agent.view["gain"] >= 0
        assert controller.is_well()


CASES = (all_reduces_of_no_time_and_longer_than_the_step, readiness_beyond_the_stage,
         ten_thousand_tensors_are_a_job, stragglers_ten_times_slower, steps_of_no_time_and_of_ages)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
