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
    flags = ("--lambda", 1, "--beta", 1e-4, "--data-root", tmp_path, "--out", tmp_path / "runs")
    done = command("train.py", *flags, timeout=1800)  # beside other work it takes ten minutes
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").glob("mnist-*")
    results = json.loads((folder / "results.json").read_text())
    assert results["utility"]["accuracy"] > 0.9
    assert results["separability"]["mean"] < 0.6, "a vanilla network's representations lie about 1 apart"
    ssim = {key: attack["ssim"]["mean"] for key, attack in results["attacks"].items()}
    assert ssim["whitebox/paper"] < ssim["whitebox/adaptive"], "one fixed step size flatters the defence"
    assert ssim["decoder/adaptive"] > ssim["prototype"], "more than the label leaks"
    assert results["worst_case"]["ssim"]["mean"] >= max(ssim[key] for key in ssim if key != "prototype")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "names"),
    [
        ("train", ["--images", 2000, "--data-root", "nowhere"], ["pipeline", "limit", "mixcon"]),
        ("whitebox", ["--images", 8, "--steps", 20], ["batched", "scoring"]),
    ],
)
def test_a_benchmark_ends_with_its_ratios(
    command: Command, script: str, arguments: list[str | int], names: list[str]
) -> None:
    done = command(f"benchmarks/{script}.py", "--repeats", 1, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()[-len(names) :]
    for line, name in zip(lines, names, strict=True):
        assert re.fullmatch(rf"ratio {name} \d+\.\d\d \(ours .+, theirs .+\)", line), line
