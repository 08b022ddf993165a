"""What the tests share: tiny datasets, one-second configs, and the command lines as a user runs them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs.config import TrainConfig

ROOT = Path(__file__).resolve().parent.parent
os.environ.pop("SWEETSPOT_DATA", None)  # no test may lean on data that happen to lie on this machine


def readme_commands(script: str) -> list[list[str]]:
    """Every `python SCRIPT …` line of the README, without its comment."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    return [shlex.split(line, comments=True)[2:] for line in lines if line.startswith(f"python {script}")]


def refused_by(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], says: str, *argv: str) -> None:
    """Assert that a script ends with exit code 2 and one line that says why."""
    capsys.readouterr()
    assert main(list(argv)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert says in lines[0], lines[0]


@pytest.fixture
def npz(tmp_path: Path) -> Callable[..., Path]:
    """`npz(**arrays)` writes a small learnable image set, with any of its four arrays replaced (None: left out)."""

    def write(name: str = "images.npz", classes: int = 3, count: int = 60, **replaced: Any) -> Path:
        rng = np.random.default_rng(0)
        arrays: dict[str, Any] = {}
        for split, size in (("train", count), ("test", count // 2)):
            y = np.arange(size) % classes
            x = rng.integers(0, 60, (size, 28, 28), dtype=np.uint8)
            x[np.arange(size), 4 + 6 * y, :] = 255  # a bright row tells the class
            arrays[f"x_{split}"], arrays[f"y_{split}"] = x, y
        arrays = {key: value for key, value in {**arrays, **replaced}.items() if value is not None}
        path = tmp_path / name
        np.savez(path, **arrays)
        return path

    return write


@pytest.fixture
def config(npz: Callable[..., Path], tmp_path: Path) -> Callable[..., TrainConfig]:
    """`config(**fields)` is a run of a second on the small image set."""

    def make(**fields: Any) -> TrainConfig:
        defaults: dict[str, Any] = {
            "dataset": str(npz()),
            "epochs": 2,
            "batch_size": 12,
            "out": str(tmp_path / "runs"),
            "trainer": {"accelerator": "cpu"},
            "attacks": ["none"],
        }
        return TrainConfig(**{**defaults, **fields})

    return make


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`command("train.py", …)` runs a script as a user does, offline, from the repository's folder."""

    def run(script: str, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(tmp_path), "COLUMNS": "120"}
        return subprocess.run(
            [sys.executable, script, *map(str, arguments)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )

    return run
