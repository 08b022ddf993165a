"""Run: one folder under checkpoints/ with config.yaml, last.ckpt, results.json, logs and figures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import yaml

from errors import BusyError, UserError
from files import replacing

SECTIONS = {
    "name",
    "data",
    "model",
    "defence",
    "utility",
    "separability",
    "attacks",
    "worst_case",
    "config",
    "environment",
}


def make_writable(folder: Path, out: Path) -> None:
    """Make a folder below `out`, or `out` itself, or say that it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror}); choose another folder") from error


def read_json(file: Path) -> Any:
    """What a JSON file says; a ValueError where it is none, or says NaN or infinity, which no run of ours writes."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number")

    try:
        return json.loads(file.read_text(encoding="utf-8"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True)
class Run:
    """The folder of one run; `results.json` is written last, so a run that has it is finished."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def checkpoint(self) -> Path:
        return self.folder / "last.ckpt"

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def results(self) -> Path:
        return self.folder / "results.json"

    @property
    def failure(self) -> Path:
        return self.folder / "failed.json"

    @property
    def originals(self) -> Path:
        """What the pictures of a run compare with: the attacked images `x` and their `inputs`, indices of tests."""
        return self.folder / "originals.npz"

    def recovered(self, attack: str) -> Path:
        """What an attack gave back, `x`."""
        return self.folder / f"recovered-{attack.replace('/', '-')}.npz"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def finished(self) -> bool:
        return self.results.is_file()

    def create(self) -> None:
        """Make the folder, or say that it cannot be made."""
        make_writable(self.folder, out=self.folder.parent)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the run while it is made: a second process on it is turned away, not mixed in."""
        locks = self.folder.parent / ".locks"
        locks.mkdir(exist_ok=True)
        lock = filelock.FileLock(locks / f"{self.name}.lock", timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise BusyError(
                f"another process is working on {self.folder}; wait for it, or choose another --out"
            ) from None
        try:
            for litter in self.folder.glob(".*.tmp*"):  # of a process that was killed while it wrote
                litter.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def wait_until_set_aside(self, forced: bool, seconds: float = 60.0) -> None:
        """Where a run is to be done again by several processes: wait for the first of them to move the old one away."""
        deadline = time.monotonic() + seconds
        while forced and self.finished and time.monotonic() < deadline:
            time.sleep(0.05)

    def set_aside(self) -> None:
        """Move a finished run to `.previous/` beside it, in one step: a forced run replaces, it does not destroy."""
        aside = self.folder.parent / ".previous" / self.name
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(exist_ok=True)
        self.folder.rename(aside)
        self.folder.mkdir()

    def write_config(self, config: dict[str, Any]) -> None:
        """What the run was made with; `train.py --config` takes this file."""
        with replacing(self.config) as temporary:
            temporary.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")

    def write_results(self, results: dict[str, Any]) -> None:
        """Finish the run."""
        text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
        with replacing(self.results) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        self.failure.unlink(missing_ok=True)

    def write_failure(self, failure: dict[str, Any]) -> None:
        """Why the run has no results: a later success removes it."""
        with replacing(self.failure) as temporary:
            temporary.write_text(json.dumps(failure, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def read_failure(self) -> dict[str, Any]:
        """What a failed run left behind: its `name`, `error`, `defence` and `config`."""
        try:
            failure: dict[str, Any] = read_json(self.failure)
            if not isinstance(failure, dict) or not failure.keys() >= {"name", "error", "defence", "config"}:
                raise ValueError("it needs name, error, defence and config")
        except (OSError, ValueError) as error:
            raise UserError(f"{self.failure} cannot be read ({error}); remove it") from error
        return failure

    def read_results(self) -> dict[str, Any]:
        """What the run found."""
        try:
            results: dict[str, Any] = read_json(self.results)
            if not isinstance(results, dict) or not results.keys() >= SECTIONS:
                raise ValueError(f"it needs {', '.join(sorted(SECTIONS))}")
            if not all(isinstance(results[section], dict) for section in SECTIONS - {"name"}):
                raise ValueError("a section of it is no mapping")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.results} cannot be read ({error}); remove it, and the same command writes it anew"
            ) from error
        return results
