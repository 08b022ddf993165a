"""The scripts and the notebook of examples/ run as they stand, on little data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sweetspot.lightning_modules.networks.foreign import load_model
from sweetspot.lightning_modules.networks.splitting import split
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
NOTEBOOK = EXAMPLES / "audit.ipynb"


def run(folder: Path, script: str, *arguments: str) -> str:
    """What an example prints, started in another folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells() -> list[dict[str, Any]]:
    """The cells of the notebook."""
    held: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return held


def test_the_notebook_is_one_and_holds_no_outputs() -> None:
    held = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (held["nbformat"], held["nbformat_minor"]) == (4, 5)
    assert held["metadata"]["kernelspec"]["language"] == "python"
    assert len({cell["id"] for cell in cells()}) == len(cells())
    for cell in cells():
        assert all(isinstance(line, str) for line in cell["source"])
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), str(NOTEBOOK), "exec")
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert [cell for cell in cells() if cell["metadata"].get("tags") == ["parameters"]]


@pytest.mark.parametrize("script", sorted(file.name for file in EXAMPLES.glob("*.py")))
def test_every_example_has_a_size_and_says_how_to_run_it(script: str) -> None:
    text = (EXAMPLES / script).read_text(encoding="utf-8")
    assert "--size" in text
    assert f"python examples/{script}" in text


def test_the_network_of_the_examples_is_cut_anywhere() -> None:
    torch.manual_seed(0)
    model, x = load_model(f"{EXAMPLES}/networks/resnet20.py:resnet20", (3, 32, 32), 10).eval(), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        whole = model(x)
        for cut in ("layer1", "layer2", "layer3"):
            encoder, head = split(model, cut)
            assert torch.equal(head(encoder(x)), whole)
    assert sum(weight.numel() for weight in model.parameters()) == 269_722, "as published"


@pytest.mark.slow
def test_a_model_of_torchvision_is_audited(tmp_path: Path) -> None:
    shown = run(tmp_path, "audit_torchvision.py", "--size", "100")
    assert "leak beyond the label" in shown
    assert "<html" in (tmp_path / "audit.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_defence_of_ones_own_is_trained_and_attacked(tmp_path: Path) -> None:
    shown = run(tmp_path, "own_defence.py", "--size", "100")
    assert [line.split()[0] for line in shown.splitlines() if " leak beyond the label" in line] == ["vanilla", "shrink"]
    records = [json.loads(file.read_text()) for file in (tmp_path / "checkpoints").glob("*/results.json")]
    assert sorted(record["defence"]["name"].rpartition(":")[2] for record in records) == ["Shrink", "none"]


@pytest.mark.slow
def test_text_comes_back_from_hidden_states(tmp_path: Path) -> None:
    shown = run(tmp_path, "hidden_states.py", "--size", "1")
    said = dict(line.split(maxsplit=1) for line in shown.splitlines() if line.startswith(("original ", "recovered ")))
    assert said["original"] == said["recovered"] == "The launch code is 7319."


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for cell in cells():
        if cell["cell_type"] == "code":
            is_size = cell["metadata"].get("tags") == ["parameters"]
            exec("SIZE = 100" if is_size else "".join(cell["source"]), scope)
    assert scope["audit"].leak > 0.5, "nothing defends it, and the cut is early"
    assert "<img" in scope["audit"]._repr_html_()
    assert (tmp_path / "audit.html").is_file()
