"""The two grades of a cell: whether a picture comes back beyond what the label gives, and whether an identity does."""

from __future__ import annotations

import statistics

from sweetspot.metrics.summary import GALLERY
from sweetspot.reports.beside import identity_of
from sweetspot.reports.cells import Cell, records_of
from sweetspot.reports.leak import NO_PICTURE
from sweetspot.reports.records import WORST_CASE, pooled


def identity_leak(cell: Cell) -> float | None:
    """How much of an identity leaks, mean over seeds; None where it was not measured of all of them."""
    found = [identity_of(run.results) for run in cell.runs] if not cell.channel else []
    known = [each[0] for each in found if each is not None]
    return statistics.fmean(known) if known and len(known) == len(found) else None


def picture_words(leak: float) -> str:
    """Whether the first grade is reached, in words.

    Example:
        >>> picture_words(0.05)
        'yes: the worst-case leak is 0.05, and at most 0.25 counts'
    """
    return (
        f"{'yes' if leak <= NO_PICTURE else 'no'}: the worst-case leak is {leak:.2f}, and at most {NO_PICTURE:g} counts"
    )


def identity_words(cell: Cell) -> str:
    """Whether the second grade is reached, in words."""
    leak, by = identity_leak(cell), identity_of(cell.runs[0].results)
    if leak is None or by is None:
        return f"not measured: that takes a certificate, or the attack {GALLERY}"
    return f"{'yes' if leak <= NO_PICTURE else 'no'}: the re-identification leak is {leak:.2f}, by {by[1]}"


def seen_words(cell: Cell) -> list[str]:
    """What an independent classifier and a search among the test inputs make of what came back."""
    records = records_of(cell, WORST_CASE)
    recognised, rank = (pooled(name, records) for name in ("recognised", "rank"))
    said = [f"class recognised {100 * recognised['mean']:.0f} %"] if recognised else []
    said += [f"rank of the true input {rank['mean']:.1f}"] if rank else []
    leak = identity_leak(cell)
    return said + ([f"re-identification leak {leak:.2f}"] if leak is not None else [])
