"""A run's pictures: its training curve, a planar cut layer (Figure 2), what attacks recovered (Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torchvision.utils import make_grid

from sweetspot.files import replacing

COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#f0e442",
    "#000000",
)  # told apart by the colour-blind
DPI = 140
GAP = 14  # pictures that stand side by side are a 14th of their width apart


def training_curve(history: Sequence[Mapping[str, float]], path: Path) -> None:
    """Loss, accuracy and the defence's own quantity against the epoch."""
    names = [name for name in history[0] if name != "epoch"] if history else []
    own = [name for name in names if name.split("/")[1] not in ("loss", "accuracy")]
    panels = [
        ("loss", [n for n in names if n.endswith("/loss")]),
        ("accuracy", [n for n in names if n.endswith("/accuracy")]),
    ]
    panels += [(name.split("/")[1] + " penalty", [name]) for name in own]
    width = 4.2 * len(panels)
    figure = Figure(figsize=(width, 3.2))  # every run draws it: a layout that is computed would take as long again
    figure.subplots_adjust(left=0.6 / width, right=1 - 0.15 / width, bottom=0.15, top=0.9, wspace=0.2)
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for colour, name in zip(COLOURS, lines, strict=False):
            epochs = [(epoch["epoch"] + 1, epoch[name]) for epoch in history if name in epoch]
            label = {"val": "validation", "train": "training"}[name.split("/")[0]]
            axes.plot(*zip(*epochs, strict=True), marker=".", color=colour, label=label)
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI)


def representations_figure(panels: Mapping[str, tuple[Tensor, Tensor]], path: Path) -> None:
    """A scatter of representations z (N, 2), coloured by class, a panel for each moment, all on one scale."""
    figure = Figure(figsize=(4.2 * len(panels), 4.2), layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)
    for axes, (title, (z, y)) in zip(grid[0], panels.items(), strict=True):
        axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)  # MixCon sees directions from the origin
        axes.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        for c in y.unique().tolist():
            points = z[y == c].cpu()
            axes.scatter(
                points[:, 0], points[:, 1], s=12, alpha=0.7, color=COLOURS[c % len(COLOURS)], label=f"class {c}"
            )
        axes.set(title=title, xlabel="$h(x)_1$", ylabel="$h(x)_2$" if axes is grid[0][0] else "")
        axes.grid(alpha=0.3)
    grid[0][0].legend()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI)


def gallery_figure(
    original: Tensor, recovered: Mapping[str, Tensor], order: Tensor, path: Path, columns: int = 12
) -> None:
    """Originals in the top row, what each attack recovered below; a third each of the most, median and least leaked.

    Args:
        original: the attacked images (B, C, H, W).
        recovered: what each attack made of them.
        order: the images' indices, the most leaked one first.
        path: where the picture goes.
        columns: how many images are shown.
    """
    columns = min(columns, len(order))
    third, rest = divmod(columns, 3)
    middle = (len(order) - third - rest) // 2
    picked = torch.cat([order[: third + rest], order[middle : middle + third], order[len(order) - third :]]).tolist()
    rows = {"original": original, **recovered}
    shown = torch.cat([images[picked].detach().cpu().float() for images in rows.values()])
    height, width = shown.shape[-2:]
    gap = max(1, width // GAP)
    # one picture of all: axes for each image would take a hundred times as long to draw
    mosaic = make_grid(shown.nan_to_num().clamp(0, 1), nrow=columns, padding=gap, pad_value=1.0)
    figure = Figure(figsize=(columns, len(rows) * height / width))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(mosaic.permute(1, 2, 0).numpy())
    axes.set_axis_off()
    for row, title in enumerate(rows):
        axes.text(0, gap + (height + gap) * row + height / 2, title, ha="right", va="center", fontsize=9)
    titles = {0: "most leaked", third + rest: "median", columns - third: "least leaked"}
    for column, title in titles.items() if third else ():
        axes.text(gap + (width + gap) * column, 0, title, ha="left", va="bottom", fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=DPI, bbox_inches="tight", pad_inches=0.05)
