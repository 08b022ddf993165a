"""Importing sweetspot, help and wrong flags load nothing heavy; what help lists is what the classes declare."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from lightning.pytorch import Trainer

from sweetspot.declarations import NotWrittenOutError, Source, declared_in
from sweetspot.options import Option
from sweetspot.registries import ATTACKS, PENALTIES, RELEASES
from sweetspot.registry import RoomRegistry
from sweetspot.runs.trainer_flags import trainer_flags
from tests.conftest import ROOT

HEAVY: tuple[str, ...] = (
    "torch",
    "lightning",
    "torchvision",
    "torchmetrics",
    "transformers",
    "tokenizers",
    "ray",
    "optuna",
)
HEAVY += ("matplotlib", "scipy", "lpips", "tensorboard", "pandas", "mlxtend")
LOADED = """
import json, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True) if sys.argv else __import__("sweetspot")
except SystemExit:
    pass
print("\\n" + json.dumps([name for name in sys.modules if "." not in name]))
"""


def loaded_by(*argv: str) -> set[str]:
    """The packages that `python -m …`, or without arguments `import sweetspot`, has loaded when it ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", LOADED, *argv], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["sweetspot", "--help"],
        ["sweetspot", "train", "--help"],
        ["sweetspot", "evaluate", "--help"],
        ["sweetspot", "attack", "--help"],
        ["sweetspot", "sweep", "--help"],
        ["sweetspot", "report", "--help"],
        ["sweetspot", "reproduce", "--help"],
        ["sweetspot", "reproduce", "--out", "no-such-folder"],
        ["sweetspot", "invert", "--help"],
        ["sweetspot", "invert", "gradient", "--help"],
        ["sweetspot", "train", "--lamda", "1"],
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_loaded_before_there_is_work(argv: list[str]) -> None:
    loaded = loaded_by(*argv)
    assert "sweetspot" in loaded
    assert not loaded & set(HEAVY)


@pytest.mark.parametrize("registry", [PENALTIES, RELEASES, ATTACKS], ids=lambda each: each.kind)
def test_options_that_are_read_are_those_of_the_classes(registry: RoomRegistry[typing.Any]) -> None:
    declared = declared_in(registry.package, registry.called)
    assert declared == {name: found.options for name, found in registry.known.items()}
    assert declared == registry.options()


def test_options_that_are_computed_are_not_guessed(tmp_path: Path) -> None:
    file = tmp_path / "parts.py"
    file.write_text("class Base:\n    size: int = option(sum([1, 2]), 'how many')\n")
    source = Source(file)
    with pytest.raises(NotWrittenOutError, match="sum"):
        source.options_of(source.classes["Base"])


def test_a_class_has_the_options_of_its_base_and_its_own(tmp_path: Path) -> None:
    file = tmp_path / "parts.py"
    file.write_text(
        "HALF, NAMES = 1 / 2, {'a': sum, 'b': max}\n"
        "class Base:\n    size: int = option(1, 'how many', least=1)\n"
        "@THINGS('x')\nclass X(Base):\n    kind: str = option('a', 'which', choices=NAMES)\n"
        "@THINGS('y')\nclass Y(X):\n    options = {}\n    part: float = option(HALF, 'how much', above=0)\n"
    )
    source = Source(file)
    found = {name: source.options_of(each) for name, each in source.registered("THINGS")}
    size = Option(1, "how many", least=1, kind=int)
    assert found["x"] == {"size": size, "kind": Option("a", "which", choices=("a", "b"), kind=str)}
    assert found["y"] == {"part": Option(0.5, "how much", above=0, kind=float)}


def test_flags_of_the_trainer_are_those_of_lightning() -> None:
    flags = {each.name: each for each in trainer_flags()}
    parameters = dict(inspect.signature(Trainer).parameters)
    assert list(flags) == list(parameters)
    for name, parameter in parameters.items():
        assert flags[name].default == parameter.default, name
        assert flags[name].help or name in ("enable_autolog_hparams",), name
        kinds, theirs = (typing.get_args(each) or (each,) for each in (flags[name].kind, parameter.annotation))
        if flags[name].kind is not typing.Any:
            assert set(kinds) <= set(theirs), name
            missing = [each for each in set(theirs) - set(kinds) if "lightning" not in str(each)]
            assert not missing, name


@pytest.mark.parametrize("command", ["train", "evaluate", "sweep", "report", "reproduce", "invert"])
def test_help_speaks_of_the_command_as_it_was_called(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    from sweetspot.__main__ import main

    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: sweetspot {command} ")
    assert f"\n  sweetspot {command} " in said
    assert "python " not in said
    assert "configs/" not in said
    script = __import__(f"sweetspot.commands.{command}", fromlist=["main"])
    with pytest.raises(SystemExit):
        script.main(["--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python {command}.py ")
    assert f"\n  python {command}.py " in said
    assert "sweetspot " + command not in said
