"""Runs as they lie in folders: finished ones, failed ones, recovered gradients, and what cannot be read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from errors import UserError
from metrics.summary import HIGHER_IS_WORSE
from runs.folder import Run, read_json


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


NEEDED: dict[str, dict[str, Any]] = {
    "data": {"name": str, "source": str, "train": int, "test": int, "shape": list},
    "model": {"name": str, "cut": str},
    "defence": {"name": str, "lambda": (int, float), "beta": (int, float)},
    "utility": {"accuracy": (int, float)},
    "separability": {"mean": (int, float)},
    "config": {"seed": int, "epochs": int, "batch_size": int, "lr": (int, float), "trainer": dict},
    "environment": {"versions": dict, "device": str, "seconds": (int, float)},
}
OF_AN_ATTACK: dict[str, Any] = {
    "settings": dict, "samples": int, "seconds": (int, float), "inputs": list, "scores": dict, "recovered": list,
    "observed": dict, "channels": dict,
}  # fmt: skip


def what_is_missing(results: dict[str, Any]) -> str:
    """The first thing that a report needs of a run and that its results do not have; empty: they have it all."""
    for section, fields in NEEDED.items():
        for name, kind in fields.items():
            if not isinstance(results[section].get(name), kind):
                return f"{section}.{name}"
    if not all(isinstance(side, int) for side in results["data"]["shape"]):
        return "data.shape"
    if "tokenizer" in results["data"] and not is_number(results["utility"].get("perplexity")):
        return "utility.perplexity"
    for key, record in results["attacks"].items():
        if not isinstance(record, dict) or not record.keys() >= {"settings", "samples"}:
            return f"attacks.{key} of this version"
        if wrong := what_is_wrong_with(record):
            return f"attacks.{key}.{wrong}"
    worst = results["worst_case"]
    names = worst.get("attacks", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name in results["attacks"] for name in names):
        return "worst_case.attacks"
    return f"worst_case.{wrong}" if (wrong := wrong_figure(worst)) else ""


def what_is_wrong_with(record: dict[str, Any]) -> str:
    """The first thing about an attack that is not of its kind; empty: nothing."""
    for name, kind in OF_AN_ATTACK.items():
        if record.get(name) is not None and not isinstance(record[name], kind):
            return name
    if not all(isinstance(index, int) for index in record.get("inputs") or []):
        return "inputs"
    if not all(isinstance(each, list) for each in (record.get("scores") or {}).values()):
        return "scores"
    if not all(isinstance(prompt, dict) for prompt in record.get("recovered") or []):
        return "recovered"
    for name, behind in (record.get("channels") or {}).items():
        if not isinstance(behind, dict) or not is_number(behind.get("perplexity")) or wrong_figure(behind):
            return f"channels.{name}"
    return wrong_figure(record)


def wrong_figure(record: dict[str, Any]) -> str:
    """The first metric whose summary lacks a number; empty: none."""
    for name in HIGHER_IS_WORSE.keys() & record.keys():
        figures = record[name]
        if not isinstance(figures, dict) or not all(is_number(figures.get(part)) for part in ("mean", "std", "worst")):
            return name
    return ""


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_whole(run: Run) -> dict[str, Any]:
    """The results of a finished run, with all that is needed of them; a UserError names what is missing."""
    results = run.read_results()
    if missing := what_is_missing(results):
        raise UserError(f"{run.results} cannot be read (no {missing} in it)")
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
