"""The main job as a whole: minutes, so only `make test-all` runs these."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_the_main_job_learns_the_embedded_digits(command: Command, tmp_path: Path) -> None:
    done = command("train.py", "--lambda", 1, "--beta", 1e-4, "--data-root", tmp_path, "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").glob("mnist-*")
    results = json.loads((folder / "results.json").read_text())
    assert results["utility"]["accuracy"] > 0.9
    assert results["separability"]["mean"] < 0.6, "a vanilla network's representations lie about 1 apart"


@pytest.mark.slow
def test_the_benchmark_ends_with_its_ratios(command: Command, tmp_path: Path) -> None:
    done = command("benchmarks/train.py", "--data-root", tmp_path, "--images", 2000, "--repeats", 1)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()[-3:]
    for line, name in zip(lines, ("pipeline", "limit", "mixcon"), strict=True):
        assert re.fullmatch(rf"ratio {name} \d+\.\d\d \(ours .+, theirs .+\)", line), line
