"""Things by name: each registers itself once, a user's own is named `path/to/file.py:Class`, and a slip is answered."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from sweetspot.declarations import NotWrittenOutError, declared_in
from sweetspot.errors import UserError, first_line, nearest
from sweetspot.options import Declared, Option

T = TypeVar("T", bound=Declared)
NAMED: set[str] = set()  # modules of packages that the user has named as code
OF_USERS = ("sweetspot.attacks", "sweetspot.lightning_modules.defences")  # rooms that users' files build on


class Registry(Generic[T]):
    """Classes of one kind by name.

    Args:
        kind: what they are, in words, such as `penalty`.
        base: what a user's own must be a subclass of.
    """

    def __init__(self, kind: str, base: type[T]) -> None:
        self.kind, self.given_base = kind, base
        self.registered: dict[str, type[T]] = {}

    @property
    def base(self) -> type[T]:
        """What a user's own must be a subclass of."""
        return self.given_base

    @property
    def known(self) -> dict[str, type[T]]:
        """Every class by its name."""
        return self.registered

    def options(self) -> dict[str, dict[str, Option]]:
        """The options of every class by its name."""
        return {name: found.options for name, found in self.known.items()}

    def __call__(self, name: str) -> Callable[[type[T]], type[T]]:
        """`@PENALTIES("mixcon")` above a class registers it; a name that is taken is an error."""

        def register(found: type[T]) -> type[T]:
            if self.registered.get(name, found) is not found:
                raise ValueError(f"there is a {self.kind} {name} already: {self.registered[name].__name__}")
            self.registered[name] = found
            found.name = name
            return found

        return register

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __getitem__(self, name: str) -> type[T]:
        """The class of this name, or of `path/to/file.py:Class`."""
        if is_users_own(name):
            base, found = self.base, load_class(name)
            if not issubclass(found, base):
                raise UserError(f"{name} is no {self.kind}: it must be a subclass of {base.__name__}")
            found.name = name
            return found
        if name not in self.known:
            near = nearest(name, self.known)
            hint = f"; did you mean {near}?" if near else ""
            raise UserError(
                f"there is no {self.kind} {name}{hint} (there are {', '.join(self.known)}, "
                f"and your own as path/to/file.py:Class)"
            )
        return self.known[name]


class RoomRegistry(Registry[T]):
    """The classes of a room: it is imported when one of them is looked up, and their options are known before.

    Args:
        kind: what they are, in words.
        package: the room, which registers them when it is imported.
        base: what in it a user's own must be a subclass of.
        called: by which name the room's files call this registry.
    """

    def __init__(self, kind: str, package: str, base: str, called: str) -> None:
        self.kind, self.package, self.base_name, self.called = kind, package, base, called
        self.registered = {}

    @property
    def base(self) -> type[T]:
        base: type[T] = getattr(importlib.import_module(self.package), self.base_name)
        return base

    @property
    def known(self) -> dict[str, type[T]]:
        importlib.import_module(self.package)
        return self.registered

    def options(self) -> dict[str, dict[str, Option]]:
        try:
            declared = declared_in(self.package, self.called)
        except NotWrittenOutError:
            return super().options()
        return {**declared, **{name: found.options for name, found in self.registered.items()}}


def is_users_own(name: str) -> bool:
    """Whether a name is a class in a file.

    Example:
        >>> is_users_own("my_defences.py:Shuffle"), is_users_own("mixcon")
        (True, False)
    """
    return name.partition(":")[0].endswith(".py")


def module_name(path: str) -> str:
    """What a user's file is called once it is loaded: a name of its own, so that two loads do not make two classes."""
    return f"sweetspot_user_{hashlib.sha256(str(Path(path).resolve()).encode()).hexdigest()[:12]}"


def is_loaded(name: str) -> bool:
    """Whether the user has named the file of `path/to/file.py:Class`, or a module, as code in this process."""
    place = name.partition(":")[0]
    return module_name(place) in sys.modules if place.endswith(".py") else place in NAMED


def load_code(name: str) -> ModuleType:
    """The module that the user names as code, `path/to/file.py` or `package.module`, also one below this folder."""
    if name.endswith(".py"):
        return load_file(name)
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise UserError(f"{name} cannot be imported ({type(error).__name__}: {first_line(error)})") from error
    finally:
        sys.path.remove(here)
    NAMED.add(name)
    return module


def load_file(path: str) -> ModuleType:
    """The module in a file that the user names as code: it is run, once."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    name = module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, Path(path).resolve())
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is no Python file")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with short_names():
            spec.loader.exec_module(sys.modules[name])
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"{path} cannot be run ({type(error).__name__}: {first_line(error)})") from error
    return sys.modules[name]


@contextmanager
def short_names() -> Iterator[None]:
    """While a user's file runs, `lightning_modules.defences` and the like mean ours, as in files of before 0.2.

    A package of that name that the user has stays theirs.
    """
    for room in OF_USERS:
        importlib.import_module(room)
    short = {
        name.removeprefix("sweetspot."): module for name, module in sys.modules.items() if name.startswith("sweetspot.")
    }
    for first in {name.partition(".")[0] for name in short}:
        if is_anothers(first, short[first]):
            short = {name: module for name, module in short.items() if name.partition(".")[0] != first}
    added = {name: module for name, module in short.items() if name not in sys.modules}
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def is_anothers(name: str, ours: ModuleType) -> bool:
    """Whether importing this name gives something else than this module of ours, or nothing to be known of it."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # in use without a spec, as __main__ of the command `sweetspot`
        return True
    if spec is None:
        return False
    return spec.origin is None or Path(spec.origin).resolve() != Path(ours.__file__ or "").resolve()


def load_class(name: str) -> type[Any]:
    """The class that `path/to/file.py:Class` names. The file is the user's code, and is run."""
    path, _, wanted = name.partition(":")
    if not wanted:
        raise UserError(f"{name} names no class: write {path}:Class")
    module = load_file(path)
    found = getattr(module, wanted, None)
    if not isinstance(found, type):
        classes = [each for each, value in vars(module).items() if isinstance(value, type)]
        near = nearest(wanted, classes)
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"{path} has no class {wanted}{hint}")
    return found
