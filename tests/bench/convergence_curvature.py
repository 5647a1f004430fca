"""Part of tests/bench/convergence: how near to the edge of stability real training runs.

The tasks of tests/bench/accuracy under exact with momentum SGD, both ranks' gradients in one
process. At every tenth of the run the largest curvature on a batch is found by power iteration with
Hessian-vector products, and told as s = rate times curvature.
"""
import math

import figures
import page

TENTHS = 10
ITERATIONS = 15  # of the power method: enough for two digits
BATCH = 256
EDGES = (("lookahead", 1.0), ("averaged, k = 1", 1.9))  # at momentum 0.9, delay 1


def vector(gradients):
    import torch
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def batch_loss(task, model, seed):
    import torch
    generator = torch.Generator().manual_seed(seed)
    if hasattr(task, "rows"):
        return task.loss(model, task.rows(task.train, BATCH, generator))
    images, labels = task.train
    rows = torch.randint(len(images), (BATCH,), generator=generator)
    return torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])


def largest_curvature(loss, parameters):
    import torch
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    direction = [torch.randn_like(parameter) for parameter in parameters]
    curvature = 0.0
    for _ in range(ITERATIONS):
        length = math.sqrt(sum(float((part * part).sum()) for part in direction))
        direction = [part / length for part in direction]
        along = sum((gradient * part).sum() for gradient, part in zip(gradients, direction))
        product = torch.autograd.grad(along, parameters, retain_graph=True)
        curvature = sum(float((a * b).sum()) for a, b in zip(direction, product))
        direction = [part.detach() for part in product]
    return curvature


def train(task, seed):
    """[{tenth, rate, loss, s}]"""
    import torch
    torch.manual_seed(seed)
    model = task.model()
    parameters = list(model.parameters())
    _, options = task.optimizers["momentum SGD"]
    optimizer = torch.optim.SGD(parameters, **options)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=options["lr"], total_steps=task.n_iterations() + 1,
        cycle_momentum=False)
    looks = {task.n_iterations() * tenth // TENTHS: tenth for tenth in range(1, TENTHS)}
    found = []
    ranks = zip(task.losses(model, 0, seed), task.losses(model, 1, seed))
    for iteration, losses in enumerate(ranks):
        if iteration in looks:
            loss = batch_loss(task, model, 1000 + iteration)
            rate = optimizer.param_groups[0]["lr"]
            found.append({"tenth": looks[iteration], "rate": rate, "loss": float(loss),
                          "s": rate * largest_curvature(loss, parameters)})
        optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        optimizer.step()
        schedule.step()
    return found


def measure(quick, accuracy):
    import torch
    torch.set_num_threads(1)
    return [{"task": task.name, "points": train(task, 1)}
            for task in (accuracy.Cnn(quick), accuracy.Text(quick))]


def summary(_rows):
    return {}


def texts(rows):
    lines = [[f"{100 * points[0]['tenth'] // TENTHS} %",
              *(text for point in points for text in (f"{point['rate']:.3f}",
                                                      f"{point['loss']:.2f}", f"{point['s']:.2f}"))]
             for points in zip(*(row["points"] for row in rows))]
    return {"curvature": page.table(
        ["of the run", *(f"{row['task']}: {what}" for row in rows
                         for what in ("rate", "loss", "rate × curvature"))], lines, 0)}


def draw(rows):
    figure, (axis,) = figures.panels(1)
    for row, colour in zip(rows, (figures.BLUE, figures.ORANGE)):
        at = [100 * point["tenth"] / TENTHS for point in row["points"]]
        values = [point["s"] for point in row["points"]]
        axis.plot(at, values, color=colour)
        figures.name(axis, at[1], values[1], row["task"], colour, offset=(6, 6))
    for name, edge in EDGES:
        axis.axhline(edge, color=figures.INK, lw=1, ls=":")
        figures.name(axis, 62, edge, f"edge of {name}", figures.INK, offset=(0, 7))
    axis.set(xlabel="of the run, %", ylabel="rate × largest curvature", xlim=(0, 100),
             ylim=(0, 2.4))
    figures.write(figure, "convergence-curvature")
