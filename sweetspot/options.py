"""Options declared once: a part of a defence, or an attack, says what it takes; flags, YAML and records follow from it.

class Shuffle(Penalty):
    strength: float = option(1.0, "how hard the batch is shuffled", least=0)
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from sweetspot.errors import UserError


@dataclass(frozen=True)
class Option:
    """What one option is.

    Args:
        default: its value where none is given.
        help: what it is, in words.
        least: the smallest value.
        above: what it must be larger than.
        most: the largest value.
        below: what it must be smaller than.
        choices: the values there are.
        kind: its type; filled in from the annotation.
    """

    default: Any
    help: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    kind: type = float

    def checked(self, flag: str, value: Any) -> Any:
        """The value, if it can be meant; a whole number passes for a float."""
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise UserError(f"--{flag} must be {KINDS.get(self.kind, self.kind.__name__)}; got {value!r}")
        if self.choices and value not in self.choices:
            raise UserError(f"--{flag} must be one of {', '.join(self.choices)}; got {value}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--{flag} must be a finite number; got {value}")
        rules = (
            (self.least, "at least", lambda bound: value >= bound),
            (self.above, "above", lambda bound: value > bound),
            (self.most, "at most", lambda bound: value <= bound),
            (self.below, "below", lambda bound: value < bound),
        )
        for bound, words, holds in rules:
            if bound is not None and not holds(bound):
                raise UserError(f"--{flag} must be {words} {bound:g}; got {value:g}")
        return value


KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}


def option(
    default: Any,
    help: str,  # noqa: A002  # what every parser calls it
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
) -> Any:
    """An option, written as the value of an annotated class attribute."""
    return Option(default, help, least, above, most, below, tuple(choices))


class Declared:
    """Something with options: its annotated attributes that hold an `option(…)`, set when it is made."""

    name: ClassVar[str] = ""
    options: ClassVar[dict[str, Option]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Option)}
        hints = typing.get_type_hints(cls) if own else {}
        kinds = {name: hints.get(name, type(each.default)) for name, each in own.items()}
        described = {name: Option(**{**vars(each), "kind": kinds[name]}) for name, each in own.items()}
        cls.options = {**cls.options, **described}
        for name in own:
            delattr(cls, name)  # an instance has its own value

    def set_options(self, given: dict[str, Any]) -> None:
        """Take the values that are given, and defaults for the others."""
        if unknown := sorted(given.keys() - self.options.keys()):
            raise UserError(f"{self.name or type(self).__name__} has no option {unknown[0]}")
        for name, value in options_of(type(self), given).items():
            setattr(self, name, value)

    @property
    def title(self) -> str:
        """Its name in logs and lines; of a user's own the class."""
        return self.name.rpartition(":")[2]

    def record(self) -> dict[str, Any]:
        """Every option with its value, as results keep it."""
        return {name: getattr(self, name) for name in self.options}


def options_of(kind: type[Declared], given: dict[str, Any]) -> dict[str, Any]:
    """Every option of a class: as given, or its default."""
    return {
        name: each.checked(name.replace("_", "-"), given.get(name, each.default)) for name, each in kind.options.items()
    }
