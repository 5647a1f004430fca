"""A controller with jobs of every kind, filled as agents fill it, for pages that show them."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "component"))
# pylint: disable=wrong-import-position
from rest_controller import API, Agent, Controller, job_path, registration  # noqa: E402

HOSTILE = '</script><img src=x onerror=alert(1)> "\'& =1+1 \u202e\U0001f600 a/b?c#d%41'
OPTIONS = ("--guard", "100000")  # plans are committed within hundreds of iterations


class Switching(Agent):
    """Tells when its ranks have taken a plan up, as real ones do."""

    def switch(self):
        super().switch()
        self.report(events=[{"rank": rank, "kind": "switched", "plan_seq": self.plan_seq,
                             "iteration": self.iteration} for rank in range(self.n_ranks)])


def send_ops(agent):
    """All-reduces of three sizes, as a link with 200 us and 120 MB/s has them."""
    rows = []
    for size in (1 << 14, 1 << 20, 1 << 23):
        ns = 200000 + size * 8
        rows.append([0, 0, size, 40, int(ns * 0.8), ns, int(ns * 1.6)])
    agent.report(ops=rows)


def tuned(controller, name="bert-large-pretraining"):
    """Committed, then silent for 200 iterations: a gap."""
    agent = Switching(controller, name, key="tuned")
    agent.run_to("committed", 600)
    send_ops(agent)
    agent.run(60)
    agent.iteration += 200
    agent.run(60)
    return agent


def stepped_back(controller):
    """Its plan is slower than predicted, so it is left."""
    agent = Switching(controller, "gpt2-xl-too-slow", stretch=2.2, key="slow", n_ranks=4)
    for _ in range(120):
        agent.run(agent.BATCH)
        if any(d["kind"] == "rollback" for d in agent.decisions()):
            break
    agent.run(20)
    return agent


def observed(controller):
    """Left alone: what a plan would gain is on the table."""
    agent = Agent(controller, "resnet-observed", key="observed", mode="observe")
    for _ in range(60):
        agent.run(agent.BATCH)
        if (agent.look()["predicted_gain"] or 0) > 1:
            break
    return agent


def fill(controller):
    """The jobs by what they are for; all are there when it returns."""
    world = {"tuned": tuned(controller), "back": stepped_back(controller),
             "observed": observed(controller), "hostile": Agent(controller, HOSTILE, key="h")}
    world["hostile"].run(30)
    world["one"] = Agent(controller, "one-sample", key="one")
    world["one"].report(iterations=world["one"].rows(1))
    world["none"] = Agent(controller, "nothing-yet", key="none")
    world["ended"] = Agent(controller, "vgg-finished", key="ended", user="somebody-else")
    world["ended"].run(40)
    world["ended"].finish()
    return world


def names(world):
    return {key: agent.job for key, agent in world.items()}


def many(controller, n):
    """So many jobs, registered and no more."""
    for i in range(n):
        controller.expect(201, "POST", API + job_path(f"job-{i:05}") + "/incarnations",
                          registration(key=f"many-{i}", n_ranks=1))


__all__ = ["API", "Agent", "Controller", "HOSTILE", "OPTIONS", "fill", "job_path", "many", "names"]
