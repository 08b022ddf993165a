"""What is installed: one package, with its templates and experiments, and nothing that takes a name of others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from setuptools import find_packages

from sweetspot.commands.train import main
from sweetspot.runs.experiments import experiment, shipped
from tests.conftest import ROOT, refused_by

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
ROOMS = (
    "attacks",
    "commands",
    "datamodules",
    "evaluations",
    "lightning_modules",
    "metrics",
    "reports",
    "reproductions",
    "runs",
    "sweeps",
)


def test_every_package_that_is_installed_is_of_sweetspot() -> None:
    found = find_packages(str(ROOT), **SETUPTOOLS["packages"]["find"])
    assert {name.partition(".")[0] for name in found} == {"sweetspot"}
    assert {f"sweetspot.{room}" for room in ROOMS} <= set(found)
    assert "py-modules" not in SETUPTOOLS
    assert list(PROJECT["project"]["scripts"]) == ["sweetspot"]


def data_files() -> set[str]:
    """The files that are no Python and must be installed, by their path in the package."""
    return {
        f"sweetspot/{file.relative_to(ROOT)}"
        for folder, pattern in (("configs", "**/*.yaml"), ("reports/templates", "*"))
        for file in (ROOT / folder).glob(pattern)
        if file.is_file()
    }


def test_the_declared_data_are_all_that_there_are() -> None:
    declared = {
        f"{package.replace('.', '/')}/{file.relative_to(ROOT / package.replace('.', '/'))}"
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    assert declared == data_files()


def test_an_experiment_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in shipped().items():
        assert experiment(name) == file
        assert file.is_file()
    assert experiment("gpt2_tiny").parent.name == "configs"
    assert experiment("sweeps/gpt2_tiny").parent.name == "sweeps"
    assert experiment("configs/sweeps/small.yaml") == experiment("small") == experiment("sweeps/small")
    (tmp_path / "small").write_text("lambda: 3\n")
    assert experiment("small") == Path("small"), "a file of the working folder wins"


def test_a_run_takes_an_experiment_by_its_name_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["--config", "synthetic", "--print_config"])
    assert "dataset: synthetic" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--config=synthetic", "--epochs", "3", "--print_config"])
    assert "epochs: 3" in capsys.readouterr().out
    refused_by(main, capsys, "--config synthetik is not there (did you mean synthetic?)", "--config", "synthetik")


@pytest.mark.slow
def test_the_wheel_holds_sweetspot_and_nothing_else(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    left_out = shutil.ignore_patterns(".*", "build", "data", "checkpoints", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    build = [sys.executable, "-m", "pip", "wheel", str(copy), "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
        (top,) = [name for name in held if name.endswith("top_level.txt")]
        assert file.read(top).decode().split() == ["sweetspot"]
    inside = {name for name in held if name.startswith("sweetspot/")}
    assert all(name in inside or ".dist-info/" in name for name in held)
    assert {name for name in inside if not name.endswith(".py")} == data_files()
    modules = {f"sweetspot/{file.relative_to(ROOT)}" for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    assert modules <= inside
    assert not [name for name in inside if "test" in name or "benchmark" in name]
