"""The pictures of text inversion (the paper's Figures 1–8), from what attacks.text.observations condensed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sweetspot.files import replacing
from sweetspot.reports.figures import COLOURS, DPI
from sweetspot.reports.tables import describe_defence

Data = Mapping[str, Any]
RIGHT, WRONG = COLOURS[:2]
SINGLE = (5.2, 3.8)  # inches
PARTS = ("propose", "verify", "gradient", "other")
NOTHING = -45.0  # the detector's score of a loss of exactly 0


def accuracy_figure(rows: Sequence[Data], path: Path) -> None:
    """EM and similarity against the cost of a token (Figure 1), a colour for each policy or operating point.

    Args:
        rows: `name`, `em`, `similarity` and `seconds_per_token` of each.
        path: where the picture goes.
    """
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for index, row in enumerate(rows):
        cost, colour = row["seconds_per_token"], COLOURS[index % len(COLOURS)]
        axes.plot([cost] * 2, [row["em"], row["similarity"]], color=colour, linewidth=1, alpha=0.5)
        axes.plot(cost, row["similarity"], "s", color=colour, markersize=10, markerfacecolor="white")
        axes.plot(cost, row["em"], "o", color=colour, markersize=6)  # fits into the other where both are 100 %
    axes.set(title="accuracy against cost", xlabel="seconds per token", ylabel="EM, similarity")
    axes.set(xscale="log", ylim=(-0.04, 1.06))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    shapes = [
        Line2D([], [], color="0.4", marker="o", linestyle="", label="EM"),
        Line2D([], [], color="0.4", marker="s", linestyle="", markerfacecolor="white", label="similarity"),
    ]
    names = [
        Line2D([], [], color=COLOURS[index % len(COLOURS)], linewidth=4, label=row["name"])
        for index, row in enumerate(rows)
    ]
    axes.legend(handles=shapes + names, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    axes.grid(alpha=0.3)
    save(figure, path)


def ablations_figure(data: Mapping[str, Sequence[Data]], path: Path) -> None:
    """EM and similarity against one parameter at a time (Figure 2), a panel for each.

    Args:
        data: for each parameter the `em` and `similarity` at each `value`, in the order of drawing.
        path: where the picture goes.
    """
    columns = max(min(len(data), 4), 1)
    lines = max(-(-len(data) // columns), 1)
    figure = Figure(figsize=(3.1 * columns + 0.4, 2.7 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axes, (name, rows) in zip(grid.flat, data.items(), strict=False):
        ablation_panel(axes, name, rows)
    for axes in grid.flat[len(data) :]:
        axes.set_axis_off()
    for line in grid:
        line[0].set_ylabel("EM, similarity")
        line[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    if data:
        grid[0][0].legend(loc="best")
    save(figure, path)


def ablation_panel(axes: Axes, name: str, rows: Sequence[Data]) -> None:
    """EM and similarity against the values of one parameter: numbers on an axis, anything else side by side."""
    values = [row["value"] for row in rows]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    for measure, marker, colour in (("em", "o", COLOURS[0]), ("similarity", "s", COLOURS[1])):
        label = "EM" if measure == "em" else measure
        x = values if numeric else range(len(values))
        axes.plot(x, numbers(row[measure] for row in rows), marker=marker, color=colour, label=label,
                  linestyle="-" if numeric else "")  # fmt: skip
    if not numeric:
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.margins(x=0.2)
    elif values and min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_xscale("log")
    axes.set(xlabel=name, ylim=(-0.04, 1.06))
    axes.grid(alpha=0.3)


def ranks_panel(axes: Axes, data: Data) -> None:
    """The median rank of the true token on the way, for right and wrong commits."""
    ranks = data["ranks"]
    for kind, colour in (("right", RIGHT), ("wrong", WRONG)):
        if ranks[kind]["count"]:
            label = f"{kind} (n = {ranks[kind]['count']})"
            axes.plot(ranks["steps"], numbers(ranks[kind]["median"]), marker=".", color=colour, label=label)
    axes.set(title="rank of the true token", xlabel="step", ylabel="tokens nearer to the proxy (median)", xscale="log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=-0.15)
    axes.legend()
    axes.grid(alpha=0.3)


def curves_panel(axes: Axes, data: Data) -> None:
    """The median continuous loss on the way, a line for each position."""
    curves = data["curves"]
    count = len(curves["loss"])
    colours = ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, count)))  # beyond, it is too bright for paper
    for t, loss in enumerate(curves["loss"]):
        if loss:
            axes.plot(curves["steps"], numbers(loss), color=colours(t), linewidth=1.3)
    axes.set(title="loss by position", xlabel="step", ylabel="continuous loss (median MSE)", xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    ticks = MaxNLocator(nbins=10, integer=True)
    axes.figure.colorbar(ScalarMappable(norm, colours), ax=axes, label="position", ticks=ticks)


def cumulative_panel(axes: Axes, data: Data) -> None:
    """The cumulative discrete loss, a line for each prompt: right ones stay at the floor, a wrong commit is a step."""
    prompts = [numbers(losses) for losses in data["cumulative_loss"]]
    positive = [loss for losses in prompts for loss in losses[losses > 0]]
    floor = min(positive, default=1e-12) / 10  # a logarithmic axis has no 0
    style: dict[str, Any] = {"marker": ".", "markersize": 3, "linewidth": 0.8, "alpha": 0.5}
    for layer, (label, colour, members) in enumerate(groups(data)):
        for index in members:  # the right ones on top: the wrong ones lie on the floor too, until they are wrong
            losses = np.maximum(prompts[index], floor)
            axes.plot(range(len(losses)), losses, color=colour, zorder=3 - layer / 2, **style)
        axes.plot([], [], color=colour, label=label)  # the legend's, not as faint
    if any((losses == 0).any() for losses in prompts):
        axes.axhline(floor, color="0.4", linewidth=0.8, linestyle=":", label="exactly 0")
    axes.set(title="cumulative discrete loss", xlabel="position", ylabel="summed MSE", yscale="log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    axes.grid(alpha=0.3)


def failures_panel(axes: Axes, data: Data) -> None:
    """How many tokens of each kind were missed, labelled with the rate."""
    kinds = data["failures"]["tokens"]
    missed = [data["failures"][kind] for kind in kinds]
    bars = axes.barh(list(kinds), missed, color=WRONG)
    rates = [f"{n / of:.1%} of {of}" if of else "none seen" for n, of in zip(missed, kinds.values(), strict=True)]
    axes.bar_label(bars, rates, padding=3, fontsize=8)
    axes.set(title="failures by kind of token", xlabel="tokens missed", xlim=(0, 1.35 * max([*missed, 1])))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)


def time_panel(axes: Axes, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Where the time of a token goes, a bar for each row."""
    names, left = list(rows), np.zeros(len(rows))
    for part, colour in zip(PARTS, COLOURS, strict=False):
        seconds = numbers(rows[name].get(part, 0.0) for name in names)
        bars = axes.barh(names, seconds, left=left, height=0.6, color=colour, label=part)
        left = left + seconds
    axes.bar_label(bars, [f"{total:.2g} s" for total in left], padding=3, fontsize=8)
    axes.set(title="time per token", xlabel="seconds per token", xlim=(0, 1.2 * max(left, default=1.0) or 1.0))
    axes.set_ylim(len(names) - 0.5, -1.2)  # downwards, with room for the legend
    axes.legend(fontsize=8, ncols=len(PARTS), loc="upper center")
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)


