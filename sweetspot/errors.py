"""The one exception that is the user's to mend: shown as one line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """What is wrong, and what to do about it, in one line."""

    exit_code = 2


class UnfitError(UserError):
    """A part of a defence that makes no sense beside the others; in a grid such a combination is left out."""


class BusyError(UserError):
    """Another process is at it; nothing is wrong, it will be done."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where it has none."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The name that is nearest to one that there is not; empty where none is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def meant(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The name that was perhaps meant, as a question; empty where none is near.

    Example:
        >>> meant("--bacth-size", ["--batch-size", "--beta"])
        ' (did you mean --batch-size?)'
    """
    near = nearest(name, known, cutoff)
    return f" (did you mean {near}?)" if near else ""


def check_one_of(what: str, value: str, known: Iterable[str]) -> None:
    """Refuse a name that there is not, with those that there are."""
    names = list(known)
    if value not in names:
        raise UserError(f"{what} must be one of {', '.join(names)}; got {value}")
