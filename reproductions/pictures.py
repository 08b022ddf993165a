"""The figures in the papers' layouts, from what runs and computations left; panels are those of reports/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import torch
from matplotlib.figure import Figure

from sweetspot.errors import UserError
from sweetspot.reports.figures import COLOURS
from sweetspot.reports.gradient_figures import error_panel, save
from sweetspot.reports.gradient_figures import images as image_rows
from sweetspot.reports.tables import short
from sweetspot.reports.text_figures import curves_panel
from sweetspot.reproductions.needs import Shelf, TrainedRun
from sweetspot.runs.folder import Run

PICTURES = 2  # attacked images of each dataset
Points = Sequence[tuple[float, float]]
Record = Mapping[str, Any]


def stacked(pictures: Mapping[str, Path], path: Path) -> None:
    """Pictures of runs below one another, each with its name."""
    drawn = {name: matplotlib.image.imread(file) for name, file in pictures.items()}
    figure = Figure(figsize=(8.4, 4.3 * len(drawn)), layout="constrained")
    for axes, (name, picture) in zip(figure.subplots(len(drawn), 1, squeeze=False)[:, 0], drawn.items(), strict=True):
        axes.imshow(picture)
        axes.set(xticks=[], yticks=[], frame_on=False)
        axes.set_ylabel(name)
    save(figure, path)


def trade_offs(found: Mapping[str, Mapping[tuple[float, float] | None, Record]], path: Path) -> None:
    """Accuracy and mean pairwise distance against β, a line for each λ, a row of two panels for each dataset.

    Args:
        found: for each dataset the records by (λ, β), and vanilla's under None.
        path: where the picture goes.
    """
    figure = Figure(figsize=(9.6, 3.2 * len(found)), layout="constrained")
    grid = figure.subplots(len(found), 2, squeeze=False)
    for line, (title, records) in zip(grid, found.items(), strict=True):
        for axes, what in zip(line, ("accuracy", "distance"), strict=True):
            for number, lam in enumerate(sorted({place[0] for place in records if place is not None})):
                places = sorted(place for place in records if place is not None and place[0] == lam)
                values = [measured(records[place], what) for place in places]
                colour = COLOURS[number % len(COLOURS)]
                axes.plot([beta for _, beta in places], values, ".-", color=colour, label=f"λ = {short(lam)}")
            if None in records:
                axes.axhline(measured(records[None], what), color="0.4", linestyle="--", label="vanilla")
            axes.set(xscale="log", xlabel="β", title=f"{title}: {what}")
            axes.invert_xaxis()
            axes.grid(alpha=0.3)
        line[1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    save(figure, path)


def measured(record: Record, what: str) -> float:
    """A run's accuracy, or the mean distance of its representations."""
    return float(record["utility"]["accuracy"] if what == "accuracy" else record["separability"]["mean"])


def gallery(
    datasets: Mapping[str, Mapping[str, TrainedRun]], shelf: Shelf, path: Path, attack: str = "whitebox/paper"
) -> bool:
    """Draw originals and what an attack made of them, a column for each run; whether anything was there.

    Args:
        datasets: for each dataset its runs by column.
        shelf: where they are.
        path: where the picture goes.
        attack: whose images.
    """
    columns = ["original", *next(iter(datasets.values()))]
    rows: list[tuple[str, dict[str, np.ndarray]]] = []
    for title, runs in datasets.items():
        pictures = pictures_of(runs, shelf, attack)
        for number in range(PICTURES if pictures else 0):
            rows.append((title, {name: images[number] for name, images in pictures.items() if number < len(images)}))
    if not rows:
        return False
    figure = Figure(figsize=(1.25 * len(columns) + 0.6, 1.3 * len(rows) + 0.4), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, (title, images) in zip(grid, rows, strict=True):
        for axes, name in zip(line, columns, strict=True):
            axes.set(xticks=[], yticks=[])
            if name in images:
                axes.imshow(images[name].transpose(1, 2, 0).squeeze().clip(0, 1), cmap="gray", vmin=0, vmax=1)
            else:
                axes.set_frame_on(False)
        line[0].set_ylabel(title)
    for axes, name in zip(grid[0], columns, strict=True):
        axes.set_title(name, fontsize=7)
    save(figure, path)
    return True


def pictures_of(runs: Mapping[str, TrainedRun], shelf: Shelf, attack: str) -> dict[str, np.ndarray]:
    """The originals (N, C, H, W) that the first run keeps, and what came back of the same ones from each."""
    found: dict[str, np.ndarray] = {}
    for name, need in runs.items():
        folder = shelf.folder(need)
        if folder is None or not Run(folder).originals.is_file():
            continue
        with np.load(Run(folder).originals, allow_pickle=False) as kept:
            original = kept["x"]
        found.setdefault("original", original)
        try:
            if np.array_equal(original, found["original"]):  # another seed's images are others
                found[name] = Run(folder).read_recovered(attack, original.shape)
        except UserError:
            continue
    return found if len(found) > 1 else {}


def error_panels(panels: Mapping[str, Mapping[str, Points]], path: Path) -> None:
    """Errors against d side by side, a line for each name."""
    figure = Figure(figsize=(4.8 * len(panels), 3.6), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        error_panel(axes, curves, "dimension d", title)
    save(figure, path)


def digits(rows: Mapping[str, Mapping[int, Record]], path: Path) -> None:
    """Pairs of images out of gradients side by side: originals, and below what the tensor stage gives at each width."""
    shown: dict[str, list[torch.Tensor]] = {}
    for found in rows.values():
        first = next(iter(found.values()))
        shown.setdefault("original", []).append(torch.tensor(first["truth"]["x"]))
        for width, record in found.items():
            shown.setdefault(f"m = {width:,}", []).append(torch.tensor(record["recovered"]["tensor"]["x"]))
    whole = {name: torch.cat(parts) for name, parts in shown.items() if len(parts) == len(rows)}
    figure = image_rows(whole, first["data"]["shape"])
    figure.suptitle("left: a same label; right: different labels" if len(rows) > 1 else next(iter(rows)), fontsize=9)
    save(figure, path)


def loss_panels(observed: Mapping[str, Record], path: Path) -> None:
    """Loss curves by position, a panel for each descent."""
    figure = Figure(figsize=(5.4 * len(observed), 3.8), layout="constrained")
    for axes, (name, data) in zip(figure.subplots(1, len(observed), squeeze=False)[0], observed.items(), strict=True):
        curves_panel(axes, data)
        axes.set_title(name)
    save(figure, path)
