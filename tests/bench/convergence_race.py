"""Part of tests/bench/convergence: wall time to the loss that exact ends at, exact against auto.

Two hosts (network namespaces, one link) train the same samples from the same weights; the jobs
take turns, so that both see the same machine. scripts/hosts makes the hosts, jobs run as in
ddp_run.py.
usage inside hosts: convergence_race.py BUILD ITERATIONS SEED
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import ddp_run
import figures
import page

ROOT = Path(__file__).resolve().parents[2]
RATE_MBIT = 500
ITERATIONS = 5000  # some 200 of them run exact, which is little of the whole
TURN = 50  # iterations
SMOOTH = 64  # iterations that a loss is the mean of
PATIENCE = 2  # times exact's iterations, after which auto has not arrived
IN_HOSTS = '''set -euo pipefail
. "$1/scripts/hosts"
hosts_possible || exit 77
trap hosts_remove EXIT
hosts_create 2 "$2"
"${@:3}"'''


class Race(ddp_run.Bench):
    def worker(self, variant):
        return [str(ROOT / "scripts" / "in-host"), ddp_run.PYTHON,
                str(ROOT / "tests" / "bench" / "convergence_worker.py"), variant,
                str(self.folder)]


class Lane:
    """One job: its losses, smoothed, and the time its steps took."""

    def __init__(self, job):
        self.job, self.losses, self.steps, self.rules = job, [], [], []

    def turn(self):
        self.job.run(TURN)
        said = self.job.said
        self.losses += [statistics.mean(pair) for pair in zip(*(s["losses"] for s in said))]
        self.steps += [max(pair) for pair in zip(*(s["times"] for s in said))]
        self.rules.append(said[0]["rule"])

    def smoothed(self):
        return [statistics.mean(self.losses[i - SMOOTH:i])
                for i in range(SMOOTH, len(self.losses) + 1)]

    def time_to(self, target):
        """Seconds until the smoothed loss is down to the target, or None."""
        for i, loss in enumerate(self.smoothed()):
            if loss <= target:
                return sum(self.steps[:i + SMOOTH])
        return None

    def usual_rule(self):
        """Of most turns."""
        return statistics.mode(self.rules)

    def settled_step(self):
        """Median over the turns of the last third that ended with the usual rule; of each the
        mean, since a plan that merges has long and short steps in turn."""
        return statistics.median(
            statistics.mean(self.steps[i * TURN + ddp_run.DROPPED:(i + 1) * TURN])
            for i in range(len(self.rules) * 2 // 3, len(self.rules))
            if self.rules[i] == self.usual_rule())


def race(build, iterations, seed):
    options = Namespace(build=build, world=2, links=1, rate=RATE_MBIT, max_merge=3)
    with tempfile.TemporaryDirectory() as folder:
        bench = Race(options, Path(folder))
        bench.env["BENCH_SEED"] = str(seed)
        with bench.controller():
            exact, auto = (Lane(bench.start(variant)) for variant in ("exact", "auto"))
            while len(exact.losses) < iterations:
                exact.turn()
                auto.turn()
            target = exact.smoothed()[-1]
            while auto.time_to(target) is None and len(auto.losses) < PATIENCE * iterations:
                auto.turn()
            for lane in (exact, auto):
                lane.job.end()
    wall, tuned = sum(exact.steps), auto.time_to(target)
    gain = exact.settled_step() / auto.settled_step()
    return {"seed": seed, "iterations": iterations, "target": target, "exact_s": wall,
            "auto_s": tuned, "step_gain": gain, "rule": auto.usual_rule(), "rules": auto.rules,
            "time_gain": wall / tuned if tuned else None,
            "share": wall / tuned / gain if tuned else None,
            "curves": {name: [lane.steps, lane.losses]
                       for name, lane in (("exact", exact), ("auto", auto))}}


def measure(build, quick):
    found = []
    for seed in range(1, 2 if quick else 4):
        command = ["bash", "-c", IN_HOSTS, "race", str(ROOT), str(RATE_MBIT), ddp_run.PYTHON,
                   __file__, str(build), str(300 if quick else ITERATIONS), str(seed)]
        if os.geteuid() != 0:
            command = ["unshare", "-Ur", *command]
        done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              check=False)
        if done.returncode == 77:
            print("convergence: network namespaces cannot be made here, so there is no race",
                  file=sys.stderr)
            return None
        if done.returncode != 0:
            sys.exit("convergence: the race has failed")
        found.append(json.loads(done.stdout))
    return found


def summary(found):
    shares = [row["share"] for row in found]
    return {"time_to_loss_gain": statistics.median(shares) if all(shares) else None}


def texts(found):
    lines = [[row["seed"], row["iterations"], f"{row['target']:.4f}", f"{row['exact_s']:.1f}",
              f"{row['auto_s']:.1f}" if row["auto_s"] else "not reached",
              f"{row['time_gain']:.2f}" if row["auto_s"] else "", f"{row['step_gain']:.2f}",
              f"{row['share']:.2f}" if row["auto_s"] else "", row["rule"]] for row in found]
    return {"race": page.table(
        ["seed", "iterations", "exact's last loss", "exact, s", "auto, s", "gain in time",
         "gain in step", "time / step", "rule"], lines, 0)}


def draw(found):
    figure, (axis,) = figures.panels(1)
    for name, colour in (("exact", figures.ORANGE), ("auto", figures.BLUE)):
        steps, losses = found[0]["curves"][name]
        times = [sum(steps[:i]) for i in range(SMOOTH, len(losses) + 1, 8)]
        means = [statistics.mean(losses[i - SMOOTH:i]) for i in range(SMOOTH, len(losses) + 1, 8)]
        axis.plot(times, means, color=colour)
        figures.name(axis, times[-1], means[-1], name, colour)
    axis.axhline(found[0]["target"], color=figures.INK, lw=1, ls=":")
    axis.set(xlabel="wall time of training, s", ylabel=f"loss, mean of {SMOOTH} iterations",
             yscale="log")
    axis.margins(x=0.08)
    figures.write(figure, "convergence-race")


if __name__ == "__main__":
    print(json.dumps(race(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3]))))
