#!/usr/bin/env python3
"""Agents and ranks that are not who, where or when they should be, at a real controller.

usage: hostile_ranks_test.py DEFT_CONTROLLER [CASE]
"""

import sys

import rest_controller
from rest_controller import API, Agent, Controller, await_true, job_path, registration


def await_state(controller, agent, state):
    await_true(lambda: controller.get(agent.path())["state"] == state)


def iterations_of(controller, agent):
    """(how many there are, how many updates they made)"""
    points = controller.get(agent.path("/iterations?points=10000"))["points"]
    return sum(p["n_iterations"] for p in points), sum(p["updates"] for p in points)


# --- identity -------------------------------------------------------------------------------------


def two_agents_of_one_identity_count_once(program):
    with Controller(program) as controller:
        first = Agent(controller, "j", n_ranks=2)
        second = Agent(controller, "j", n_ranks=2)
        assert first.id == second.id and second.seq == 0
        for agent in (first, second) * 10:
            agent.report(iterations=agent.rows(5))
        assert iterations_of(controller, first) == (50, 50)
        assert len(controller.get(first.path())["agents"]) == 1
        # Who registers anew goes on behind what is there.
        third = Agent(controller, "j", n_ranks=2)
        assert third.seq == 10
        third.iteration = 50
        third.report(iterations=third.rows(5))
        assert iterations_of(controller, first) == (55, 55)
        assert controller.is_well()


def a_rank_that_comes_twice_counts_once(program):
    with Controller(program) as controller:
        one = Agent(controller, "j", agent="host-1", n_ranks=2, ranks=[0, 1])
        two = Agent(controller, "j", agent="host-2", n_ranks=2, ranks=[1, 1])
        one.report(iterations=one.rows(10))
        two.report(iterations=two.rows(10))
        rows = one.rows(1)
        one.report(iterations=rows + rows + rows)
        assert iterations_of(controller, one) == (11, 11)
        one.report(events=[{"rank": 1, "kind": "finished"}] * 3)
        two.report(events=[{"rank": 1, "kind": "failed"}])
        job = controller.get("/jobs/j")
        assert job["state"] == "running", job  # rank 0 has not ended


def ranks_beyond_the_world_are_refused(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=2)
        for rank in (2, 3, 65535, 4294967295):
            for content in ({"iterations": [[rank, 0, 0, 1, 1, 1, 1, 1, 9]]},
                            {"ops": [[rank, 0, 4096, 1, 1, 1, 1]]},
                            {"events": [{"rank": rank, "kind": "finished"}]},
                            {"readiness": [{"rank": rank, "iteration": 0, "offsets_ns": [1] * 8}]}):
                agent.report(status=400, **content)
        agent.report(status=400, ops=[[0, 1, 4096, 1, 1, 1, 1]])  # a link beyond the last
        agent.report(status=400, readiness=[{"rank": 0, "iteration": 0, "offsets_ns": [1] * 9}])
        assert iterations_of(controller, agent) == (0, 0)
        assert controller.get("/jobs/j")["state"] == "running"
        for ranks in ([2], [0, 7], [65535]):
            reply = controller.ask("POST", API + "/jobs/k/incarnations", registration(ranks=ranks))
            assert reply.status == 400, f"{ranks}: {reply.status} {reply.text}"


def worlds_that_disagree_are_told_apart(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=2)
        path = API + "/jobs/j/incarnations"
        for change, field in (({"n_ranks": 4, "ranks": [2, 3]}, "n_ranks"),
                              ({"table_hash": "9" * 16}, "table_hash")):
            reply = controller.expect(409, "POST", path, registration(agent="host-2", **change))
            assert reply.json["field"] == field, reply.text
        assert len(controller.get(agent.path())["agents"]) == 1
        agent.report(iterations=agent.rows(5))
        assert iterations_of(controller, agent) == (5, 5)


