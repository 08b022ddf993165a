"""Networks that are not ours, through the commands: named, trained, resumed, attacked, and refused in one line."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sweetspot.commands import evaluate, sweep, train
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks import build_network
from sweetspot.lightning_modules.networks.foreign import load_model
from sweetspot.registry import NAMED, is_anothers, load_file, module_name
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train as train_run
from tests.conftest import refused_by
from tests.own_network import OWN_NETWORK
from tests.weak_attacks import weaken

Make = Callable[..., TrainConfig]
OWN = (
    OWN_NETWORK
    + """
def build(classes, shape):
    return Net(classes, shape)

class ThreeClasses(Net):
    def __init__(self):
        super().__init__(3, (1, 28, 28))

def broken(classes):
    raise RuntimeError("no such thing")

def nothing():
    return 3

def a_tuple(classes, shape):
    class Pair(Net):
        def forward(self, x):
            return super().forward(x), x
    return Pair(classes, shape)

def of_seven(shape):
    return Net(7, shape)

ready = nn.Linear(2, 2)
"""
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch, with_lpips=False)


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A file of the user's own, which nobody has loaded yet."""
    path = tmp_path / "my_model.py"
    path.write_text(OWN)
    return str(path)


@pytest.fixture
def images(npz: Callable[..., Path]) -> str:
    """A small set of 1×28×28 images of three classes."""
    return str(npz())


def run_of(config: TrainConfig) -> Run:
    """The folder of a run that is made now."""
    return Run(Path(config.out) / str(train_run(config)["name"]))


def test_a_model_of_ones_own_is_trained_resumed_and_attacked_like_ours(
    own: str, config: Make, power_cut: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"network": f"{own}:build", "cut": "features", "lam": 0.1, "beta": 1e-2, "epochs": 3}
    fields |= {"bottleneck": "8", "release": ["gaussian"], "sigma": 0.5}
    unbroken = run_of(config(**fields))
    broken = config(**fields, out=str(unbroken.folder.parent / "again"))
    power_cut(broken, 1)
    resumed = run_of(broken)
    assert resumed.name == unbroken.name
    assert resumed.name.startswith("images-my_model.build-mixcon-l0.1")
    first, second = load_module(unbroken.checkpoint), load_module(resumed.checkpoint)
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    assert first.network.cut_layer == "features"
    client = [name for name in first.network.state_dict() if name.startswith("encoder")]
    assert {name.split(".")[1] for name in client} == {"standardise", "model"}
    results = unbroken.read_results()
    assert results["model"] == {"name": f"{own}:build", "cut": "features", "head": "default"}
    monkeypatch.delitem(sys.modules, module_name(own))  # as in another process
    argv = [str(unbroken.folder), "--attacks", "whitebox/paper", "--samples", "3", "--device", "cpu"]
    refused_by(evaluate.main, capsys, f"--code {own}", *argv)
    assert module_name(own) not in sys.modules, "a checkpoint runs nothing"
    assert evaluate.main([*argv, "--code", own]) == 0
    assert "whitebox/paper" in unbroken.read_results()["attacks"]


def test_a_module_of_a_package_is_code_too(
    own: str, config: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(own).parent)
    Path(own).rename("my_package_of_models.py")
    run = run_of(config(network="my_package_of_models:build", cut="features.0", lam=0))
    assert "-my_package_of_models.build-vanilla" in run.name
    NAMED.remove("my_package_of_models")
    argv = [str(run.folder), "--attacks", "whitebox/paper", "--samples", "2", "--device", "cpu"]
    refused_by(evaluate.main, capsys, "--code my_package_of_models", *argv)
    assert evaluate.main([*argv, "--code", "my_package_of_models"]) == 0


def test_networks_of_torchvision_need_no_code(config: Make, npz: Callable[..., Path]) -> None:
    x = np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), dtype=np.uint8)
    data = str(npz("rgb.npz", x_train=x, y_train=np.arange(24) % 3, x_test=x[:12], y_test=np.arange(12) % 3))
    fields = {"network": "torchvision:mobilenet_v3_small", "cut": "features.0", "dataset": data, "epochs": 1, "lam": 0}
    run = run_of(config(**fields))
    assert "-mobilenet_v3_small-vanilla-" in run.name
    assert load_module(run.checkpoint).network.encoder(torch.rand(1, 3, 32, 32)).shape == (1, 16, 16, 16)


def test_a_class_without_arguments_will_do(own: str) -> None:
    network = build_network(f"{own}:ThreeClasses", (1, 28, 28), 3, "features")
    assert network(torch.rand(2, 1, 28, 28)).shape == (2, 3)
    assert not network.training or network.head.training


# ---------------------------------------------------------------------- weights and scales


