"""Part of tests/bench/convergence: the guard, on jobs that are fine and on jobs that diverge.

The decisions are made by the controller's tuner and the ranks' fuse (guard.c), with the delays
that they have on the way; the jobs are noisy quadratics in convergence_facts, and a perceptron on
Fashion-MNIST here, whose two ranks live in one process. The tuner is told that the plan is worth
it, so that it is tried whatever quantification thinks.
"""
import copy
import math
import subprocess

import torch

import figures
import page
from convergence_synthetic import ask

MOMENTUM = 0.9
N_RANKS, BATCH, HIDDEN = 2, 64, 64
WARM, WARM_RATE = 300, 0.05
N_TEST = 1000
MOST = 1200  # iterations of a job that the guard does not stop
AFTERMATH = 60
TYPICAL = 0.05
SMOOTH = 8


class Perceptron:
    """Two ranks under SGD with momentum, exact or delayed by one boundary, or averaged."""

    def __init__(self, data, seed):
        torch.manual_seed(seed)
        self.images, self.labels = data
        model = torch.nn.Sequential(torch.nn.Linear(784, HIDDEN), torch.nn.ReLU(),
                                    torch.nn.Linear(HIDDEN, 10))
        self.weights = [[p.detach().clone() for p in model.parameters()] for _ in range(N_RANKS)]
        self.speeds = [[torch.zeros_like(w) for w in self.weights[0]] for _ in range(N_RANKS)]
        self.changes = None  # of the generation that is in flight, averaged
        self.late = None     # the mean gradient that is in flight, delayed
        self.rule = "exact"
        self.generator = torch.Generator().manual_seed(seed)

    def copy(self):
        """Goes on as this one would."""
        twin = copy.copy(self)
        twin.weights = [[w.detach().clone() for w in own] for own in self.weights]
        twin.speeds = [[v.clone() for v in own] for own in self.speeds]
        twin.generator = torch.Generator()
        twin.generator.set_state(self.generator.get_state())
        return twin

    def loss_at(self, weights, rows):
        functional = torch.nn.functional
        hidden = functional.relu(functional.linear(self.images[rows], *weights[:2]))
        return functional.cross_entropy(functional.linear(hidden, *weights[2:]), self.labels[rows])

    def test_loss(self):
        with torch.no_grad():
            rows = torch.arange(N_TEST)
            return sum(float(self.loss_at(w, rows)) for w in self.weights) / N_RANKS

    def step(self, rate):
        """One iteration: mean loss, q, Q."""
        gradients, losses = [], []
        for weights in self.weights:
            rows = torch.randint(N_TEST, len(self.labels), (BATCH,), generator=self.generator)
            own = [w.requires_grad_() for w in weights]
            loss = self.loss_at(own, rows)
            gradients.append(torch.autograd.grad(loss, own))
            losses.append(float(loss.detach()))
        mean = [sum(g) / N_RANKS for g in zip(*gradients)]
        with torch.no_grad():
            if self.rule == "averaged":
                self.step_averaged(gradients, rate)
            else:
                self.step_alike(mean, rate)
            square = [float(sum((g * g).sum() for g in part)) for part in (*gradients, mean)]
        return sum(losses) / N_RANKS, sum(square[:-1]) / N_RANKS, square[-1]

    def step_alike(self, mean, rate):
        used = mean
        if self.rule == "delayed":
            used, self.late = self.late, mean
        if used is None:
            return
        for weights, speeds in zip(self.weights, self.speeds):
            for weight, speed, gradient in zip(weights, speeds, used):
                speed.mul_(MOMENTUM).add_(gradient)
                weight.detach_().sub_(rate * speed)

    def step_averaged(self, gradients, rate):
        """k = 1, one boundary late."""
        landed, self.changes = self.changes, []
        for weights, speeds, own in zip(self.weights, self.speeds, gradients):
            for weight, speed, gradient in zip(weights, speeds, own):
                speed.mul_(MOMENTUM).add_(gradient)
                weight.detach_().sub_(rate * speed)
            self.changes.append([-rate * speed for speed in speeds])
        if landed is not None:
            self.land(landed)

    def land(self, changes):
        means = [sum(c) / N_RANKS for c in zip(*changes)]
        for weights, own in zip(self.weights, changes):
            for weight, mean, change in zip(weights, means, own):
                weight.detach_().add_(mean - change)

    def switch(self, rule, rate):
        """Drains first: what is in flight lands, states become their mean."""
        with torch.no_grad():
            if self.late is not None:
                self.rule, late, self.late = "exact", self.late, None
                self.step_alike(late, rate)
            if self.changes is not None:
                self.land(self.changes)
                self.changes = None
            for group in (self.weights, self.speeds):
                means = [(sum(parts) / N_RANKS).detach() for parts in zip(*group)]
                for index in range(N_RANKS):
                    group[index] = [mean.clone() for mean in means]
        self.rule = rule


