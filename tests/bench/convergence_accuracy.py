"""Part of tests/bench/convergence: exact against plans that the controller chooses, three tasks.

Tasks, plans, training and gaps are those of tests/bench/accuracy; a perceptron is added. Results
are kept in the build folder as they come, and a run that was interrupted goes on from there.
"""
import math
import os
import statistics
import sys
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parents[2]
QUICK_IMAGES = 20_000


def perceptron(accuracy):
    class Mlp(accuracy.Cnn):
        """Fashion-MNIST, perceptron 784-256-256-10; higher is better."""
        name = "mlp"

        def model(self):
            from torch import nn
            return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(),
                                 nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return Mlp


def measure(build, quick, accuracy):
    import logging
    sys.path[:0] = [str(ROOT / "agent" / "python"), str(ROOT / "tests" / "python")]
    os.environ.setdefault("DEFT_LIBRARY", str(build / "lib" / "libdeft.so.0"))
    logging.getLogger("deft").setLevel(logging.ERROR)
    tasks = [made(quick) for made in (perceptron(accuracy), accuracy.Cnn, accuracy.Text)]
    for task in tasks[:2]:
        if quick:
            task.train = tuple(part[:QUICK_IMAGES] for part in task.train)
    seeds = 2 if quick else 5
    plans = accuracy.QUICK_PLANS if quick else accuracy.PLANS
    accuracy.PLANS = tuple(plan for plan in plans
                           if plan.rule != "delayed" and plan.lr_rule == "noise")
    state = accuracy.State(build / f"convergence-accuracy{'-quick' if quick else ''}.state", quick)
    found = accuracy.measure(tasks, seeds, 2, state)
    made = accuracy.gaps(found, tasks)
    return [{"task": task.name, "unit": task.unit, "optimizer": optimizer,
             "plan": list(plan), "waits": plan.waits,
             "words": f"{plan.words()}, k = {plan.merge}, τ = {plan.delay}",
             "values": found[task.name, optimizer, plan],
             "gap_sd": made[task.name, optimizer, plan]}
            for task in tasks for optimizer in task.optimizers for plan in accuracy.PLANS]


def diverged(row):
    return not all(math.isfinite(value) for value in row["values"])


def is_chosen(row):
    """What a tuned job gets: nothing before the rate has risen, no lookahead under momentum."""
    return row["waits"] and not (row["plan"][0] == "lookahead" and "momentum" in row["optimizer"])


def summary(rows):
    """The largest gap of a tuned job, where exact itself trains; None when one diverges."""
    lost = {(row["task"], row["optimizer"]) for row in rows
            if row["plan"][0] == "exact" and diverged(row)}
    gaps = [row["gap_sd"] for row in rows
            if is_chosen(row) and (row["task"], row["optimizer"]) not in lost]
    return {"accuracy_gap_sd": max(gaps) if gaps and all(map(math.isfinite, gaps)) else None}


def texts(rows):
    columns = list(dict.fromkeys((row["task"], row["optimizer"]) for row in rows))
    units = dict((row["task"], row["unit"]) for row in rows)
    lines = []
    for plan in dict.fromkeys(tuple(row["plan"]) for row in rows):
        line = [next(row["words"] for row in rows if tuple(row["plan"]) == plan)]
        for task, optimizer in columns:
            row = next(r for r in rows if tuple(r["plan"]) == plan
                       and (r["task"], r["optimizer"]) == (task, optimizer))
            line.append("diverged" if not math.isfinite(row["gap_sd"]) else
                        f"{statistics.mean(row['values']):.3f} ({row['gap_sd']:+.1f})")
        lines.append(line)
    head = "; ".join(f"{task}: {unit}" for task, unit in units.items())
    n = len(rows[0]["values"])
    return {"tasks": f"Mean over {n} seeds, and by how many standard deviations of exact it is "
                     f"worse. {head}.\n\n"
                     + page.table(["plan", *(f"{t}, {o}" for t, o in columns)], lines, 1)}


def draw(rows):
    """The table says it all."""
