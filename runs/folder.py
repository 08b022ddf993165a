"""Run: one folder under checkpoints/ with config.yaml, last.ckpt, results.json, logs and figures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import yaml

from errors import UserError
from files import replacing


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
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def finished(self) -> bool:
        return self.results.is_file()

    def create(self) -> None:
        """Make the folder, or say that it cannot be made."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(
                f"--out {self.folder.parent} cannot be written ({error.strerror}); choose another folder"
            ) from error

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder while a run is made in it: a second process on the same run is turned away, not mixed in."""
        lock = filelock.FileLock(self.folder / ".lock", timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise UserError(
                f"another process is working on {self.folder}; wait for it, or choose another --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def set_aside(self) -> None:
        """Move a finished run's files to `.previous/` beside it: a forced run replaces, it does not destroy."""
        aside = self.folder.parent / ".previous" / self.name
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for entry in sorted(
            self.folder.iterdir(), key=lambda entry: entry != self.results
        ):  # results.json first: then it is unfinished
            if entry.name != ".lock":
                shutil.move(str(entry), aside / entry.name)

    def write_config(self, config: dict[str, Any]) -> None:
        """What the run was made with; `train.py --config` takes this file."""
        with replacing(self.config) as temporary:
            temporary.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")

    def write_results(self, results: dict[str, Any]) -> None:
        """Finish the run."""
        text = json.dumps(results, indent=2, ensure_ascii=False, allow_nan=False)
        with replacing(self.results) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    def read_results(self) -> dict[str, Any]:
        """What the run found."""
        try:
            results: dict[str, Any] = json.loads(self.results.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.results} cannot be read ({error}); remove it, and the same command writes it anew"
            ) from error
        return results