def warm_job(data, seed):
    job = Perceptron(data, seed)
    for _ in range(WARM):
        job.step(WARM_RATE)
    return job


def stays(start, rate):
    """Whether exact at this rate is no worse off after a while."""
    job = start.copy()
    before = job.test_loss()
    for _ in range(150):
        loss, _, _ = job.step(rate)
        if not loss < 10 * before:
            return False
    return job.test_loss() < 1.25 * before


def edge(start):
    """Largest rate, within 5 %, at which exact stays."""
    low, high = WARM_RATE, 64 * WARM_RATE
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        if stays(start, middle):
            low = middle
        else:
            high = middle
    return low


class Watcher:
    """The tuner and the fuse in a process of their own."""

    def __init__(self, facts, rule):
        self.process = subprocess.Popen(
            [str(facts), "watch", rule, "1", "1", str(N_RANKS), str(MOMENTUM)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii")

    def say(self, loss, part, mean):
        """What the next iteration runs under, step-backs so far, by whom, progress, reason."""
        print(loss, part, mean, file=self.process.stdin, flush=True)
        what, n, by, progress, *reason = self.process.stdout.readline().split(" ", 4)
        return what, int(n), by, float(progress), "".join(reason).strip()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def watch(facts, start, rule, rate, most):
    """The job under the guard beside a twin under exact; traces begin with the plan."""
    job, twin, watcher = start.copy(), start.copy(), Watcher(facts, rule)
    trace, fired, what, n_plan, progress, before = [], None, "exact", 0, 0.0, 0
    by = reason = ""
    for t in range(most):
        loss, part, mean = job.step(rate)
        twin.step(rate)
        n_plan += what == "plan"
        old = what
        what, n_back, by, now, reason = watcher.say(loss, part, mean)
        if n_plan == 0:
            progress, before = now, t + 1
        if what != old:
            job.switch(rule if what == "plan" else "exact", rate)
        if n_plan:
            trace.append((job.test_loss(), twin.test_loss()))
        if n_back and fired is None:
            fired = t
        if fired is not None and what == "exact" and t > fired + AFTERMATH:
            break
    watcher.end()
    return {"rule": rule, "rate": rate, "trace": trace, "before": before,
            "stepped_back": fired is not None,
            "by": by if fired is not None else "", "plan_iterations": n_plan, "reason": reason,
            "progress": progress}


def excesses(run):
    """Loss over the twin's, both over SMOOTH iterations: twins go their own ways."""
    sums = [[sum(losses[i:i + SMOOTH]) for i in range(max(1, len(losses) - SMOOTH + 1))]
            for losses in zip(*run["trace"])]
    return [job / twin - 1 if math.isfinite(job) else math.inf for job, twin in zip(*sums)]


def unguarded(start, rule, rate, n, before):
    """Test losses of the same job when nobody watches: exact for `before` iterations first."""
    job, losses = start.copy(), []
    for _ in range(before):
        job.step(rate)
    job.switch(rule, rate)
    for _ in range(n):
        job.step(rate)
        losses.append(job.test_loss())
    return losses


def measure(facts, quick, load_images):
    quadratics = ask(facts, "guard", 50)
    images, labels = load_images("train")
    data = images.view(len(images), -1), labels
    start = warm_job(data, 1)
    limit = edge(start)
    runs = []
    for rule, rate in (("delayed", TYPICAL), ("delayed", 0.9 * limit), ("averaged", TYPICAL)):
        for seed in range(1 if quick else 5):
            runs.append(watch(facts, warm_job(data, seed + 1), rule, rate, MOST))
    shown = runs[0]
    alone = unguarded(start, shown["rule"], shown["rate"], len(shown["trace"]), shown["before"])
    return {"quadratics": quadratics, "perceptron": runs, "edge": limit, "unguarded": alone}


def summary(found):
    rows = found["quadratics"]
    fine = [run for run in found["perceptron"] if run["rule"] == "averaged"]
    return {
        "false_step_backs": max(row["stepped_back"] for row in rows
                                if row["kind"] == "stationary"),
        "false_step_backs_perceptron": sum(run["stepped_back"] for run in fine),
        "missed": sum(row["runs"] - row["stepped_back"] for row in rows
                      if row["kind"] == "diverging"),
    }


def texts(found):
    quiet = [[f"{r['rule']}, k = {r['merge']}, τ = {r['delay']}", r["runs"],
              f"{r['iterations']:,}", r["committed"], r["triples"], r["stepped_back"]]
             for r in found["quadratics"] if r["kind"] == "stationary"]
    wild = [[r["rule"], r["name"], f"{r['rate_curvature']:g}", f"{r['progress']:.2f}",
             f"{r['stepped_back']} of {r['runs']}", r["by_fuse"], f"{r['plan_iterations']:.0f}",
             percent(r["mean_excess"]), percent(r["worst_excess"]), f"{r['back_after']:.0f}"]
            for r in found["quadratics"] if r["kind"] == "diverging"]
    real = [[r["rule"], f"{r['rate']:.3f}", f"{r['progress']:.2f}",
             f"by the {r['by']}" if r["stepped_back"] else "no", r["plan_iterations"],
             percent(max(excesses(r))), percent(excesses(r)[-1])] for r in found["perceptron"]]
    return {
        "quiet": page.table(["plan", "jobs", "iterations each", "committed",
                             "comparisons with exact", "stepped back"], quiet, 1),
        "wild": page.table(["rule", "rate", "rate × curvature", "predicted progress",
                            "stepped back", "of these by the fuse", "iterations under the plan",
                            "largest excess, mean", "worst", "iterations to recover"], wild, 2),
        "wild-real": page.table(["rule", "rate", "predicted progress", "stepped back",
                                 "iterations under the plan", "largest excess",
                                 f"excess {AFTERMATH} iterations later"], real, 1),
    }


def percent(value):
    return f"{100 * value:.1f} %" if value < 10 else f"{value:,.0f} times"


def draw(found):
    run = found["perceptron"][0]
    figure, (axis,) = figures.panels(1)
    n = len(run["trace"])
    guarded, twin = zip(*run["trace"])
    axis.plot(range(n), found["unguarded"], color=figures.ORANGE)
    axis.plot(range(n), twin, color=figures.GREEN)
    axis.plot(range(n), guarded, color=figures.BLUE)
    figures.name(axis, n - 1, twin[-1], "exact", figures.GREEN, offset=(6, -4))
    figures.name(axis, n - 1, guarded[-1], "under the guard", figures.BLUE, offset=(6, 6))
    figures.name(axis, n - 1, found["unguarded"][-1], "without it", figures.ORANGE)
    axis.axvline(run["plan_iterations"], color=figures.INK, lw=1, ls=":")
    axis.annotate("stepped back", (run["plan_iterations"], 0.05), color=figures.INK,
                  xytext=(4, 0), textcoords="offset points")
    axis.set(xlabel="iterations since the plan began", ylabel="test loss, nats",
             xlim=(0, 1.2 * n), ylim=(0, None))
    figures.write(figure, "convergence-guard")
