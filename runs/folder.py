"""Run: one folder under checkpoints/ with config.yaml, last.ckpt, results.json, logs and figures."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shlex
import shutil
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import yaml

from sweetspot.errors import BusyError, UserError
from sweetspot.files import LONGEST, replacing
from sweetspot.runs.record import missing_in, wrong_in

PATIENCE = 0.5  # seconds to wait for a run: whoever only looks whether it is held lets go of it at once


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

    def finite(text: str) -> float:
        if not math.isfinite(number := float(text.lower())):
            raise ValueError(f"{text} is no number")
        return number

    def held(text: str) -> int:
        if abs(number := int(text)) >= 2**63:
            raise ValueError(f"{text[:20]}… is no number that a machine holds")
        return number

    try:
        return json.loads(file.read_text("utf-8"), parse_constant=finite, parse_float=finite, parse_int=held)
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

    def check_name(self) -> None:
        """Refuse a name that no folder can have."""
        if len(os.fsencode(self.name)) > LONGEST:
            raise UserError(f"the run's name {self.name} is too long for a folder; rename the dataset")

    def create(self) -> None:
        """Make the folder, or say that it cannot be made."""
        make_writable(self.folder, out=self.folder.parent)

    @property
    def lock(self) -> Path:
        """The file that whoever works on the run holds: beside the folder, which may be moved away meanwhile."""
        name = f"{self.name}.lock"
        if len(os.fsencode(name)) > LONGEST:
            name = f"{hashlib.sha256(os.fsencode(self.name)).hexdigest()}.lock"
        return self.folder.parent / ".locks" / name

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the run while it is made: a second process on it is turned away, not mixed in."""
        self.lock.parent.mkdir(exist_ok=True)
        lock = filelock.FileLock(self.lock, timeout=PATIENCE)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise BusyError(f"another process is working on {self.folder}; wait for it") from None
        try:
            for litter in self.folder.glob(".*.tmp*"):  # of a process that was killed while it wrote
                litter.unlink(missing_ok=True)
            yield
        except (OSError, RuntimeError) as error:
            if self.folder.is_dir() or isinstance(error, filelock.Timeout):
                raise
            raise UserError(f"{self.folder} was removed while it was worked on; the command begins anew") from error
        finally:
            lock.release()

    def is_held(self) -> bool:
        """Whether another process is working on the run; nothing is made, removed or kept from anybody by looking."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:  # a shared lock: it is refused where another process holds its own, and does not refuse who looks too
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def command(self) -> str:
        """The command that goes on with the run, or, with `--force`, makes it again."""
        return shlex.join(["python", "train.py", "--config", str(self.config), "--out", str(self.folder.parent)])

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
        """What the run found, if everything in it is of its kind."""
        try:
            results: dict[str, Any] = read_json(self.results)
        except OSError as error:
            raise UserError(f"{self.results} cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise UserError(f"{self.results} cannot be read ({error}); {self.results_anew()}") from error
        wrong, missing = wrong_in(results), ""
        if wrong or (missing := missing_in(results)):
            what = f"its {wrong} is not what sweetspot writes" if wrong else f"no {missing} in it"
            raise UserError(f"{self.results} cannot be read ({what}); {self.results_anew()}")
        return results

    def results_anew(self) -> str:
        """What to do about results that cannot be read: it works when done."""
        if self.checkpoint.is_file() and self.config.is_file():
            return f"remove it, and `{self.command()}` writes it anew"
        return "remove the folder, and train the run again"

    def read_recovered(self, attack: str, shape: tuple[int, ...]) -> np.ndarray:
        """What an attack gave back, as it is kept, if it is of this shape (N, …)."""
        file = self.recovered(attack)
        try:
            with np.load(file, allow_pickle=False) as kept:
                x: np.ndarray = kept["x"]
        except OSError as error:
            if error.errno is not None:
                raise UserError(f"{file} cannot be read ({error.strerror})") from error
            raise UserError(damaged(file)) from error
        except (ValueError, LookupError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(damaged(file)) from error
        if not np.issubdtype(x.dtype, np.floating) or x.shape != shape:
            raise UserError(damaged(file))
        return x


def damaged(file: Path) -> str:
    """What to do about a file of pictures that is damaged."""
    return f"{file} is damaged; remove it, and the same command goes on without its pictures"
