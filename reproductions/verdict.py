"""What a paper reports, what came out here, and whether the one reproduces the other: rules are data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sweetspot.reproductions.needs import Need, Shelf

Record = Mapping[str, Any]  # a results.json, or what a computation left


class Status(StrEnum):
    """What became of a cell."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, or of ours for one seed.

    Args:
        mean: the figure that is compared.
        std: its spread over test samples, which is shown.
        worst: of the best-recovered sample, which is shown.
    """

    mean: float
    std: float | None = None
    worst: float | None = None

    def said(self, digits: int) -> str:
        """`0.64±0.11 (0.83)`."""
        spread = "" if self.std is None else f"±{self.std:.{digits}f}"
        worst = "" if self.worst is None else f" ({self.worst:.{digits}f})"
        return f"{self.mean:.{digits}f}{spread}{worst}"


@dataclass(frozen=True)
class Within:
    """Of the same size: no further from the paper's figure than this, two standard errors over seeds besides.

    The standard errors count at most as much as `by` itself: figures that scatter widely reproduce nothing.

    Args:
        by: how far.
        relative: whether `by` is a fraction of the paper's figure.
    """

    by: float
    relative: bool = False

    def margin(self, paper: Figure) -> float:
        """How far from the paper's figure is of the same size."""
        return self.by * abs(paper.mean) if self.relative else self.by


@dataclass(frozen=True)
class AtLeast:
    """A claim in words, counted: in which share of the comparisons it must hold.

    Args:
        share: to be reproduced.
        more_than: to hold in direction.
        of_size: whether it speaks of a size, which a smaller stand-in cannot have.
    """

    share: float = 0.9
    more_than: float = 0.5
    of_size: bool = False


@dataclass(frozen=True)
class Cell:
    """One cell of a table, or one statement of a figure.

    Args:
        row: its row, or the claim in words.
        column: its column; empty for a claim.
        needs: for each seed what must be there.
        read: our figure from what is there for one seed; None where it was not measured.
        paper: the paper's figure; None for a claim in words.
        rule: what counts as reproduced.
        against: row and column of the cell to which the order must be the paper's.
        digits: after the point.
    """

    row: str
    column: str
    needs: Sequence[Sequence[Need]]
    read: Callable[[Sequence[Record]], Figure | None]
    paper: Figure | None = None
    rule: Within | AtLeast = AtLeast()  # it is frozen
    against: tuple[str, str] | None = None
    digits: int = 2

    @property
    def place(self) -> tuple[str, str]:
        return self.row, self.column

    @property
    def title(self) -> str:
        return ", ".join(filter(None, self.place))


@dataclass(frozen=True)
class Judged:
    """A cell with what came out.

    Args:
        cell: the paper's side.
        ours: our figure for each seed that was run; None where it was not.
        status: what became of it.
        reason: why, in one line.
    """

    cell: Cell
    ours: Sequence[Figure | None]
    status: Status
    reason: str

    @property
    def figure(self) -> Figure | None:
        """The mean over seeds, and the best-recovered sample of all."""
        found = [each for each in self.ours if each is not None]
        if not found:
            return None
        stds, worsts = ([value for value in values if value is not None] for values in parts_of(found))
        far = max if self.cell.paper is None or (self.cell.paper.worst or 0) >= self.cell.paper.mean else min
        return Figure(
            statistics.fmean(each.mean for each in found),
            statistics.fmean(stds) if stds else None,
            far(worsts) if worsts else None,
        )

    @property
    def seeds(self) -> str:
        """`3`, or `1 of 3`."""
        done = sum(each is not None for each in self.ours)
        return str(done) if done == len(self.ours) else f"{done} of {len(self.ours)}"


def parts_of(figures: Sequence[Figure]) -> tuple[list[float | None], list[float | None]]:
    """The spreads and the worst cases of some figures."""
    return [each.std for each in figures], [each.worst for each in figures]