@pytest.mark.parametrize("ending", ["pt", "safetensors", "wrapped.pth"])
def test_weights_are_taken_whole_and_are_part_of_the_run(own: str, tmp_path: Path, config: Make, ending: str) -> None:
    torch.manual_seed(5)
    model = load_model(f"{own}:build", (1, 28, 28), 3)
    model.features[1].running_mean.fill_(0.25)  # type: ignore[index, union-attr]
    file, moved = tmp_path / f"weights.{ending}", tmp_path / f"moved.{ending}"
    state = {name: each for name, each in model.state_dict().items() if "num_batches" not in name}
    if ending == "safetensors":
        save_file(state, file)
    else:
        torch.save(
            {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}} if "wr" in ending else state, file
        )
    loaded = load_model(f"{own}:build", (1, 28, 28), 3, file)
    x = torch.rand(3, 1, 28, 28)
    assert torch.equal(loaded.eval()(x), model.eval()(x))
    network = build_network(f"{own}:build", (1, 28, 28), 3, "features", weights=file).eval()
    assert torch.equal(network(x), model(x))
    moved.write_bytes(file.read_bytes())
    names = {config(network=f"{own}:build", weights=str(each)).run_name("d", "d") for each in (file, moved)}
    assert len(names) == 1, "known by content"
    moved.write_bytes(file.read_bytes() + b"\0")
    names |= {config(network=f"{own}:build", weights=each).run_name("d", "d") for each in (None, str(moved))}
    assert len(names) == 3


