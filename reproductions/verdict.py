"""What a paper reports, what came out here, and whether the one reproduces the other: rules are data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sweetspot.reproductions.needs import Need, Shelf

ROUNDING = 1e-9  # 0.19 is 0.05 from 0.14
Record = Mapping[str, Any]  # a results.json, or what a computation left


class Status(StrEnum):
    """What became of a cell."""

    REPRODUCED = "reproduced"
    DIRECTION = "direction only"
    NOT_REPRODUCED = "not reproduced"
    NOT_JUDGED = "not judged"
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
        """The figure as tables write it.

        Example:
            >>> Figure(0.64, 0.11, 0.83).said(2), Figure(99.1).said(1)
            ('.64±.11 (.83)', '99.1')
        """
        if self.std is None:
            return f"{self.mean:.{digits}f}"
        worst = "" if self.worst is None else f" ({f'{self.worst:.{digits}f}'.removeprefix('0')})"
        return "±".join(f"{each:.{digits}f}".removeprefix("0") for each in (self.mean, self.std)) + worst


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
        stds = [each.std for each in found if each.std is not None]
        worsts = [each.worst for each in found if each.worst is not None]
        far = max if worsts and worsts[0] >= found[0].mean else min  # of a distance the smallest leaks most
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
        other = by_place[cell.against] if cell.against else None
        verdict = verdict_on(cell, ours[cell.place], other, ours[other.place] if other else [])
        verdict = verdict.of_stand_in() if stand_in else verdict
        found.append(Judged(cell, ours[cell.place], verdict.status, verdict.reason))
    return found


def figure_of(cell: Cell, needs: Sequence[Need], shelf: Shelf) -> Figure | None:
    """Our figure for one seed; None where something is missing."""
    there = [shelf.find(each) for each in needs]
    records = [each for each in there if each is not None]
    return cell.read(records) if len(records) == len(there) else None


@dataclass(frozen=True)
class Verdict:
    """What became of a cell.

    Args:
        status: in a word.
        reason: in a line.
        tells_direction: whether it speaks of an order or a claim, and not of a size alone.
    """

    status: Status
    reason: str
    tells_direction: bool = False

    def of_stand_in(self) -> Verdict:
        """The same on a stand-in for the paper's setting: never `reproduced`, and nothing about size."""
        if self.status is Status.NOT_RUN:
            return self
        if not self.tells_direction:
            return Verdict(Status.NOT_JUDGED, "a stand-in, which cannot tell the size")
        status = Status.DIRECTION if self.status is Status.REPRODUCED else self.status
        return Verdict(status, f"{self.reason}; of a stand-in", tells_direction=True)


def verdict_on(
    cell: Cell, ours: Sequence[Figure | None], other: Cell | None, theirs: Sequence[Figure | None]
) -> Verdict:
    """What became of a cell, and why.

    Args:
        cell: the paper's side.
        ours: by seed.
        other: the cell to which its order counts.
        theirs: that cell's, by seed.
    """
    values = [each.mean for each in ours if each is not None]
    if not values:
        return Verdict(Status.NOT_RUN, "nothing is there yet, or it was not measured")
    if isinstance(cell.rule, AtLeast):
        return counted(statistics.fmean(values), cell.rule)
    assert cell.paper is not None, f"{cell.title}: a size needs the paper's figure"
    margin = cell.rule.margin(cell.paper)
    off, room = statistics.fmean(values) - cell.paper.mean, margin + min(2 * standard_error(values), margin)
    size = f"{abs(off):.{cell.digits}f} {'above' if off > 0 else 'below'} the paper's, {room:.{cell.digits}f} allowed"
    is_near = abs(off) <= room + ROUNDING
    expected = cell.paper.mean - other.paper.mean if other and other.paper else 0.0
    if other is None or abs(expected) <= margin:  # the paper itself sees no difference that counts
        return Verdict(Status.REPRODUCED if is_near else Status.NOT_REPRODUCED, size)
    holds = in_order(ours, theirs, expected)
    title = other.column if other.column != cell.column else other.row
    order = f"{'higher' if expected > 0 else 'lower'} than {title}"
    if holds is None:
        return Verdict(Status.NOT_RUN, f"{title}, which it is compared with, is not there")
    if not holds:
        return Verdict(Status.NOT_REPRODUCED, f"not {order}, as it is in the paper; {size}", tells_direction=True)
    status = Status.REPRODUCED if is_near else Status.DIRECTION
    return Verdict(status, f"{order}, as in the paper; {size}", tells_direction=True)


def counted(share: float, rule: AtLeast) -> Verdict:
    """The verdict on a claim that holds in this share of the comparisons."""
    said = f"holds in {100 * share:.0f} % of the comparisons, {100 * rule.share:.0f} % asked for"
    if share >= rule.share:
        status = Status.REPRODUCED
    else:
        status = Status.DIRECTION if share > rule.more_than else Status.NOT_REPRODUCED
    return Verdict(status, said, tells_direction=not rule.of_size)


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
