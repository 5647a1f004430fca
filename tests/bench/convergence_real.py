"""Part of tests/bench/convergence: merged gradients on Fashion-MNIST, plain torch in one process.

A perceptron (784-64-10) under plain SGD at constant rates. Merging k iterations is a batch of k B:
the parameters do not move within a generation. e(k) of McCandlish et al. is about the best rate for
each batch size, so rates are searched for each k; what becomes of k at exact's rate, at k times it
and at sqrt(k) times it is shown beside. Prediction: q and Q of exact's iterations, with the
gradients of 2 to 8 parts of the batch as those of ranks, go through convergence_facts. Beside it
stands what the formula says of the noise scale that each iterate has in truth.
"""
import json
import math
import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import figures
import page

MERGES = (1, 2, 4, 8)
RANKS = (2, 4, 8)
MEMORY = 100  # iterations, as the controller has it
MEMORIES = (10, 25, 50, MEMORY, 200, 500)
HIDDEN = 64
N_EVALUATION = 2000
EVERY = 256  # samples between two evaluations
SMOOTH = 2  # points to either side that curves are averaged over: small batches make them rough
ENOUGH = 0.85  # of the target: a run that is so far ends
ROOT2 = math.sqrt(2)
STEPS_MOST = 8  # of the search, to either side
TRUE_SEEDS, TRUE_EVERY = 3, 4  # runs whose noise scale is looked at, and at which iterations
TRUE_GRADIENT, TRUE_TRACE = 8000, 96  # samples for |G|^2 and for tr(Sigma)

_data = {}


def _prepare(images, labels):
    """In each worker."""
    import torch
    torch.set_num_threads(1)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images.view(len(images), -1)[order], labels[order]
    _data["train"] = images[:-N_EVALUATION], labels[:-N_EVALUATION]
    _data["evaluation"] = images[-N_EVALUATION:], labels[-N_EVALUATION:]


def parameters(seed):
    import torch
    generator = torch.Generator().manual_seed(seed)
    made = []
    for n_in, n_out in ((784, HIDDEN), (HIDDEN, 10)):
        weight = torch.randn(n_in, n_out, generator=generator) * math.sqrt(2 / n_in)
        made += [weight.requires_grad_(), torch.zeros(n_out).requires_grad_()]
    return made


def loss_of(made, images, labels):
    import torch
    hidden = torch.relu(images @ made[0] + made[1])
    return torch.nn.functional.cross_entropy(hidden @ made[2] + made[3], labels)


def gradients_of(made, rows):
    import torch
    images, labels = _data["train"]
    return torch.autograd.grad(loss_of(made, images[rows], labels[rows]), made)


def norm2(gradients):
    return float(sum((g * g).sum() for g in gradients))


def mean_of(parts):
    return [sum(gradients) / len(parts) for gradients in zip(*parts)]


def train(seed, batch, rate, samples, enough, n_ranks=0):
    """Evaluated losses every EVERY samples, from before the first on; with ranks also (q, Q) of
    each iteration. Ends early below `enough`, or when it diverges."""
    import torch
    made = parameters(seed)
    generator = torch.Generator().manual_seed(100 + seed)
    losses, norms = [], []
    for taken in range(0, samples, batch):
        if taken % EVERY == 0 or batch > EVERY:
            with torch.no_grad():
                losses.append(float(loss_of(made, *_data["evaluation"])))
            if not enough < losses[-1] < 20:
                break
        rows = torch.randint(len(_data["train"][0]), (batch,), generator=generator)
        if n_ranks:
            parts = [gradients_of(made, part) for part in rows.view(n_ranks, -1)]
            gradients = mean_of(parts)
            norms.append((sum(map(norm2, parts)) / n_ranks, norm2(gradients)))
        else:
            gradients = gradients_of(made, rows)
        with torch.no_grad():
            for weight, gradient in zip(made, gradients):
                weight -= rate * gradient
    return losses, norms


def true_noise(made, chosen):
    """tr(Sigma) / |G|^2 per sample where the parameters are; `chosen`: a generator of samples."""
    import torch
    rows = torch.randperm(len(_data["train"][0]), generator=chosen)[:TRUE_GRADIENT]
    whole = norm2(gradients_of(made, rows))
    single = sum(norm2(gradients_of(made, row.view(1))) for row in rows[:TRUE_TRACE])
    trace = single / TRUE_TRACE - whole
    return trace / max(whole - trace / TRUE_GRADIENT, 1e-12)


