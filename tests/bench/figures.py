"""Figures of the documentation: SVG for light and for dark pages, the same for the same data.

Backgrounds are transparent, so ink and colours are of middle brightness: 3 : 1 at least on white
and on near black. Lines carry their names, there are no legends.
"""
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
INK = "#7a828e"
BLUE, ORANGE, GREEN, VIOLET = "#3b82d6", "#d0731f", "#2f9e58", "#a666d0"
COLOURS = (BLUE, ORANGE, GREEN, VIOLET)


def panels(n, height=3.2, sharey=False):
    """A figure with `n` panels side by side, and the panels."""
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "deft", "font.family": "sans-serif",
        "font.size": 11, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
        "xtick.color": INK, "ytick.color": INK, "axes.titlesize": 11, "axes.titlecolor": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
        "lines.linewidth": 1.8, "lines.markersize": 6})
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, n, figsize=(8.6, height), squeeze=False, sharey=sharey)
    for axis in axes[0]:
        axis.grid(True, color=INK, alpha=0.2, linewidth=0.6)
    return figure, list(axes[0])


def name(axis, x, y, text, colour, **more):
    """Writes a line's name beside it."""
    axis.annotate(text, (x, y), color=colour, xytext=more.pop("offset", (6, 0)),
                  textcoords="offset points", va="center", annotation_clip=False, **more)


def write(figure, stem):
    """docs/figures/STEM.svg, without dates."""
    from matplotlib import pyplot
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{stem}.svg"
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"[ \t]+\n", "\n", text), encoding="utf-8")
