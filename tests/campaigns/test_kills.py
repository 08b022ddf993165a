"""kill -9 before and after every file replacement of train.py and evaluate.py: the same command ends as if unbroken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sweetspot.runs.folder import Run
from tests.campaigns.counting import Tally
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
ATTACKS = ["--attacks", "whitebox", "decoder", "--samples", "4", "--device", "cpu"]
TIMES = {"environment", "seconds", "out", "resumed", "from_cache"}  # in which two equal runs differ


def timeless(value: Any) -> Any:
    """Results without what depends on the clock, the folder, and whether a decoder was kept from before the kill."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def killed_everywhere(script: str, folder: Path, *argv: str) -> list[dict[str, Any]]:
    """How the runs of a script ended that were killed at each replacement and then done again."""
    command = [sys.executable, "-m", "tests.campaigns.killing", script, str(folder), *argv]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong_with(ended: dict[str, Any], unbroken: Run) -> str:
    """What is wrong with a run that was killed and done again; empty: nothing."""
    if ended["again"] != 0:
        return f"the same command ended with {ended['again']}: {Path(ended['log']).read_text()[-300:]}"
    run = Run(Path(ended["out"]) / unbroken.name)
    if timeless(run.read_results()) != timeless(unbroken.read_results()):
        return "other results"
    ours, theirs = (torch.load(each.checkpoint, weights_only=True)["state_dict"] for each in (run, unbroken))
    if not all(torch.equal(ours[name], theirs[name]) for name in theirs):
        return "other weights"
    litter = [path.name for path in Path(ended["out"]).rglob("*.tmp*")]
    files = {path.name for path in run.folder.iterdir()} ^ {path.name for path in unbroken.folder.iterdir()}
    return f"litter: {litter}" if litter else f"other files: {files}" if files else ""


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_kills(script: str, npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = ["--dataset", str(npz()), "--epochs", "2", "--batch-size", "12", "--trainer.accelerator", "cpu"]
    whole = tmp_path / "unbroken"
    began = [*training, "--out", str(whole), *(ATTACKS if script == "train.py" else ["--attacks", "none"])]
    unbroken_run("train.py", began, tmp_path)
    (folder,) = whole.glob("images-*")
    kills = tmp_path / "kills"
    kills.mkdir()
    if script == "train.py":
        ended = killed_everywhere(script, kills, *training, "--out", "{out}", *ATTACKS)
    else:
        shutil.copytree(whole, kills / "template")
        unbroken_run("evaluate.py", [str(folder), *ATTACKS], tmp_path)
        ended = killed_everywhere(script, kills, "{out}/" + folder.name, *ATTACKS)
    tally = Tally(f"kills of {script} at its file replacements")
    for each in ended:
        tally.count(each["kill"], wrong_with(each, Run(folder)))
    assert tally.tried >= 18
    tally.conclude(capsys)


def unbroken_run(script: str, argv: list[str], folder: Path) -> None:
    """Run a script to its end in a process of its own, as those that are killed run."""
    body = "import sys; from pathlib import Path; from tests.campaigns.killing import SCRIPTS, forked\n"
    body += f"sys.exit(forked(SCRIPTS[{script!r}], sys.argv[2:], None, Path(sys.argv[1])))"
    log = folder / "unbroken.log"
    done = subprocess.run([sys.executable, "-c", body, str(log), *argv], cwd=ROOT, timeout=300)
    assert done.returncode == 0, log.read_text()
