"""Options as they are written: what `--help` lists, read from the source, so that nobody waits for torch to see it.

A class that is registered with `@REGISTRY("name")` has the options `name: type = option(…)` of its body, and before
them those of its first base class, unless it says `options = {}`. What stands in an `option(…)` must be literals, or
constants that are: a module's own, or imported.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweetspot.options import Option, option

ROOT = Path(__file__).parent
KINDS = {kind.__name__: kind for kind in (bool, float, int, str)}


class NotWrittenOutError(Exception):
    """An option whose values are computed: one must load its class to know them."""


@functools.cache
def declared_in(package: str, registry: str) -> dict[str, dict[str, Option]]:
    """The options of every class that the modules of a package register, by the class's name there."""
    folder = file_of(package).parent
    found: dict[str, dict[str, Option]] = {}
    for file in sorted(folder.rglob("*.py")):
        if f"@{registry}(" not in file.read_text(encoding="utf-8"):
            continue
        module = Source(file)
        for name, each in module.registered(registry):
            found[name] = module.options_of(each)
    if not found:
        raise NotWrittenOutError(f"there is no source of {package}")
    return found


def file_of(module: str) -> Path:
    """Where a module of ours is written; finding it imports nothing."""
    path = ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class Source:
    """A module as it is written.

    Args:
        file: of the module.
    """

    def __init__(self, file: Path) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        self.constants: dict[str, ast.expr] = {}
        self.imports: dict[str, str] = {}  # the module that a name comes from
        for each in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(each, ast.ClassDef):
                self.classes[each.name] = each
            elif isinstance(each, ast.ImportFrom) and (each.module or "").startswith("sweetspot."):
                self.imports |= {name.asname or name.name: str(each.module) for name in each.names}
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None:
                self.constants[each.target.id] = each.value
            elif isinstance(each, ast.Assign):
                self.constants |= dict(assigned(each.targets[0], each.value))

    def registered(self, registry: str) -> Iterator[tuple[str, ast.ClassDef]]:
        """The classes under a decorator `@REGISTRY("name")`, each with that name."""
        for each in self.classes.values():
            for decorator in each.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == registry:
                    yield self.value(decorator.args[0]), each

    def options_of(self, found: ast.ClassDef) -> dict[str, Option]:
        """What a class declares, with what its first base class does before it."""
        options = self.inherited(found.bases[0].id) if found.bases and isinstance(found.bases[0], ast.Name) else {}
        for each in found.body:
            if isinstance(each, ast.Assign) and ast.unparse(each) == "options = {}":
                options = {}
            if not (isinstance(each, ast.AnnAssign) and isinstance(each.value, ast.Call)):
                continue
            if ast.unparse(each.value.func) != "option":
                continue
            given = {str(word.arg): self.value(word.value) for word in each.value.keywords}
            described = option(*(self.value(value) for value in each.value.args), **given)
            if (kind := KINDS.get(ast.unparse(each.annotation))) is None:
                raise NotWrittenOutError(f"{ast.unparse(each.target)} is a {ast.unparse(each.annotation)}")
            options[ast.unparse(each.target)] = Option(**{**vars(described), "kind": kind})
        return options

    def inherited(self, base: str) -> dict[str, Option]:
        """The options of a class by its name here; none of one that is not ours."""
        if base in self.classes:
            return self.options_of(self.classes[base])
        return Source(file_of(self.imports[base])).inherited(base) if base in self.imports else {}

    def value(self, written: ast.expr) -> Any:
        """What an expression stands for: a literal, or a constant by its name; of a dictionary its keys."""
        if isinstance(written, ast.Name) and written.id in self.constants:
            return self.value(self.constants[written.id])
        if isinstance(written, ast.Name) and written.id in self.imports:
            return Source(file_of(self.imports[written.id])).value(written)
        if isinstance(written, ast.Dict):
            return tuple(self.value(key) for key in written.keys if key is not None)
        if isinstance(written, ast.BinOp) and isinstance(written.op, ast.Div):
            return self.value(written.left) / self.value(written.right)
        try:
            return ast.literal_eval(written)
        except ValueError as error:
            raise NotWrittenOutError(ast.unparse(written)) from error


def assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment gives values, also several at once."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its_value in zip(target.elts, value.elts, strict=False):
            yield from assigned(one, its_value)
