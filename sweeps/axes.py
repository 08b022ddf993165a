"""Axes: the values of a flag that a sweep takes several of, in a list or as a range `low..high`."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sweetspot.errors import UserError, meant
from sweetspot.runs.command_line import KINDS, SURE, spelled
from sweetspot.runs.config import TrainConfig

DIGITS = 3  # significant ones of a value within a range: names stay readable
RANGE = re.compile(r"(.+?)\.\.(.+)")
NUMBER = r"[+-]?[\d.]*\d(?:e[+-]?\d+)?"  # as it looks; whether it is one is asked later
NOT_SEVERAL = ("milestones", "standardise", "options")  # lists themselves, and what is taken apart
# fields that take several values: all that define a run
FIELDS = tuple(
    each.name
    for each in dataclasses.fields(TrainConfig)
    if each.metadata.get("identity", True) and each.name not in NOT_SEVERAL
)

ALL_FIELDS = {each.name for each in dataclasses.fields(TrainConfig)}


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, of which a search chooses.

    Args:
        low: the smallest.
        high: the largest.
    """

    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers alone."""
        return isinstance(self.low, int)

    @property
    def is_log(self) -> bool:
        """Whether values are drawn evenly in their logarithm."""
        return not self.is_whole and self.low > 0

    def rounded(self, value: float) -> float:
        """A value within it with few digits.

        Example:
            >>> Range(0.01, 1.0).rounded(0.123456)
            0.123
        """
        return value if self.is_whole else min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Axis = list[Any] | Range
Grid = dict[str, Axis]  # axes by flag: fields of TrainConfig (λ as lambda), and options of parts


def grid_of(given: Mapping[str, Any], kinds: Mapping[str, Any], standing: Callable[[str], str]) -> Grid:
    """The axes that are given, each with its values as its kind has them.

    Args:
        given: values by flag, one or several, as the command line or a file has them; None is as good as not given.
        kinds: the type of every axis by flag.
        standing: where a flag stands, for the line that says what is wrong with it.
    """
    grid: Grid = {}
    for name, value in given.items():
        try:
            if name not in kinds:
                same = name in ALL_FIELDS
                hint = ": it is the same for all, write it beside them" if same else meant(str(name), kinds, SURE)
                raise UserError(f"there is no {name} for a grid to set{hint}")
            if value is not None:
                grid[name] = axis_of(spelled(name), value if isinstance(value, list) else [value], kinds[name])
        except UserError as error:
            raise UserError(f"{error}{standing(name)}") from error
    return grid


def axis_of(flag: str, written: list[Any], kind: Any) -> Axis:
    """One axis: a list of different values, or a range.

    Example:
        >>> axis_of("--lambda", ["1", 0.1], float), axis_of("--sigma", ["0.3..3"], float)
        ([1.0, 0.1], Range(low=0.3, high=3.0))
    """
    if not written:
        raise UserError(f"{flag} needs at least one value: the grid is empty")
    ranges = [text for text in written if isinstance(text, str) and is_range(text, kind)]
    if ranges:
        if len(written) > 1:
            raise UserError(f"{flag} {ranges[0]} is a range, and stands alone; got {len(written)} values")
        return range_of(flag, ranges[0], kind)
    values = [value_of(flag, each, kind) for each in written]
    for value in values:
        if values.count(value) > 1:
            said = f"{value:g}" if isinstance(value, float) else value
            raise UserError(f"{flag} names {said} twice; every value makes cells of its own")
    return values


def is_range(text: str, kind: Any) -> bool:
    """Whether a text is meant as a range; a path may have two dots in it."""
    return ".." in text if is_number(kind) else re.fullmatch(rf"{NUMBER}\.\.{NUMBER}", text, re.IGNORECASE) is not None


def range_of(flag: str, text: str, kind: Any) -> Range:
    """The range that a text says."""
    if not is_number(kind):
        raise UserError(f"{flag} {text} is a range, and {flag} has no numbers: name its values")
    if flag == "--seed":
        raise UserError(f"--seed {text} is a range: name the seeds, every cell is made with each of them")
    found = RANGE.fullmatch(text)
    try:
        ends = [value_of(flag, end, kind) for end in (found.groups() if found else ())]
    except UserError:
        ends = []
    if len(ends) != 2:
        such = "whole numbers, such as 2..8" if int in members(kind) else "numbers, such as 0.1..10"
        raise UserError(f"{flag} takes a range low..high of {such}; got {text}")
    low, high = ends
    if low > high:
        raise UserError(f"{flag} {text} runs from high to low: write {high:g}..{low:g}")
    if low == high:
        raise UserError(f"{flag} {text} is one value and no range: write {low:g}")
    return Range(low, high)


def value_of(flag: str, given: Any, kind: Any) -> Any:
    """A value as its kind has it, from a text of the command line or from what YAML makes of one."""
    allowed = members(kind)
    value = given
    if isinstance(given, str) and str not in allowed:
        value = from_text(given, allowed)
    elif isinstance(given, str) and int in allowed and given.isdecimal():
        value = int(given)  # --cut 2
    elif isinstance(given, int | float) and not isinstance(given, bool):
        if float in allowed:
            value = float(given)
        elif int not in allowed and str in allowed:
            value = str(given)  # --bottleneck 16
    fits = isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        named = " or ".join(KINDS.get(each.__name__, each.__name__) for each in allowed)
        raise UserError(f"{flag} must be {named}; got {given}")
    return value


def from_text(text: str, allowed: tuple[type, ...]) -> Any:
    """The number or truth value that a text says; the text itself where it says none."""
    if bool in allowed:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return float(text) if float in allowed else int(text)
    except ValueError:
        return text


def members(kind: Any) -> tuple[type, ...]:
    """The types that a value of an axis may have: of a list those of its members, without None."""
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    union = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return tuple(each for each in union if each is not types.NoneType)


def is_number(kind: Any) -> bool:
    """Whether an axis has numbers alone."""
    return set(members(kind)) <= {int, float}