def test_training_begins_with_the_weights(
    own: str, tmp_path: Path, config: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(5)
    model = load_model(f"{own}:build", (1, 28, 28), 3)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    fields: dict[str, Any] = {"network": f"{own}:build", "cut": "features", "lam": 0, "epochs": 1}
    run = run_of(config(**fields, weights=str(tmp_path / "w.pt"), lr=0.0))
    module = load_module(run.checkpoint)
    assert torch.equal(module.network.state_dict()["head.fc.weight"], model.state_dict()["fc.weight"])
    assert "standardise" not in "".join(module.network.state_dict()), "as the model knows its images"
    assert "images go in as they are: --standardise data" in capsys.readouterr().out
    assert len(run.read_results()["model"]["weights"]) == 64


def test_weights_go_into_networks_of_ours(tmp_path: Path) -> None:
    model = load_model("lenet", (1, 28, 28), 10)
    torch.save(model.state_dict(), tmp_path / "lenet.pt")
    network = build_network("lenet", (1, 28, 28), 10, 2, weights=tmp_path / "lenet.pt")
    x = torch.rand(2, 1, 28, 28)
    assert torch.equal(network(x), model(x))


@pytest.mark.parametrize(
    ("flags", "mean", "std"),
    [
        (["0.5", "0.25"], [0.5], [0.25]),
        (["0.1,0.2,0.3", "0.5"], [0.1, 0.2, 0.3], [0.5] * 3),
        (["none"], None, None),
    ],
)
def test_images_are_scaled_as_asked(
    flags: list[str], mean: Any, std: Any, own: str, config: Make, npz: Callable[..., Path]
) -> None:
    channels = 3 if mean and len(mean) == 3 else 1
    x = np.random.default_rng(0).integers(0, 255, (12, 28, 28, channels), dtype=np.uint8)
    data = str(npz("scaled.npz", x_train=x, y_train=np.arange(12) % 3, x_test=x, y_test=np.arange(12) % 3))
    run = run_of(config(network=f"{own}:build", cut="features", lam=0, epochs=1, dataset=data, standardise=flags))
    state = load_module(run.checkpoint).network.state_dict()
    found = [state[f"encoder.standardise.{name}"].flatten().tolist() for name in ("mean", "std")] if mean else []
    assert found == ([pytest.approx(mean), pytest.approx(std)] if mean else [])
    assert mean or "encoder.standardise.mean" not in state
    assert config(standardise=flags).run_name("d", "d") != config().run_name("d", "d")


# ---------------------------------------------------------------------- the command line


def test_the_places_to_cut_are_listed(own: str, images: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--network", f"{own}:build", "--cut", "?", "--dataset", images]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["features.0", "features.1", "features"]
    assert lines[3].split()[1:] == ["4×6×6", "78.1", "%", "18.3", "%"]  # 3600 of 4608, and 104 of 567
    assert train.main(["--network", "lenet", "--cut", "?", "--dataset", images]) == 0
    ours = capsys.readouterr().out.splitlines()
    assert any(line.startswith("pool2 or 2 ") for line in ours)
    assert max(map(len, [*lines[1:], *ours])) <= 80


def test_a_run_of_a_file_in_a_folder_is_no_language_model(own: str) -> None:
    assert not TrainConfig(network=f"{own}:build").is_language
    assert TrainConfig(network="owner/name").is_language


WRONG: list[tuple[list[str], str]] = [
    (["--network", "{own}:build"], "Net has no submodule 2 to be cut at; it begins with features, skip, fc"),
    (["--network", "{own}:build", "--cut", "feature"], "did you mean features"),
    (["--network", "{own}:build", "--cut", "skip"], "2 tensors cross there, its output and features.2"),
    (["--network", "{own}:build", "--cut", "fc"], "nothing is left for the server"),
    (["--network", "{own}:broken", "--cut", "fc"], "cannot be made (RuntimeError: no such thing)"),
    (["--network", "{own}:nothing", "--cut", "fc"], "makes a int, and no nn.Module"),
    (["--network", "{own}:ready", "--cut", "fc"], "ready is a model and no function that makes one"),
    (["--network", "{own}:biuld", "--cut", "fc"], "biuld is no function there (did you mean build?)"),
    (["--network", "{own}:a_tuple", "--cut", "fc"], "returns a tuple; it must return one tensor"),
    (["--network", "{own}:of_seven", "--cut", "fc"], "gives (7,) for an input, and the data have 3 classes"),
    (["--network", "{own}.py:build", "--cut", "fc"], "there is no file"),
    (["--network", "no_such_package:build", "--cut", "fc"], "no_such_package cannot be imported"),
    (["--network", "torchvision:resnet17", "--cut", "fc"], "torchvision has no classifier resnet17 (did you mean"),
    (["--network", "torchvision:resnet18", "--cut", "layer1"], "ResNet does not take inputs of 1×28×28"),
    (["--network", "timm:resnet18", "--cut", "layer1"], "needs timm, which is not installed"),
    (["--network", "{own}:build", "--head", "wider"], "head must be default"),
    (["--network", "{own}:build", "--cut", "features", "--weights", "{other}"], "missing: features.0.weight, "),
    (["--network", "{own}:build", "--cut", "features", "--weights", "{shapes}"], "shape: fc.bias ((9,), not (3,))"),
    (["--network", "{own}:build", "--cut", "features", "--weights", "{evil}"], "or holds more than tensors"),
    (["--network", "{own}:build", "--cut", "features", "--weights", "{own}"], "is damaged"),
    (["--network", "{own}:build", "--cut", "features", "--weights", "no.pt"], "there is no file no.pt"),
    (["--standardise", "0.5"], "--standardise must be data, none, or a mean"),
    (["--standardise", "0.5", "0"], "--standardise must be data, none, or a mean"),
    (["--standardise", "0.5,0.5", "1"], "one for each of 1 channels"),
    (["--standardise", "a", "b"], "--standardise must be data, none, or a mean"),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_wrong_is_said_in_one_line(
    flags: list[str], says: str, own: str, images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "timm:resnet18" in flags and "timm" in sys.modules:
        pytest.skip("timm is there")
    names = {"own": own, "other": tmp_path / "other.pt", "shapes": tmp_path / "shapes.pt", "evil": tmp_path / "evil.pt"}
    torch.save({"weight": torch.ones(1)}, tmp_path / "other.pt")
    torch.save({**load_model(f"{own}:build", (1, 28, 28), 9).state_dict()}, tmp_path / "shapes.pt")
    torch.save(nn.Linear(2, 2), tmp_path / "evil.pt")
    argv = [flag.format(**names) for flag in flags]
    refused_by(train.main, capsys, says, *argv, "--dataset", images, "--out", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_a_near_name_and_the_list_are_one_sentence(own: str, images: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--network", f"{own}:build", "--cut", "feature", "--dataset", images]
    refused_by(train.main, capsys, "?; --cut ? lists the places", *argv)


def test_a_file_is_run_where_the_main_module_has_no_spec(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("sweetspot.__main__")  # as the command that pip installs does
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.delitem(sys.modules, module_name(own), raising=False)
    assert callable(load_file(own).build)


def test_what_is_installed_beside_sweetspot_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_room.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    ours = types.ModuleType("sweetspot.odd_room")
    ours.__file__ = str(tmp_path / "sweetspot" / "odd_room.py")
    assert is_anothers("odd_room", ours)
    ours.__file__ = str(tmp_path / "odd_room.py")
    assert not is_anothers("odd_room", ours)
    assert not is_anothers("no_such_room", ours)


def test_a_sweep_lists_no_places(own: str, images: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused_by(sweep.main, capsys, "--cut ? lists the places", "--cut", "?", "--lambda", "1", "--dataset", images)


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="timm"):
        load_model("timm:resnet18", (3, 32, 32), 10)
