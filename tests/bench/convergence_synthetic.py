"""Part of tests/bench/convergence: jobs whose truth is known (convergence_facts)."""
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import figures
import page

#: Estimates that were known in fewer of the iterations than this are shown and not judged.
MOSTLY = 0.5


def ask(facts, *arguments):
    """The objects that a part of convergence_facts prints."""
    done = subprocess.run([str(facts), *map(str, arguments)], stdout=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def measure(facts, quick):
    parts = {"noise": ("noise", 16 if quick else 40), "merge": ("merge", 4 if quick else 8),
             "edge": ("edge",), "delay": ("delay", 4)}
    with ThreadPoolExecutor(2) as pool:
        asked = {name: pool.submit(ask, facts, *arguments) for name, arguments in parts.items()}
        return {name: future.result() for name, future in asked.items()}


def efficiency_error(row):
    """Of the prediction, relative; None where there is none."""
    if row["merge"] == 1 or row["known_frac"] < MOSTLY:
        return None
    return row["predicted"] / row["measured"] - 1


def summary(found):
    errors = [abs(e) for e in map(efficiency_error, found["merge"]) if e is not None]
    return {
        "estimator_error_frac": max(row["rms_error"] for row in found["noise"]),
        "edge_error_frac": max(abs(row["measured"] / row["predicted"] - 1)
                               for row in found["edge"]),
        "efficiency_error_frac": max(errors),
    }


def text_of_noise(rows):
    lines = [[row["ranks"], f"{row['noise_over_batch']:g}",
              "move, remembers 100" if row["moves"] else "stay, remembers 1,000",
              f"{100 * row['rms_error']:.1f} %", f"{100 * row['stated_error']:.1f} %",
              f"{100 * row['largest_error']:.1f} %", f"{row['known']} of {row['runs']}"]
             for row in rows]
    return page.table(["ranks", "B_noise / B", "weights", "error, root mean square",
                       "standard error as stated", "largest error", "known"], lines, 0)


def text_of_merge(rows):
    lines = []
    for row in rows:
        error = efficiency_error(row)
        if row["merge"] > 1:
            known = row["known_frac"] > 0
            lines.append([row["noise"], f"{row['noise_over_batch']:g}", row["merge"],
                          f"{row['measured']:.3f}",
                          f"{row['predicted']:.3f}" if known else "not known",
                          "" if error is None else f"{100 * error:+.1f} %",
                          f"{row['predicted_known']:.3f}", f"{100 * row['known_frac']:.0f} %"])
    return page.table(["noise", "B_noise / B", "k", "measured", "predicted", "error",
                       "with the true B_noise", "known during"], lines, 1)


def text_of_edge(rows):
    """One line per rule, momentum and merge; a column per delay: predicted / measured."""
    table = {}
    for row in rows:
        key = (row["rule"], f"{row['momentum']:g}", row["merge"])
        table.setdefault(key, {})[row["delay"]] = (
            f"{row['predicted']:.4g} / {row['measured']:.4g}")
    lines = [[*key, *(cells.get(delay, "") for delay in range(5))]
             for key, cells in table.items()]
    return page.table(["rule", "momentum", "k", *(f"τ = {delay}" for delay in range(5))], lines, 1)


def text_of_delay(rows):
    shares = sorted({row["share"] for row in rows})
    lines = []
    for momentum in sorted({row["momentum"] for row in rows}):
        mine = {row["share"]: row for row in rows if row["momentum"] == momentum}
        lines.append([f"{momentum:g}", *(f"{mine[s]['predicted']:.2f} / {mine[s]['measured']:.2f}"
                                         for s in shares)])
    return page.table(["momentum", *(f"{s:g} of the edge" for s in shares)], lines, 0)


def texts(found):
    return {"noise": text_of_noise(found["noise"]), "merge": text_of_merge(found["merge"]),
            "edge": text_of_edge(found["edge"]), "delay": text_of_delay(found["delay"])}


def draw_edges(rows):
    figure, axes = figures.panels(3, sharey=True)
    for axis, rule in zip(axes, ("delayed", "lookahead", "averaged")):
        for momentum, colour in zip((0, 0.5, 0.9), figures.COLOURS):
            mine = [row for row in rows if row["rule"] == rule and row["merge"] == 1
                    and row["momentum"] == momentum]
            delays = [row["delay"] for row in mine]
            axis.plot(delays, [row["predicted"] for row in mine], color=colour)
            axis.plot(delays, [row["measured"] for row in mine], "o", color=colour, mfc="none")
            last = mine[-1]
            if rule != "lookahead":
                figures.name(axis, last["delay"], last["predicted"], f"m = {momentum:g}", colour)
        if rule == "lookahead":
            figures.name(axis, 1, 1, "every m", figures.INK)
        axis.set(title=rule, xlabel="delay τ, iterations", yscale="log", xlim=(-0.3, 6.2),
                 xticks=range(5))
    axes[0].set_ylabel("edge of rate × curvature")
    axes[0].set_yticks([0.03, 0.1, 0.3, 1, 3], ["0.03", "0.1", "0.3", "1", "3"])
    axes[0].minorticks_off()
    figures.write(figure, "convergence-edges")


def draw_merge(rows):
    figure, axes = figures.panels(2, sharey=True)
    titles = {"scaled": "noise falls with the gradient", "constant": "noise stays as it is"}
    for axis, noise in zip(axes, titles):
        scales = sorted({row["noise_over_batch"] for row in rows if row["noise"] == noise})
        for scale, colour in zip(scales, figures.COLOURS):
            mine = [row for row in rows if row["noise"] == noise
                    and row["noise_over_batch"] == scale]
            merges = [row["merge"] for row in mine]
            judged = mine[0]["known_frac"] >= MOSTLY
            line = "predicted" if judged else "predicted_known"
            axis.plot(merges, [row[line] for row in mine], color=colour,
                      ls="-" if judged else (0, (2, 2)))
            axis.plot(merges, [row["measured"] for row in mine], "o", color=colour, mfc="none")
            figures.name(axis, merges[-1], mine[-1][line], f"B_noise = {scale:g} B", colour)
        axis.set(title=titles[noise], xlabel="iterations merged, k", xlim=(0.5, 11.5),
                 ylim=(0, 1.08), xticks=(1, 2, 4, 8))
    axes[0].set_ylabel("progress per sample, exact = 1")
    figures.write(figure, "convergence-merge")


def draw(found):
    draw_edges(found["edge"])
    draw_merge(found["merge"])
