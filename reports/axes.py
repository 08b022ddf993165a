"""Axes: the keys in which some cells differ, whatever they are, with what they are called and how they are ordered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweetspot.lightning_modules.defences import PENALTIES, RELEASES
from sweetspot.reports.tables import penalty_title, short
from sweetspot.runs.matching import is_vanilla
from sweetspot.runs.record import is_number

Keys = Mapping[str, Any]  # where a cell lies: every option of its defence by name, its bottleneck, its cut
OF_THE_RECORD = (
    "name",
    "lambda",
    "bottleneck",
    "release",
    "weights",
)  # of a defence, beside the options of its penalty
FIRST = ("lambda", "beta")  # the paper's axes, before all others
LAST = ("unit", "ramp")  # how noise is meant, after how much of it there is
STRONGER_IF_SMALLER = ("beta", "bits", "keep", "clip")
DECADES = 8  # between the largest and the smallest of some values, from which on they are drawn by their logarithm
NONE = "none"
AS_GIVEN = "as given"  # a network that was trained elsewhere, by whatever defence


@dataclass(frozen=True)
class Axis:
    """A key in which cells differ.

    Args:
        key: as a cell's keys have it.
        label: λ, σ, bits, cut, …
        values: there are, in their order: numbers from the weaker to the stronger defence, words as people count.
        is_numeric: whether all of them are numbers.
    """

    key: str
    label: str
    values: tuple[Any, ...]
    is_numeric: bool

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as they are written."""
        return tuple(map(written, self.values))

    @property
    def is_log(self) -> bool:
        """Whether its values are drawn by their logarithm: they are positive, and far apart."""
        if not self.is_numeric or not any(isinstance(value, float) for value in self.values):
            return False
        return bool(min(self.values) > 0 and max(self.values) >= DECADES * min(self.values))


def keys_of(defence: Mapping[str, Any], cut: str) -> dict[str, Any]:
    """Where a cell lies; an option that an older record leaves out has its default.

    Example:
        >>> noise = {"name": "gaussian", "sigma": 1.0}
        >>> keys_of({"name": "none", "lambda": 0.0, "beta": 0.0, "bottleneck": None, "release": [noise]}, "pool2")
        {'sigma': 1.0, 'bottleneck': 'none', 'cut': 'pool2'}
    """
    keys: dict[str, Any] = {}
    if defence["name"] != NONE:
        keys |= {"lambda": defence["lambda"], **penalty_options(defence)}
    for each in defence.get("release") or []:
        for name, value in each.items():
            if name != "name":
                keys[name if keys.get(name, value) == value else f"{name} of {each['name']}"] = hashable(value)
    if defence.get("weights"):
        keys["weights"] = defence["weights"]
    return {**keys, "bottleneck": defence.get("bottleneck") or NONE, "cut": cut}


def penalty_options(defence: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a record's penalty: β is 0 in records of penalties that have none, and no option of theirs."""
    recorded = {name: hashable(value) for name, value in defence.items() if name not in OF_THE_RECORD}
    known = PENALTIES.known.get(defence["name"])
    if known is None:  # a user's own, whose file is not run for a report
        return {name: value for name, value in recorded.items() if name != "beta" or value}
    return {name: recorded.get(name, each.default) for name, each in known.options.items()}


def hashable(value: Any) -> Any:
    """A value that can be compared and kept in a set."""
    return json.dumps(value, sort_keys=True) if isinstance(value, list | dict) else value


def family_of(defence: Mapping[str, Any]) -> str:
    """Cells of one family differ in numbers: the same penalty, the same releases one after the other.

    Example:
        >>> family_of({"name": "compress", "release": [{"name": "gaussian", "sigma": 1.0}]})
        'compress + gaussian'
    """
    parts = [AS_GIVEN] if defence.get("weights") else []
    parts += [penalty_title(defence["name"])] if defence["name"] != NONE else []
    parts += [each["name"].rpartition(":")[2] for each in defence.get("release") or []]
    return " + ".join(parts) or ("Vanilla" if is_vanilla(dict(defence)) else "bottleneck")


def axes_of(places: Sequence[Keys]) -> list[Axis]:
    """The keys in which these differ, the paper's first; what some of them do not have is no difference."""
    names = dict.fromkeys(name for keys in places for name in keys)
    axes = []
    for name in sorted(names, key=rank):
        values = {keys[name] for keys in places if name in keys}
        if len(values) > 1:
            axes.append(axis_of(name, values))
    return axes


def rank(name: str) -> int:
    """Which axes come first, and which last; the others stay in the order in which defences declare them."""
    return FIRST.index(name) if name in FIRST else len(FIRST) + (name in LAST)


def axis_of(name: str, values: Iterable[Any]) -> Axis:
    """An axis with its values in order."""
    found = sorted(values, key=lambda value: order_of(name, value))
    return Axis(name, label_of(name), tuple(found), all(map(is_number, found)))


def order_of(name: str, value: Any) -> tuple[Any, ...]:
    """What a value is sorted by: numbers by their size, none before words, words by the numbers in them.

    Example:
        >>> sorted(["pool2", "conv2", "pool1"], key=lambda value: order_of("cut", value))
        ['pool1', 'conv2', 'pool2']
        >>> sorted(["120-16", "none", "16", "8"], key=lambda value: order_of("bottleneck", value))
        ['none', '8', '16', '120-16']
    """
    if is_number(value):
        return (0, [-value if name in STRONGER_IF_SMALLER else value], "")
    text = str(value)
    numbers = [int(each[:18]) for each in re.findall(r"\d+", text)]
    return (1 if text == NONE else 2 if numbers else 3, numbers, text)


def label_of(name: str) -> str:
    """λ for lambda; of an option the symbol that its help begins with, else the name of its flag.

    Example:
        >>> label_of("lambda"), label_of("sigma"), label_of("drop"), label_of("bits"), label_of("proxy_lr")
        ('λ', 'σ', 'p', 'bits', 'proxy-lr')
    """
    if name == "lambda":
        return "λ"
    option, _, part = name.partition(" of ")
    for known in (*PENALTIES.known.values(), *RELEASES.known.values()):
        symbol = known.options[option].help.partition(",")[0] if option in known.options else ""
        if len(symbol) == 1:
            return f"{symbol} of {part}" if part else symbol
    return name.replace("_", "-")


def written(value: Any) -> str:
    """A value as tables and axes have it.

    Example:
        >>> written(1e-4), written(True), written("120-16"), written(8)
        ('1e-4', 'yes', '120-16', '8')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value) if is_number(value) else str(value)
