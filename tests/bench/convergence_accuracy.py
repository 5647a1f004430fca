"""Part of tests/bench/convergence: exact against plans that the controller chooses, three tasks.

Tasks, training and gaps are those of tests/bench/accuracy; a perceptron is added. Which plan a job
gets depends on its network, so all are measured that the default limits allow.
"""
import math
import os
import statistics
import sys
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parents[2]
PLANS = (("exact", 1, 0), ("lookahead", 1, 1), ("averaged", 1, 1), ("averaged", 2, 1),
         ("averaged", 3, 1))
QUICK_PLANS = (PLANS[0], PLANS[3])
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
    accuracy.PLANS = QUICK_PLANS if quick else PLANS
    found = accuracy.measure(tasks, seeds)
    made = accuracy.gaps(found, tasks)
    return [{"task": task.name, "unit": task.unit, "optimizer": optimizer, "plan": list(plan),
             "values": found[task.name, optimizer, plan],
             "gap_sd": made[task.name, optimizer, plan]}
            for task in tasks for optimizer in task.optimizers for plan in accuracy.PLANS]


def diverged(row):
    return not all(math.isfinite(value) for value in row["values"])


def summary(rows):
    """The largest gap, where exact itself trains. None when a plan alone diverges."""
    lost = {(row["task"], row["optimizer"]) for row in rows
            if row["plan"][0] == "exact" and diverged(row)}
    gaps = [row["gap_sd"] for row in rows
            if row["plan"][0] != "exact" and (row["task"], row["optimizer"]) not in lost]
    return {"accuracy_gap_sd": max(gaps) if gaps and all(map(math.isfinite, gaps)) else None}


def texts(rows):
    columns = list(dict.fromkeys((row["task"], row["optimizer"]) for row in rows))
    units = dict((row["task"], row["unit"]) for row in rows)
    lines = []
    for plan in dict.fromkeys(tuple(row["plan"]) for row in rows):
        line = [f"{plan[0]}, k = {plan[1]}, τ = {plan[2]}"]
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
