"""Families of cells: the same penalty and the same releases, with the axes along which their numbers differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sweetspot.reports.axes import NONE, Axis, axes_of, family_of, keys_of
from sweetspot.reports.cells import Cell, Setting, shared
from sweetspot.reports.plots import DIAMOND
from sweetspot.runs.record import is_number, is_release, is_text, is_text_or_none, list_of

SPARSE = 4  # times as many places as cells: a search, of which maps would be empty
# told apart by shape alone; as many colours as are coprime with them give each pair once
SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",  # a disc
    "M-4.5 -4.5h9v9h-9z",  # a square
    "M0 -6l5.5 10h-11z",  # a triangle
    "M0 6l5.5 -10h-11z",  # one that stands on its tip
    "M-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",  # a plus
    "M-6 -1.5h12v3h-12z",  # a bar
    "M-5.5 0l2.7 -4.8h5.6l2.7 4.8l-2.7 4.8h-5.6z",  # a hexagon
    "M-5.6 -3.2l2.4 -2.4l3.2 3.2l3.2 -3.2l2.4 2.4l-3.2 3.2l3.2 3.2l-2.4 2.4l-3.2 -3.2l-3.2 3.2l-2.4 -2.4l3.2 -3.2z",
)
COLOURS = 7
DOT = "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z"  # what is behind a channel


@dataclass(frozen=True)
class Family:
    """Cells that differ along axes.

    Args:
        name: `compress + gaussian`.
        cells: without channels.
        axes: the keys in which they differ, those of failed cells among them.
        failed: what failed of it.
    """

    name: str
    cells: tuple[Cell, ...]
    axes: tuple[Axis, ...]
    failed: tuple[dict[str, Any], ...] = ()

    @property
    def is_scattered(self) -> bool:
        """Whether its cells lie anywhere along their axes, as a search leaves them."""
        places = math.prod(len(axis.values) for axis in self.axes)
        return places > SPARSE * (len(self.cells) + len(self.failed))


@dataclass(frozen=True)
class Style:
    """How a family's points look: a class of the style sheet, and a shape."""

    kind: str
    shape: str


def families_of(setting: Setting, failed: Sequence[dict[str, Any]] = ()) -> list[Family]:
    """The families of a setting in the order of its cells; vanilla is none, and a channel is no cell of theirs.

    Args:
        setting: the cells.
        failed: what failed in this setting.
    """
    found: dict[str, list[Cell]] = {}
    for cell in setting.cells:
        if not cell.is_vanilla and not cell.channel:
            found.setdefault(cell.family, []).append(cell)
    families = []
    for name, cells in found.items():
        lost = tuple(each for each in failed if family_of(each["defence"]) == name)
        places = [*(cell.keys for cell in cells), *(keys_of_failed(setting, each) for each in lost)]
        families.append(Family(name, tuple(cells), tuple(axes_of(places)), lost))
    return families


def failures_of(setting: Setting, failed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The failed cells that would have belonged to a setting."""
    return [each for each in failed if is_placed(each["defence"]) and same_setting(setting, each)]


def is_placed(defence: Any) -> bool:
    """Whether the record of a failed cell says where on a map it would be."""
    if not isinstance(defence, dict) or not is_text(defence.get("name")):
        return False
    parts = is_text_or_none(defence.get("bottleneck")) and list_of(is_release)(defence.get("release") or [])
    return parts and all(is_number(defence.get(name)) for name in ("lambda", "beta"))


def keys_of_failed(setting: Setting, failure: dict[str, Any]) -> dict[str, Any]:
    """Where a failed cell would lie; one that failed before its network was there is taken for one of the usual cut."""
    model = failure.get("model")
    cut = model.get("cut") if isinstance(model, dict) else None
    return keys_of(failure["defence"], str(cut or setting.about.results["model"]["cut"]))


def same_setting(setting: Setting, failure: dict[str, Any]) -> bool:
    """Whether a failed run differs from a setting's in nothing but its defence, cut and seed."""
    ours = setting.about.results
    try:
        return shared(ours) == shared(failure)
    except (KeyError, TypeError, AttributeError):  # it failed before its data were known
        names, theirs = ("dataset", "network", "head", "epochs", "batch_size", "lr"), failure["config"]
        return isinstance(theirs, dict) and all(theirs.get(name) == ours["config"].get(name) for name in names)


def styles_of(setting: Setting) -> dict[str, Style]:
    """A colour and a shape for each family that is plotted; vanilla and channels have their own."""
    return looks_of(cell.family for cell in setting.cells if not cell.is_vanilla and not cell.channel)


def looks_of(families: Iterable[str]) -> dict[str, Style]:
    """A colour and a shape for each family, by name, in their order."""
    names = dict.fromkeys(families)
    looks = zip(itertools.cycle(range(COLOURS)), itertools.cycle(SHAPES), strict=False)
    return {name: Style(f"f{colour}", shape) for name, (colour, shape) in zip(names, looks, strict=False)}


def style_of(cell: Cell, styles: dict[str, Style]) -> Style:
    """How a cell's point looks."""
    if cell.channel:
        return Style("channel", DOT)
    return Style(NONE, DIAMOND) if cell.is_vanilla else styles[cell.family]
