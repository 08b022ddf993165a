"""The arguments of Lightning's Trainer, read from its source: importing Lightning takes longer than most commands."""

from __future__ import annotations

import ast
import datetime
import importlib.util
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docstring_parser

# what can be written on a command line; of an annotation's other names, which are classes of Lightning, none can
TYPES: dict[str, Any] = {each.__name__: each for each in (bool, float, int, str, list, dict, datetime.timedelta)}


@dataclass(frozen=True)
class TrainerFlag:
    """One argument of the Trainer.

    Args:
        name: of the argument.
        kind: its type, as far as a command line can give it; Any where only Lightning knows.
        default: its value where none is given.
        help: what Lightning says about it, without its markup and its default.
        said_default: what it says the default is; None where that is nothing, or it does not say.
    """

    name: str
    kind: Any
    default: Any
    help: str
    said_default: str | None


def trainer_flags() -> list[TrainerFlag]:
    """Every argument of the installed Trainer, in its order."""
    signature, words = written()
    helps = {each.arg_name: unmarked(each.description or "") for each in docstring_parser.parse(words).params}
    return [
        TrainerFlag(each.arg, kind_of(each.annotation), ast.literal_eval(default), *helps.get(each.arg, ("", None)))
        for each, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)
        if default is not None
    ]


def written() -> tuple[ast.arguments, str]:
    """The signature and the docstring of `Trainer.__init__`."""
    spec = importlib.util.find_spec("lightning")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("lightning is not installed")
    file = Path(spec.origin).parent / "pytorch" / "trainer" / "trainer.py"
    for each in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(each, ast.ClassDef) and each.name == "Trainer":
            (made,) = [part for part in each.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
            return made.args, ast.get_docstring(made) or ""
    raise ImportError(f"there is no Trainer in {file}")


def unmarked(text: str) -> tuple[str, str | None]:
    """A text of Lightning's documentation in one line, without markup, and the default that it ends in.

    Example:
        >>> unmarked("How often, as a\\n  :class:`datetime.timedelta`.\\n  Default: ``1.0``.")
        ('How often, as a datetime.timedelta.', '1.0')
    """
    plain = re.sub(r":\w+:`~?([^`]*)`", r"\1", " ".join(text.split())).replace("`", "")
    words, _, default = plain.partition(" Default: ")
    return words, None if default in ("", "None.") else default.removesuffix(".")


def kind_of(annotation: ast.expr | None) -> Any:
    """The type that an annotation stands for, without what a command line cannot give.

    Example:
        >>> kind_of(ast.parse("Optional[Union[Profiler, str]]", mode="eval").body)
        typing.Optional[str]
    """
    if isinstance(annotation, ast.Name):
        return TYPES.get(annotation.id, Any if annotation.id.startswith("_") else None)  # _… are aliases of Lightning
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.value, ast.Name):
        return Any
    inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    kinds = [kind for kind in map(kind_of, inner) if kind is not None]
    if Any in kinds or not kinds:
        return Any
    if annotation.value.id in ("Optional", "Union"):
        empty = [type(None)] if annotation.value.id == "Optional" else []
        return typing.Union[(*kinds, *empty)]  # their number is not known here
    return TYPES[annotation.value.id][tuple(kinds)] if annotation.value.id in ("list", "dict") else Any