def a_rank_that_restarts_at_step_0_changes_nothing(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        agent.run_to("committed", 600)
        before = iterations_of(controller, agent)
        plan, end = agent.view["plan"], agent.iteration
        agent.iteration = 0
        agent.report(iterations=[row for row in agent.rows(20) if row[0] == 1])
        assert iterations_of(controller, agent) == before
        agent.iteration = end
        agent.run(40)
        assert agent.view["plan"] == plan and agent.view["phase"] == "committed", agent.view
        assert iterations_of(controller, agent)[0] == before[0] + 40


def a_job_id_that_is_used_again_is_another_start(program):
    """As after a reset of Slurm: the same number, other tensors, another user."""
    with Controller(program) as controller:
        old = Agent(controller, "4711", key="2026-01-01", user="alice")
        old.run_to("committed", 600)
        new = Agent(controller, "4711", key="2026-02-01", user="bob", table_hash="8" * 16,
                    tensors=registration()["tensors"][:2])
        assert new.id != old.id
        job = new.look()
        assert job["user"] == "bob" and job["incarnation"] == new.id and job["plan"] == "", job
        await_state(controller, old, "lost")
        assert new.look()["state"] == "running"
        new.run_to("committed", 600)
        first = [d for d in new.decisions() if d["kind"] == "push"][0]
        assert "did well" not in first["reason"], first  # nothing of alice's
        controller.restart()
        job = new.look()
        assert job["incarnation"] == new.id and job["user"] == "bob", job
        assert len(controller.get(old.path("/plans"))["plans"]) > 0  # its story stays


# --- who is missing -------------------------------------------------------------------------------


class Pair(Agent):
    """Two agents with a rank each; `both` tells whether the second one reports, too."""

    def __init__(self, controller, job):
        super().__init__(controller, job, agent="host-1", ranks=[0])
        self.other = registration(agent="host-2", ranks=[1])
        self.other_seq = 0
        self.both = True
        self.register_other()

    def register_other(self):
        reply = self.controller.expect(201, "POST", API + job_path(self.job) + "/incarnations",
                                       self.other)
        assert reply.json["incarnation"] == self.id
        self.other_seq = reply.json["committed_seq"]

    def report(self, status=200, **content):
        rows = content.pop("iterations", None)
        if rows is None:
            return super().report(status, **content)
        if self.both:
            self.other_seq += 1
            self.controller.expect(200, "POST", API + self.path("/reports"), {
                "agent": "host-2", "seq": self.other_seq,
                "iterations": [row for row in rows if row[0] == 1]})
        return super().report(status, iterations=[row for row in rows if row[0] == 0], **content)


def who_registers_again_changes_nothing_for_the_others(program):
    with Controller(program) as controller:
        pair = Pair(controller, "j")
        pair.run_to("committed", 600)
        before = pair.view
        for _ in range(3):
            pair.register_other()
            after = pair.look()
            for member in ("plan", "plan_seq", "phase", "n_switches", "incarnation", "state"):
                assert after[member] == before[member], member
        pair.run(40)
        assert pair.view["plan"] == before["plan"], pair.view
        assert pair.view["n_switches"] == before["n_switches"], pair.decisions()


def who_falls_silent_does_not_freeze_the_plan(program):
    """The others are judged without it in the end, and with it again when it is back."""
    with Controller(program) as controller:
        pair = Pair(controller, "j")
        pair.run_to("committed", 600)
        pair.both = False
        pair.BATCH = 100
        pair.run(600)
        assert pair.view["phase"] == "committed", pair.view
        pair.step_ns = pair.COMPUTE_NS + 2 * pair.EXPOSED_NS  # worse than exact was
        end = pair.iteration + 6000
        while pair.view["plan_seq"] == pair.plan_seq and pair.view["phase"] == "committed":
            assert pair.iteration < end, f"still {pair.view['phase']}: {pair.view['decision']}"
            pair.run(100)
        pair.both = True
        pair.register_other()
        pair.run(50)
        assert controller.is_well()


def who_has_nothing_to_say_is_heard_of(program):
    """As from the agent of ranks that evaluate."""
    with Controller(program) as controller:
        agent = Agent(controller, "j")
        agent.run(10)
        before, counts = agent.look(), iterations_of(controller, agent)
        for _ in range(1000):
            agent.report()
            if agent.look()["updated_at"] > before["updated_at"]:
                break
        else:
            raise AssertionError(agent.view)
        assert iterations_of(controller, agent) == counts
        assert agent.view["state"] == "running", agent.view


def half_the_ranks_gone_for_good_is_a_lost_or_failed_job(program):
    with Controller(program) as controller:
        agent = Agent(controller, "j", n_ranks=4)
        agent.run(10)
        agent.report(events=[{"rank": r, "kind": "failed", "text": "peer lost"} for r in (2, 3)])
        assert controller.get(agent.path())["state"] == "running"
        agent.report(events=[{"rank": r, "kind": "finished"} for r in (0, 1)])
        await_state(controller, agent, "failed")
        # What comes late is still taken.
        agent.report(iterations=agent.rows(5))
        assert iterations_of(controller, agent) == (15, 15)


CASES = (two_agents_of_one_identity_count_once, a_rank_that_comes_twice_counts_once,
         ranks_beyond_the_world_are_refused, worlds_that_disagree_are_told_apart,
         a_rank_that_restarts_at_step_0_changes_nothing,
         a_job_id_that_is_used_again_is_another_start,
         who_registers_again_changes_nothing_for_the_others,
         who_falls_silent_does_not_freeze_the_plan,
         who_has_nothing_to_say_is_heard_of,
         half_the_ranks_gone_for_good_is_a_lost_or_failed_job)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