def true_efficiency(seed, batch, rate, samples):
    """{k: e(k) at the noise scale of each iterate}, the mean over exact's run."""
    import torch
    made = parameters(seed)
    generator = torch.Generator().manual_seed(100 + seed)
    chosen = torch.Generator().manual_seed(200 + seed)
    found = []
    for i in range(samples // batch):
        if i % TRUE_EVERY == 0:
            found.append(true_noise(made, chosen))
        rows = torch.randint(len(_data["train"][0]), (batch,), generator=generator)
        gradients = gradients_of(made, rows)
        with torch.no_grad():
            for weight, gradient in zip(made, gradients):
                weight -= rate * gradient
    return {k: sum((noise + batch) / (noise + k * batch) for noise in found) / len(found)
            for k in MERGES}


def samples_to(curves, batch, target):
    """Where the mean of the curves is down to `target`, by the loss's logarithm between points."""
    every = max(EVERY, batch)
    n = max(map(len, curves))
    raw = [sum(curve[min(i, len(curve) - 1)] for curve in curves) / len(curves)
           for i in range(n)]
    half = SMOOTH * EVERY // every
    means = [sum(raw[i - half:i + half + 1]) / (2 * half + 1) for i in range(half, n - half)]
    for i, (before, after) in enumerate(zip(means, means[1:])):
        if after <= target:
            return every * (i + half + math.log(before / target) / math.log(before / after))
    return math.inf


class Search:
    """Samples to the target, for rates that are powers of sqrt(2) times a first one."""

    def __init__(self, pool, batch, target, seeds):
        self.pool, self.batch, self.target, self.seeds = pool, batch, target, seeds
        self.first = 0.04 * math.sqrt(batch / 16)
        self.most = 60_000
        self.known = {}

    def at(self, merge, step):
        if (merge, step) not in self.known:
            batch = merge * self.batch
            work = [(seed, batch, self.rate(step), self.most, ENOUGH * self.target)
                    for seed in range(self.seeds)]
            curves = [losses for losses, _ in self.pool.map(train, *zip(*work))]
            self.known[merge, step] = samples_to(curves, batch, self.target)
        return self.known[merge, step]

    def rate(self, step):
        return self.first * ROOT2 ** step

    def best(self, merge, start):
        """The step with the least samples around `start`, which is bracketed."""
        step = start
        for _ in range(STEPS_MOST):
            better = min((step - 1, step, step + 1), key=lambda s: self.at(merge, s))
            if better == step:
                break
            step = better
        return step

    def least(self, merge, step):
        """Of the parabola through the best step and its neighbours, in logarithms."""
        here, low, high = (self.at(merge, s) for s in (step, step - 1, step + 1))
        if not all(map(math.isfinite, (here, low, high))):
            return here
        here, low, high = map(math.log, (here, low, high))
        bend = low + high - 2 * here
        return math.exp(here - (high - low) ** 2 / (8 * bend)) if bend > 0 else math.exp(here)


def ask_progress(facts, norms, n_ranks, batch, memory):
    """What the library makes of (q, Q) of each iteration."""
    lines = "".join(f"{q!r} {big!r} {n_ranks} {batch / n_ranks}\n" for q, big in norms)
    done = subprocess.run([str(facts), "progress", str(memory), str(batch), *map(str, MERGES)],
                          input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def predict(pool, facts, batch, rate, samples, seeds):
    """Ranks -> {k: e(k) over the run}, and the noise scale at its end; means over the seeds.
    Beside it, for most ranks and merges, memory -> e(k)."""
    found, memories = {}, {}
    for n_ranks in RANKS:
        work = [(seed, batch, rate, samples, 0, n_ranks) for seed in range(seeds)]
        runs = [norms for _, norms in pool.map(train, *zip(*work))]
        answers = [ask_progress(facts, norms, n_ranks, batch, MEMORY) for norms in runs]
        found[n_ranks] = {k: sum(a[f"whole_{k}"] for a in answers) / seeds for k in MERGES}
        found[n_ranks]["noise_samples"] = sum(a["noise_samples"] for a in answers) / seeds
        if n_ranks == max(RANKS):
            memories = {str(memory): sum(
                ask_progress(facts, norms, n_ranks, batch, memory)[f"whole_{max(MERGES)}"]
                for norms in runs) / seeds for memory in MEMORIES}
    return found, memories


def compare(pool, facts, batch, target, seeds):
    search = Search(pool, batch, target, seeds)
    first = search.best(1, 1)
    exact = search.least(1, first)
    search.most = int(10 * exact)
    rows, step = [], first
    predicted, memories = predict(pool, facts, batch, search.rate(first), int(exact), seeds)
    runs = [(seed, batch, search.rate(first), int(exact)) for seed in range(TRUE_SEEDS)]
    known = list(pool.map(true_efficiency, *zip(*runs)))
    for merge in MERGES:
        doublings = int(math.log2(merge))
        step = search.best(merge, step + (merge > 1))
        rows.append({
            "batch": batch, "target": target, "merge": merge, "seeds": seeds,
            "rate": search.rate(step), "samples": search.least(merge, step),
            "measured": exact / search.least(merge, step),
            "kept": exact / search.at(merge, first),
            "sqrt": exact / search.at(merge, first + doublings),
            "times_k": exact / search.at(merge, first + 2 * doublings),
            "noise_samples": predicted[max(RANKS)]["noise_samples"],
            "known": sum(one[merge] for one in known) / len(known),
            "predicted": {str(n): predicted[n][merge] for n in RANKS},
            "memories": memories})
    return rows


def measure(facts, quick, load_images):
    """`load_images` is that of tests/bench/accuracy."""
    images, labels = load_images("train")
    cases = ((16, 0.5),) if quick else ((8, 0.5), (16, 0.5), (32, 0.45))
    seeds = 4 if quick else 6
    with ProcessPoolExecutor(2, get_context("fork"), _prepare, (images, labels)) as pool:
        return [row for batch, target in cases
                for row in compare(pool, facts, batch, target, seeds)]


def error(row):
    """Relative, of the prediction with the most ranks."""
    return row["predicted"][str(max(RANKS))] / row["measured"] - 1


def fitted(rows, value):
    """B_crit / B that puts the formula through e(k) best, by least squares of logarithms."""
    def misfit(scale):
        return sum(math.log(value(row) * (scale + row["merge"]) / (scale + 1)) ** 2
                   for row in rows if row["merge"] > 1)
    return min((1.02 ** i for i in range(-200, 400)), key=misfit)


def cases_of(rows):
    cases = {}
    for row in rows:
        cases.setdefault((row["batch"], row["target"]), []).append(row)
    return cases


def text_of_scales(rows):
    lines = []
    for (batch, target), mine in cases_of(rows).items():
        measured = fitted(mine, lambda row: row["measured"])
        predicted = fitted(mine, lambda row: row["predicted"][str(max(RANKS))])
        lines.append([batch, f"{target:g}", f"{batch * predicted:.0f}", f"{batch * measured:.0f}",
                      f"{measured / predicted:.2f}"])
    return page.table(["B", "loss", "B_noise as estimated, over the run",
                       "that fits the measured e(k)", "ratio"], lines, 0)


def text_of_memories(rows):
    """Of the largest merge."""
    last = [row for row in rows if row["merge"] == max(MERGES)]
    return page.table(["B", "k", "measured e(k)", *(f"remembers {m}" for m in MEMORIES)],
                      [[row["batch"], row["merge"], f"{row['measured']:.3f}",
                        *(f"{row['memories'][str(m)]:.3f}" for m in MEMORIES)] for row in last], 0)


def summary(rows):
    return {"efficiency_real_error_frac": max(abs(error(row)) for row in rows)}


def texts(rows):
    lines = [[row["batch"], f"{row['target']:g}", row["merge"], f"{row['rate']:.3f}",
              f"{row['samples']:,.0f}", f"{row['measured']:.3f}",
              *(f"{row['predicted'][str(n)]:.3f}" for n in RANKS), f"{100 * error(row):+.1f} %",
              f"{row['known']:.3f}", f"{100 * (row['known'] / row['measured'] - 1):+.1f} %",
              f"{row['kept']:.2f}", f"{row['sqrt']:.2f}", f"{row['times_k']:.2f}"]
             for row in rows]
    return {"scales": text_of_scales(rows), "memories": text_of_memories(rows), "real": page.table(
        ["B", "loss", "k", "best rate", "samples", "measured e(k)",
         *(f"predicted, {n} ranks" for n in RANKS), f"error, {max(RANKS)} ranks",
         "each iterate's true B_noise", "error", "exact's rate", "√k times", "k times"], lines, 0)}


def draw(rows):
    cases = cases_of(rows)
    figure, axes = figures.panels(len(cases), sharey=True)
    for axis, ((batch, target), mine) in zip(axes, cases.items()):
        merges = [row["merge"] for row in mine]
        lines = [[row["predicted"][str(n)] for row in mine] for n in RANKS]
        axis.fill_between(merges, [min(v) for v in zip(*lines)], [max(v) for v in zip(*lines)],
                          color=figures.BLUE, alpha=0.25, linewidth=0)
        axis.plot(merges, lines[-1], color=figures.BLUE)
        axis.plot(merges, [row["measured"] for row in mine], "o", color=figures.BLUE, mfc="none")
        axis.plot(merges, [row["kept"] for row in mine], "s:", color=figures.ORANGE, mfc="none")
        if axis is axes[0]:
            figures.name(axis, 4, mine[2]["measured"], "measured, best rate", figures.BLUE,
                         offset=(4, 10))
            figures.name(axis, 8, lines[-1][3], "predicted", figures.BLUE, offset=(4, -18),
                         ha="right")
            figures.name(axis, 8, mine[3]["kept"], "exact's rate kept", figures.ORANGE,
                         offset=(4, -14), ha="right")
        axis.set(title=f"batch {batch}, to a loss of {target:g}", xlabel="iterations merged, k",
                 xlim=(0.5, 8.8), ylim=(0, 1.08), xticks=(1, 2, 4, 8))
    axes[0].set_ylabel("progress per sample, exact = 1")
    figures.write(figure, "convergence-real")
