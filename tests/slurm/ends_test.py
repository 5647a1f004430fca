#!/usr/bin/env python3
"""Steps that end in every way: nothing stays behind, no node is lost, exit statuses are untouched.

Ways come in turn, with and without the plug-in side by side for the exit status. Reports of steps
that end in order must be complete.
"""
import argparse
import re
from pathlib import Path

import cluster as slurm

ITERATIONS = 200
ENDLESS = 100_000_000
# Where ranks meet without the plug-in, whose own variables win over these.
MEET = {"MASTER_ADDR": "10.77.0.1", "DEFT_LINKS": "gloo:link0"}
HELD_S = 20 * slurm.DEADLINE_S / 60  # KillWait, the grace, and a slow machine


def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Ends:
    """One method per way; each returns the step's exit status with (`flag`) or without us."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.n = len(cluster.names)
        self.nodes = f"-N{self.n}"
        self.rank = cluster.build / "tests" / "run_rank"
        self.n_flushed = 0

    def job_of(self, output):
        match = re.search(r"deft: job (\S+): ", output)
        check(match, f"the line of the step is missing in: {output}")
        return match.group(1)

    def begin(self, flag, *arguments):
        """A step that trains without end, once its ranks have begun."""
        step = self.cluster.begin("srun", "-u", self.nodes, *flag, *arguments, env=MEET)
        n_ranks = 0
        text = ""
        while n_ranks < self.n:
            line = step.stdout.readline()
            check(line, f"the step ended before its ranks began: {text}")
            text += line
            n_ranks += "ready" in line
        if flag:
            self.await_reports(self.job_of(text))
        return step, text

    def await_reports(self, job):
        slurm.await_true(f"iterations of job {job}", lambda: (
            self.cluster.get(f"/jobs/{job}") or {}).get("iterations", 0) > 0)

    def finish(self, step, held_s=HELD_S):
        """Its status. The output's end is awaited, since that is what users wait for."""
        step.communicate(timeout=held_s)
        self.cluster.running.remove(step)
        return step.returncode

    # --- ways -----------------------------------------------------------------------------------

    def normal(self, flag):
        done = self.cluster.slurm("srun", self.nodes, *flag, self.rank, ITERATIONS, check=False,
                                  env=MEET)
        if flag:
            job = self.cluster.get(f"/jobs/{self.job_of(done.stderr)}")
            check(job and job["iterations"] == ITERATIONS,
                  f"{job and job['iterations']} of {ITERATIONS} iterations were reported")
            self.n_flushed += 1
        return done.returncode

    def exit_3(self, flag):
        done = self.cluster.slurm("srun", self.nodes, *flag, "sh", "-c", f"{self.rank} 20; exit 3",
                                  check=False, env=MEET)
        return done.returncode

    def part_of_the_nodes(self, flag):
        done = self.cluster.slurm("salloc", self.nodes, "--ntasks-per-node=2", "srun", "-N1",
                                  "-n2", "-w", "n2", *flag, self.rank, "50", check=False,
                                  env={**MEET, "MASTER_ADDR": "127.0.0.1"})
        return done.returncode

    def scancel(self, flag):
        step, _ = self.begin(flag, self.rank, ENDLESS)
        self.cluster.slurm("scancel", "-u", "tester")
        return self.finish(step)

    def task_killed(self, flag):
        step, _ = self.begin(flag, self.rank, ENDLESS)
        self.cluster.kill(rf"^{self.rank}")
        return self.finish(step)

    def agent_killed(self, flag):
        """The program goes on; it is ended by a signal of ours."""
        step, _ = self.begin(flag, self.rank, ENDLESS)
        n = self.cluster.kill(r"/deft-agent ")
        check(n == (self.n if flag else 0), f"{n} agents were there")
        self.cluster.kill(rf"^{self.rank}", 15)
        return self.finish(step)

    def agent_stopped(self, flag):
        """A stuck agent costs its grace and no more."""
        step, _ = self.begin(flag, self.rank, ENDLESS)
        self.cluster.kill(r"/deft-agent ", 19)
        self.cluster.kill(rf"^{self.rank}", 15)
        return self.finish(step)

    def slurmstepd_killed(self, flag):
        step, _ = self.begin(flag, self.rank, ENDLESS)
        n = self.cluster.kill(r"^slurmstepd: \[\d+\.0\]")
        check(n == self.n, f"{n} slurmstepd were there")
        # With us or without, Slurm leaves such tasks alone, and its srun waits.
        slurm.await_true("the agents to end", lambda: not [
            line for line in self.cluster.leftovers().values() if "/deft-agent " in line])
        self.cluster.kill(rf"^{self.rank}")
        self.cluster.slurm("scancel", "-u", "tester")
        return self.finish(step)


    def time_limit(self, flag):
        """Limits are whole minutes, so this one is for long runs."""
        step, _ = self.begin(flag, "-t1", self.rank, ENDLESS)
        return self.finish(step, 180)


EXPECTED = {"normal": 0, "exit_3": 3, "part_of_the_nodes": 0}
WAYS = ("normal", "exit_3", "scancel", "task_killed", "agent_killed", "agent_stopped",
        "slurmstepd_killed", "part_of_the_nodes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--proctrack", default="linuxproc", choices=("linuxproc", "cgroup"))
    options = parser.parse_args()
    slurm.isolate()
    if options.proctrack == "cgroup" and not slurm.has_freezer():
        slurm.skip("there is no freezer of control groups, version 1, that can be written")
    run(options)


def run(options):
    with slurm.Cluster(options.build.resolve(), nodes=options.nodes,
                       proctrack=options.proctrack) as cluster:
        ends = Ends(cluster)
        ways = [WAYS[i % len(WAYS)] for i in range(options.steps)]
        if options.steps > 100:
            ways[-1] = "time_limit"
        plain = {way: getattr(ends, way)(()) for way in sorted(set(ways))}
        cluster.await_idle()
        for way, status in EXPECTED.items():
            check(plain.get(way, status) == status, f"{way} ends with {plain.get(way)} without us")
        for i, way in enumerate(ways):
            status = getattr(ends, way)(("--deft=auto",))
            cluster.await_nothing_left()
            cluster.await_idle()
            print(f"step {i + 1}: {way}: status {status}")
            check(status == plain[way],
                  f"{way}: exit status {status}, without the plug-in {plain[way]}")
        reasons = cluster.slurm("sinfo", "-R", "-h").stdout
        check(reasons == "", f"nodes were lost: {reasons}")
        print(f"{options.steps} steps, {ends.n_flushed} with all iterations reported")


if __name__ == "__main__":
    main()
