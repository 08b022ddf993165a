"""Runs as they lie in folders: finished ones, failed ones, recovered gradients, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError
from sweetspot.runs.folder import Run, read_json


@dataclass(frozen=True)
class FoundRun:
    """A finished run: its folder, for the pictures in it, and its results."""

    folder: Path
    results: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_text(self) -> bool:
        return "tokenizer" in self.results["data"]


@dataclass(frozen=True)
class FoundGradient:
    """A batch that came back from a gradient: `invert.py gradient --out FILE.json`."""

    file: Path
    results: dict[str, Any]


@dataclass
class Gathered:
    """Everything that a report is about.

    Args:
        runs: finished runs, by name.
        failed: what a failed cell of a sweep left behind: its `name`, `error`, `defence` and `config`.
        unfinished: names of runs that have begun and have no results yet.
        gradients: recovered batches.
        skipped: one line for each file that should have been results and cannot be read.
    """

    runs: list[FoundRun] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    gradients: list[FoundGradient] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def gather(paths: Iterable[Path]) -> Gathered:
    """What lies at these paths: run folders, folders of them at any depth, results of gradient inversion.

    Hidden folders are not searched: what a forced run replaced is no result any more. A path that does not exist, and
    paths with nothing in them that could be read, are the user's to mend; one broken run among others is named in
    `skipped`.
    """
    found, asked = Gathered(), list(paths)
    seen: set[Path] = set()
    for path in asked:
        if not path.exists():
            raise UserError(f"there is no folder {path}; give a folder with runs in it, such as checkpoints/")
        for each in sorted(walk(path, found)):
            if each.resolve() not in seen:
                seen.add(each.resolve())
                take(each, found)
    if not (found.runs or found.failed or found.gradients):
        here = " ".join(str(path) for path in asked)
        broken = f" that can be read ({found.skipped[0]})" if found.skipped else ""
        begun = f"; {len(found.unfinished)} unfinished: the command that began them goes on" if found.unfinished else ""
        raise UserError(f"{here} holds no finished run{broken}; train.py and sweep.py make them{begun}")
    return found


def walk(path: Path, found: Gathered) -> Iterable[Path]:
    """Run folders and .json files at or below a path; folders that cannot be looked into are skipped."""
    if path.is_file():
        yield path.parent if path.name in ("results.json", "last.ckpt", "config.yaml") else path
    elif is_run(path):
        yield path
    else:
        try:
            below = list(path.iterdir())
        except OSError as error:
            found.skipped.append(f"{path} cannot be looked into ({error.strerror})")
            return
        for each in below:
            is_folder = each.is_dir() and not each.is_symlink()  # a link may lead back up
            if not each.name.startswith(".") and (is_folder or each.suffix == ".json"):
                yield from walk(each, found)


def is_run(folder: Path) -> bool:
    """Whether a folder is a run, in whatever state."""
    run = Run(folder)
    return any(file.is_file() for file in (run.results, run.failure, run.config, run.checkpoint))


def read_whole(run: Run) -> dict[str, Any]:
    """The results of a finished run, with all that is needed of them; a UserError names what is missing."""
    results = run.read_results()
    for key, record in results["attacks"].items():
        if record.get("settings") is None or record.get("samples") is None:
            raise UserError(f"{run.results} cannot be read (no attacks.{key} of this version in it)")
    return results


def take(path: Path, found: Gathered) -> None:
    """Add what lies at one path."""
    try:
        if path.is_file():
            results = read_json(path)
            if isinstance(results, dict) and results.keys() >= {"network", "recovered", "verdict", "data"}:
                found.gradients.append(FoundGradient(path, results))
            return
        run = Run(path)
        if run.failure.is_file():  # trained, perhaps, and lost in an attack
            found.failed.append(run.read_failure())
        if run.finished:
            results = read_whole(run)
            twin = next((each for each in found.runs if each.results["name"] == results["name"]), None)
            if twin is not None:  # it would pass for another seed
                raise UserError(f"{path} holds the same run as {twin.folder}, which is taken")
            found.runs.append(FoundRun(path, results))
        elif not run.failure.is_file():
            found.unfinished.append(path.name)
    except UserError as error:
        found.skipped.append(str(error))
    except (OSError, ValueError) as error:
        found.skipped.append(f"{path} cannot be read ({error})")