def judged(cells: Sequence[Cell], shelf: Shelf, stand_in: str = "") -> list[Judged]:
    """Every cell with its verdict, from what is on the shelf.

    Args:
        cells: of one table or figure.
        shelf: what is there.
        stand_in: why these figures cannot be called reproduced, such as a quick size; empty where they can.
    """
    ours = {cell.place: [figure_of(cell, needs, shelf) for needs in cell.needs] for cell in cells}
    by_place = {cell.place: cell for cell in cells}
    found = []
    for cell in cells:
        other = by_place.get(cell.against) if cell.against else None
        status, reason = verdict(cell, ours[cell.place], other, ours[other.place] if other else [])
        found.append(Judged(cell, ours[cell.place], *capped(status, reason, cell, other, stand_in)))
    return found


def figure_of(cell: Cell, needs: Sequence[Need], shelf: Shelf) -> Figure | None:
    """Our figure for one seed; None where something is missing."""
    there = [shelf.find(each) for each in needs]
    records = [each for each in there if each is not None]
    return cell.read(records) if len(records) == len(there) else None


def verdict(
    cell: Cell, ours: Sequence[Figure | None], other: Cell | None, theirs: Sequence[Figure | None]
) -> tuple[Status, str]:
    """What became of a cell, and why.

    Args:
        cell: the paper's side.
        ours: by seed.
        other: the cell to which its order counts.
        theirs: that cell's, by seed.
    """
    values = [each.mean for each in ours if each is not None]
    if not values:
        return Status.NOT_RUN, "nothing is there yet, or it was not measured"
    if isinstance(cell.rule, AtLeast):
        return counted(statistics.fmean(values), cell.rule)
    assert cell.paper is not None, f"{cell.title}: a size needs the paper's figure"
    mean, margin = statistics.fmean(values), cell.rule.margin(cell.paper)
    off, room = mean - cell.paper.mean, margin + min(2 * standard_error(values), margin)
    is_near = abs(off) <= room
    away = f"{abs(off):.{cell.digits}f} {'above' if off > 0 else 'below'} the paper's"
    size = f"{away}, {room:.{cell.digits}f} allowed"
    expected = cell.paper.mean - other.paper.mean if other and other.paper else 0.0
    if other is None or abs(expected) <= margin:  # the paper itself sees no difference that counts
        return (Status.REPRODUCED if is_near else Status.NOT_REPRODUCED), size
    word, title = ("higher" if expected > 0 else "lower"), other.column if other.column != cell.column else other.row
    holds = in_order(ours, theirs, expected)
    if holds is None:
        return Status.NOT_RUN, f"{title}, which it is compared with, is not there"
    if not holds:
        return Status.NOT_REPRODUCED, f"not {word} than {title}, as it is in the paper; {size}"
    return (Status.REPRODUCED if is_near else Status.DIRECTION), f"{word} than {title}, as in the paper; {size}"


def counted(share: float, rule: AtLeast) -> tuple[Status, str]:
    """The verdict on a claim that holds in this share of the comparisons."""
    said = f"holds in {100 * share:.0f} % of the comparisons, {100 * rule.share:.0f} % asked for"
    if share >= rule.share:
        return Status.REPRODUCED, said
    return (Status.DIRECTION if share > rule.more_than else Status.NOT_REPRODUCED), said


def in_order(ours: Sequence[Figure | None], theirs: Sequence[Figure | None], expected: float) -> bool | None:
    """Whether we differ from the other cell as expected, by more than two standard errors; None: it is not there.

    Seeds are paired; with one seed alone the sign is all there is.
    """
    pairs = zip(ours, theirs, strict=False)
    apart = [a.mean - b.mean for a, b in pairs if a is not None and b is not None]
    if not apart:
        return None
    return statistics.fmean(apart) * math.copysign(1, expected) > 2 * standard_error(apart)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean over seeds; 0 for one seed, of which nothing is known."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def capped(status: Status, reason: str, cell: Cell, other: Cell | None, stand_in: str) -> tuple[Status, str]:
    """The verdict on a stand-in for the paper's setting: never `reproduced`, and nothing about size."""
    if not stand_in or status is Status.NOT_RUN:
        return status, reason
    is_order = other is not None and other.paper is not None and " than " in reason
    if is_order or (isinstance(cell.rule, AtLeast) and not cell.rule.of_size):
        return (Status.DIRECTION if status is Status.REPRODUCED else status), f"{reason}; of a stand-in"
    return Status.NOT_RUN, "only a stand-in was run, which cannot tell the size"