def reliability_panel(axes: Axes, data: Data) -> None:
    """How often a probability comes true, of tokens and of whole prompts, in bins; on the diagonal it is true."""
    axes.plot([0, 1], [0, 1], color="0.4", linewidth=0.8, linestyle=":", label="as often as said")
    for name, marker, colour in (("token", "o", COLOURS[0]), ("prompt", "s", COLOURS[1])):
        bins = data["reliability"][name]
        if bins["count"]:
            most = max(bins["count"])
            sizes = [15 + 85 * (count / most) ** 0.5 for count in bins["count"]]
            said, right = numbers(bins["probability"]), numbers(bins["right"])
            axes.plot(said, right, color=colour, linewidth=1, alpha=0.6)
            label = f"{name}s: error {bins['error']:.3f} (n = {sum(bins['count'])})"
            axes.scatter(said, right, s=sizes, marker=marker, color=colour, label=label)
    axes.set(title="reliability", xlabel="probability that the posterior gives", ylabel="fraction right")
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04))
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def posterior_panel(axes: Axes, data: Data) -> None:
    """How the probability that something is wrong is distributed among right and wrong prompts."""
    scores = numbers(data["detector"]["score"])
    for label, colour, members in groups(data):
        axes.hist(scores[members], np.linspace(0, 1, 21).tolist(), color=colour, alpha=0.7, label=label)
    auroc = data["detector"].get("auroc")
    title = "failure detector" if auroc is None else f"failure detector: AUROC {auroc:.3f}"
    axes.set(title=title, xlabel="1 − probability that all tokens are right", ylabel="prompts")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))
    axes.legend()
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def detector_panel(axes: Axes, data: Data) -> None:
    """How the detector's score is distributed among right and wrong prompts."""
    if "confidence" in data["detector"]:
        posterior_panel(axes, data)
        return
    scores = numbers(data["detector"]["score"])
    seen = scores[np.isfinite(scores) & (scores > NOTHING)]
    low, high = (seen.min(), seen.max()) if len(seen) else (-1.0, 0.0)
    has_zero = bool((scores <= NOTHING).any())
    scores, low = np.maximum(scores, low - 1), low - has_zero  # a loss of 0 is drawn one decade below all others
    bins = np.linspace(low, max(high, low + 1), 31).tolist()
    for label, colour, members in groups(data):
        values = scores[members]
        axes.hist(values[np.isfinite(values)], bins, color=colour, alpha=0.7, label=label)
    auroc = data["detector"].get("auroc")
    title = "failure detector" if auroc is None else f"failure detector: AUROC {auroc:.3f}"
    zero = " (leftmost: exactly 0)" if has_zero else ""
    axes.set(title=title, xlabel=f"log$_{{10}}$ cumulative discrete loss{zero}", ylabel="prompts")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))
    axes.legend()
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


