"""The layout of --help: as wide as the terminal, a short word for each value, examples that can be copied."""

from __future__ import annotations

import argparse
import re
import textwrap
import types
import typing
from collections.abc import Sequence
from typing import Any

WIDEST = 120  # columns: longer lines are hard to read, however wide the terminal is
FLAG_COLUMNS = 28  # at most, before the words about a flag begin
EXAMPLES = "examples:"
LONGEST_VALUE = 10
VALUES: dict[Any, str] = {int: "N", float: "X", bool: "true|false"}


class HelpLayout(argparse.HelpFormatter):
    """Help that fits the terminal, with the examples at its end line by line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "max_help_position": FLAG_COLUMNS})
        self._width = min(self._width, WIDEST)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """A paragraph, or the examples."""
        if text.startswith(EXAMPLES):
            return "\n".join([EXAMPLES, *examples_in(text.splitlines()[1:], width)])
        return super()._fill_text(text, width, indent)

    def _format_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None) -> str:
        """The usage with what belongs together in one line."""
        lines = [usage_in(line, self._width) for line in (usage or "").splitlines()]
        return "usage: " + "\n       ".join(lines).removeprefix(" ") + "\n\n"

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """What follows a flag: `N …` where it takes several values."""
        if action.nargs in (argparse.ONE_OR_MORE, argparse.ZERO_OR_MORE):
            return f"{self._metavar_formatter(action, default_metavar)(1)[0]} …"
        return super()._format_args(action, default_metavar)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """A flag with what follows it, once; the parser's `--flag+` forms are for files."""
        names = [name for name in action.option_strings if not name.endswith("+")]
        if not names:
            return super()._format_action_invocation(action)
        follows = "" if action.nargs == 0 else self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(names)} {follows}".rstrip()


def placeholder(flag: str, hint: Any) -> str:
    """What stands for the value of a flag: N for a whole number, X for a number, else the flag's last word if short.

    Example:
        >>> placeholder("--batch-size", int), placeholder("--sigma", float | None), placeholder("--data-root", str)
        ('N', 'X', 'ROOT')
        >>> placeholder("--observe", bool), placeholder("--standardise", list[str])
        ('true|false', 'VALUE')
    """
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) else (hint,)
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    last = re.split(r"[-._]", flag)[-1].upper()
    return VALUES.get(kinds[0] if len(kinds) == 1 else None, last if len(last) <= LONGEST_VALUE else "VALUE")


def usage_in(usage: str, width: int) -> str:
    """A usage in lines of a width, `[--flag VALUE]` never split.

    Example:
        >>> usage_in("train [--lambda X] [--beta X]", 33)
        'train [--lambda X]\\n         [--beta X]'
    """
    lines = [""]
    for part in re.findall(r"\[[^]]*\]|\([^)]*\)|\S+", usage):
        if lines[-1].strip() and len("usage: ") + len(lines[-1]) + 1 + len(part) > width:
            lines.append("  ")
        lines[-1] += (" " if lines[-1].strip() else "") + part
    return "\n       ".join(lines)


def examples_in(lines: Sequence[str], width: int) -> list[str]:
    """Examples in lines of a width: as they are where all fit, else what each does above it, and long ones broken.

    Example:
        >>> print(*examples_in(["  train --lambda 1 --beta 1e-4   MixCon"], 30), sep="\\n")
          # MixCon
          train --lambda 1 \\
              --beta 1e-4
    """
    if all(len(line) <= width for line in lines):
        return list(lines)
    shown = []
    for line in lines:
        command, _, about = re.sub(r" {2,}", "\n", line.strip()).partition("\n")
        shown += textwrap.wrap(about, width, initial_indent="  # ", subsequent_indent="  # ")
        shown += broken(command, width)
    return shown


def broken(command: str, width: int) -> list[str]:
    """A command in lines of a width, broken before a flag as a shell takes it."""
    lines = [" "]
    for part in re.split(r" (?=--)", command):
        if len(lines[-1]) + 1 + len(part) + len(" \\") > width:
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += " " + part
    return lines
