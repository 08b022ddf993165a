"""Pictures of gradient inversion: samples beside the originals, and how the error goes with d, m and the source."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor

from sweetspot.files import replacing
from sweetspot.reports.figures import COLOURS, DPI

Curves = Mapping[str, Sequence[tuple[float, float]]]  # a line's name: its points (x, error)
MOST = 8  # samples in a picture
MARKERS = "os^Dvx+*"
FLOOR = 1e-17  # an error of exactly 0 has no logarithm


def samples_figure(
    recovered: Mapping[str, Tensor], path: Path, original: Tensor | None = None, shape: Sequence[int] = ()
) -> None:
    """What each stage recovered beside the originals: a row of images each, or one panel a vector.

    Args:
        recovered: samples (B, d) by the stage that gave them, in the order of the originals.
        path: where the picture goes.
        original: the true samples (B, d), where they are known.
        shape: of an image (C, H, W); none for vectors.
    """
    rows = {**({} if original is None else {"original": original}), **recovered}
    rows = {name: x[:MOST].detach().cpu().double().nan_to_num() for name, x in rows.items()}
    figure = images(rows, shape) if shape else vectors(rows)
    save(figure, path)


def images(rows: Mapping[str, Tensor], shape: Sequence[int]) -> Figure:
    """A row of images for each name, every column on the grey scale of its first image."""
    columns = len(next(iter(rows.values())))
    figure = Figure(figsize=(1.1 * columns + 1.3, 1.15 * len(rows) + 0.1), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    scale = next(iter(rows.values())).flatten(1).amax(dim=1).clamp_min(1e-12)  # samples were scaled to unit norm
    for line, (name, x) in zip(grid, rows.items(), strict=True):
        pictures = (x / scale[:, None]).clamp(0, 1).view(-1, *shape)
        for axes, picture in zip(line, pictures, strict=True):
            axes.imshow(picture.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    return figure


def vectors(rows: Mapping[str, Tensor]) -> Figure:
    """A panel for each sample: the originals as bars, each stage as marks over them."""
    count = len(next(iter(rows.values())))
    figure = Figure(figsize=(7.2, 1.5 * count + 0.9), layout="constrained")
    grid = figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0]
    for number, axes in enumerate(grid):
        for (name, x), colour, marker in zip(rows.items(), COLOURS, "sox+^Dv*", strict=False):
            where = range(1, x.shape[1] + 1)
            if name == "original":
                axes.bar(where, x[number].numpy(), color="0.75", width=1.0, label=name)
            else:
                axes.plot(where, x[number].numpy(), marker, color=colour, markersize=4, mfc="none", label=name)
        axes.axhline(0, color="0.6", linewidth=0.6, zorder=0)
        axes.use_sticky_edges = False  # else bars leave no room below 0
        axes.margins(y=0.12)
        axes.set_ylabel(f"sample {number + 1}")
    grid[-1].set_xlabel("coordinate")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    return figure


def dimension_figure(curves: Curves, path: Path, title: str = "") -> None:
    """The error against d, a line each."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    error_panel(figure.subplots(), curves, "dimension d", title)
    save(figure, path)


def sources_figure(curves: Curves, path: Path, title: str = "") -> None:
    """The error against d from ∇_a and from ∇_W, on a linear scale as in the paper."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    axes = figure.subplots()
    error_panel(axes, curves, "dimension d", title)
    axes.set(xscale="linear", yscale="linear", xticks=sorted({x for points in curves.values() for x, _ in points}))
    axes.set_ylim(bottom=0)
    save(figure, path)


def width_figure(curves: Curves, path: Path, title: str = "") -> None:
    """The error against m, a line each, with its measured slope; the proven −1/2 is drawn above the first."""
    named = {
        f"{name}, slope {found:.2f}" if (found := slope(points)) is not None else name: points
        for name, points in curves.items()
    }
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    axes = figure.subplots()
    if drawn := [points for points in curves.values() if points]:
        (begin, height), end = drawn[0][0], drawn[0][-1][0]
        low = 1.15 * height
        axes.plot([begin, end], [low, low * (begin / end) ** 0.5], "--", color="0.4", label="slope −1/2")
    error_panel(axes, named, "width m", title)
    save(figure, path)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The least-squares slope of log(error) in log(x); None for fewer than two points, or none above rounding.

    Example:
        >>> slope([(1, 1.0), (4, 0.5), (16, 0.25)])
        -0.5
    """
    if len(points) < 2 or any(error < 1e-8 for _, error in points):
        return None
    logs = [(math.log(x), math.log(error)) for x, error in points]
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread if spread else None


def error_panel(axes: Axes, curves: Curves, across: str, title: str) -> None:
    """Lines of errors, on logarithmic scales."""
    for number, (name, points) in enumerate(curves.items()):
        x, y = [point[0] for point in points], [max(point[1], FLOOR) for point in points]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.plot(x, y, marker=marker, markersize=4, color=colour, label=name)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel="error (rms)", title=title)
    measured = sorted({point[0] for points in curves.values() for point in points})
    axes.set_xticks(measured, [f"{x:g}" for x in measured], fontsize=8)  # powers of ten alone would say little
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(fontsize=8)


def save(figure: Figure, path: Path) -> None:
    """Write a picture."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI)