def ranks_figure(data: Data, path: Path) -> None:
    """Rank trajectories (Figure 3)."""
    alone(ranks_panel, data, path)


def curves_figure(data: Data, path: Path) -> None:
    """Loss curves by position (Figure 4)."""
    alone(curves_panel, data, path)


def cumulative_figure(data: Data, path: Path) -> None:
    """Cumulative discrete loss against position (Figure 5): the two regimes."""
    alone(cumulative_panel, data, path)


def failures_figure(data: Data, path: Path) -> None:
    """Failures by token category (Figure 6)."""
    alone(failures_panel, data, path)


def time_figure(rows: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Time per token (Figure 7): for each row's name what `seconds_per_token` holds."""
    alone(time_panel, rows, path, (6.4, 1.7 + 0.45 * max(len(rows), 1)))


def detector_figure(data: Data, path: Path) -> None:
    """The detector's scores (Figure 8)."""
    alone(detector_panel, data, path)


def observations_figure(data: Data, path: Path) -> None:
    """All that was observed of one attack on one page, a panel for each thing that was."""
    panels: dict[str, Callable[[Axes, Data], None]] = {
        "ranks": ranks_panel,
        "curves": curves_panel,
        "cumulative_loss": cumulative_panel,
        "failures": failures_panel,
        "seconds_per_token": lambda axes, data: time_panel(axes, {"": data["seconds_per_token"]}),
        "detector": detector_panel,
        "reliability": reliability_panel,
    }
    shown = [panel for name, panel in panels.items() if name in data]
    rows = 1 if len(shown) <= 3 else 2
    columns = -(-len(shown) // rows)
    figure = Figure(figsize=(4.8 * columns, 3.8 * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(grid, shown, strict=False):
        panel(axes, data)
    for axes in grid[len(shown) :]:
        figure.delaxes(axes)
    save(figure, path)


def frontier_figure(results: Sequence[Data], path: Path) -> None:
    """How much text comes back against the perplexity that is left, a line a run, from exact states to noise.

    A defence is worth its price where its line lies below the others' at the same perplexity.

    Args:
        results: of text runs that hybrid was tried on.
        path: where the picture goes.
    """
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for index, run in enumerate(results):
        attack = run["attacks"]["text/hybrid"]
        points = [(run["utility"]["perplexity"], attack["similarity"]["mean"])]
        noisy = {name: behind for name, behind in attack["channels"].items() if name.startswith("noise")}
        points += [(behind["perplexity"], behind["similarity"]["mean"]) for behind in noisy.values()]
        style: dict[str, Any] = {"marker": "os^Dv"[index // len(COLOURS) % 5], "color": COLOURS[index % len(COLOURS)]}
        axes.plot(*zip(*sorted(points), strict=True), label=describe_defence(run["defence"]), **style)
    axes.set(
        xscale="log", ylim=(0, 1.05), xlabel="perplexity behind the channel", ylabel="similarity of recovered text"
    )
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    axes.grid(alpha=0.3)
    save(figure, path)


def groups(data: Data) -> Iterator[tuple[str, str, list[int]]]:
    """Label, colour and prompts of what is right and wrong or, where nobody knows, of what the detector says."""
    known = "right" in data
    bad = [not right for right in data["right"]] if known else data["detector"]["flagged"]
    labels = ("right", "wrong") if known else ("not flagged", "flagged")
    for label, colour, which in zip(labels, (RIGHT, WRONG), (False, True), strict=True):
        members = [index for index, each in enumerate(bad) if each == which]
        if members:
            yield f"{label} (n = {len(members)})", colour, members


def numbers(values: Any) -> np.ndarray:
    """An array of the values, with NaN, which is drawn as a gap, for None."""
    return np.array(list(values), dtype=float)


def alone(panel: Callable[[Axes, Any], None], data: Any, path: Path, size: tuple[float, float] = SINGLE) -> None:
    """Write a picture of one panel."""
    figure = Figure(figsize=size, layout="constrained")
    panel(figure.subplots(), data)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the picture whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI)
