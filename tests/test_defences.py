"""Every penalty, bottleneck and release from the command line to the checkpoint: trained, resumed, attacked, named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sweetspot.attacks import Victim
from sweetspot.commands import evaluate
from sweetspot.commands.train import main
from sweetspot.errors import UserError
from sweetspot.evaluations.chosen import STANDARD
from sweetspot.lightning_modules.defences import PENALTIES, RELEASES
from sweetspot.registry import module_name
from sweetspot.reports.tables import describe_defence
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train
from tests.conftest import refused_by
from tests.weak_attacks import weaken

Make = Callable[..., TrainConfig]
RunOf = Callable[[TrainConfig], Run]
NOISE = {"release": ["gaussian"], "sigma": 0.5}
ZOO: dict[str, dict[str, Any]] = {
    "mixcon": {"defence": "mixcon"},
    "unicon": {"defence": "unicon"},
    "nopeek": {"defence": "nopeek", "lam": 0.3},
    "adversary": {"defence": "adversary", "against": "l1", **NOISE},
    "compress": {"defence": "compress", "lam": 0.01, "bottleneck": "12-4", **NOISE},
    "vib": {"defence": "vib", "lam": 0.001, "bottleneck": "1x1-4", **NOISE},
    "cem": {"defence": "cem", "lam": 0.1, "clusters": 2, "release": ["gaussian"], "sigma": 0.02},
    "none": {"bottleneck": "8"},
    **{name: {"release": [name]} for name in RELEASES},
    "chain": {"release": ["clip", "gaussian"], "clip": 1.0, "sigma": 0.1},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch, with_lpips=False)


def test_the_zoo_is_whole() -> None:
    assert set(PENALTIES) <= set(ZOO)
    assert set(PENALTIES) == {"none", "mixcon", "unicon", "nopeek", "adversary", "compress", "vib", "cem"}
    assert set(RELEASES) == {"gaussian", "laplace", "dropout", "topk", "quantise", "clip", "fp16", "bf16", "int8"}


@pytest.mark.parametrize("name", ZOO)
def test_a_stopped_run_ends_where_an_unbroken_one_ends(
    name: str, config: Make, run_of: RunOf, tmp_path: Path, power_cut: Callable[[TrainConfig, int], None]
) -> None:
    unbroken = run_of(config(**ZOO[name], out=str(tmp_path / "unbroken")))
    broken = config(**ZOO[name])
    power_cut(broken, 1)
    resumed = Run(Path(broken.out) / train(broken)["name"])
    ours, theirs = (load_checkpoint(run.checkpoint)["state_dict"] for run in (resumed, unbroken))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    results = resumed.read_results()
    assert results["utility"] == unbroken.read_results()["utility"]
    logged = results["training"]["history"][0]
    assert (f"train/{broken.penalty.name}" in logged) == (broken.defence != "none"), "each logs its own quantity"


def test_a_record_says_every_option_and_the_victim_is_whole(config: Make, run_of: RunOf) -> None:
    run = run_of(config(**ZOO["compress"]))
    results = run.read_results()
    release = [{"name": "gaussian", "unit": "raw", "ramp": pytest.approx(1 / 3), "sigma": 0.5}]
    assert results["defence"] == {
        "name": "compress", "lambda": 0.01, "beta": 0.0, "bottleneck": "12-4", "release": release,
    }  # fmt: skip
    assert "-compress-l0.01-k12-4-gaussian0.5-s0-" in run.name
    assert describe_defence(results["defence"]) == "compress(0.01) + bottleneck 12-4 + gaussian(0.5)"
    victim, x = Victim.from_checkpoint(run.checkpoint), torch.rand(3, 1, 28, 28)
    assert victim.released(x).shape == (3, 4)
    assert victim.head(victim.released(x)).shape == (3, 3)
    assert not torch.equal(victim.released(x), victim.released(x)), "a fresh draw for every query"
    assert torch.equal(victim.represent(x), victim.represent(x)), "what explains it best is not drawn"
    assert (victim.released(x) - victim.represent(x)).std().item() == pytest.approx(0.5, rel=0.6)


@pytest.mark.parametrize("name", ["compress", "topk", "quantise", "dropout"])
def test_every_attack_goes_through_it(name: str, config: Make, run_of: RunOf) -> None:
    run = run_of(config(**ZOO[name]))
    assert evaluate.main([str(run.folder), "--device", "cpu", "--samples", "6", "--budget", "fast"]) == 0
    results = run.read_results()
    positions = {"positions"} if name in ("topk", "dropout") else set()
    assert set(results["worst_case"]["attacks"]) == (set(STANDARD.attacks) - {"positions"}) | positions


def test_noise_is_measured_in_z_where_something_sets_its_scale_and_in_its_size_elsewhere(config: Make) -> None:
    def units(**fields: Any) -> list[str]:
        return [each["unit"] for each in config(**fields).release_record() if "unit" in each]

    assert units(**NOISE) == ["rms"]
    assert units(defence="mixcon", **NOISE) == ["rms"]
    assert units(defence="compress", **NOISE) == ["raw"]
    assert units(release=["clip", "gaussian"]) == ["raw"]
    assert units(release=["gaussian", "clip"]) == ["rms"]
    assert units(**NOISE, unit="raw") == ["raw"]


def test_which_penalty_is_meant(config: Make) -> None:
    assert config().defence == "mixcon"
    assert config(release=["gaussian"]).defence == "none", "noise alone"
    assert config(bottleneck="8").defence == "none"
    assert config(release=["gaussian"], lam=1.0).defence == "mixcon"
    assert config(release=["gaussian"], beta=1e-2).defence == "mixcon"
    assert config(release=["none"], bottleneck="none").defence == "mixcon"
    assert config(release=["gaussian"], lam=0.0).run_name("a", "b") == config(release=["gaussian"]).run_name("a", "b")


def test_a_chain_is_written_with_plus_or_one_after_the_other(config: Make) -> None:
    one, other = config(release=["clip+gaussian"], sigma=1.0), config(release=["clip", "gaussian"], sigma=1.0)
    assert one.release == ["clip", "gaussian"]
    assert one.run_name("a", "b") == other.run_name("a", "b")


def test_a_penalty_that_needs_noise_gets_the_release_whose_strength_is_given(config: Make) -> None:
    for name in ("compress", "vib", "cem"):
        implied = config(defence=name, sigma=2.0)
        assert implied.run_name("a", "b") == config(defence=name, release=["gaussian"], sigma=2.0).run_name("a", "b")
    assert config(defence="compress", lam=0.0, sigma=2.0).release == ["gaussian"], "noise alone"


def test_names_tell_parts_apart(config: Make) -> None:
    different: list[dict[str, Any]] = [
        {}, {"release": ["gaussian"]}, {"release": ["gaussian"], "sigma": 0.3}, {"release": ["gaussian"], "ramp": 0.0},
        {"release": ["gaussian", "clip"]}, {"release": ["clip", "gaussian"]}, {"bottleneck": "8"},
        {"bottleneck": "4-8"}, {"defence": "nopeek"}, {"partners": 3}, {"defence": "adversary"},
        {"defence": "adversary", "against": "l1"},
    ]  # fmt: skip
    names = {config(**fields).run_name("mnist", "torchvision") for fields in different}
    assert len(names) == len(different)
    assert config(release=["gaussian"]).run_name("a", "b") == config(release=["gaussian"], sigma=0.5).run_name("a", "b")


@pytest.mark.parametrize("name", ZOO)
def test_what_a_run_records_is_the_same_run_again(name: str, config: Make) -> None:
    chosen = config(**ZOO[name])
    again = TrainConfig.of(**chosen.flags())
    assert again.run_name("mnist", "torchvision") == chosen.run_name("mnist", "torchvision")
    assert again.release_record() == chosen.release_record()


def test_an_older_record_of_another_defence_is_still_a_config(config: Make) -> None:
    old = {"beta": 0.0, "family": "inverse", "epsilon": 1e-6, "normalise": True}
    assert config(defence="none", lam=0.0, **old).options == {}
    assert config(defence="unicon", **old).options == {"normalise": True}


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_every_part_trains_on_the_embedded_digits(name: str, config: Make) -> None:
    digits = {"dataset": "mnist-5k", "batch_size": 100, "optimiser": "adam", "lr": 1e-3, "epochs": 2}
    accuracy = train(config(**ZOO[name], **digits))["utility"]["accuracy"]
    assert accuracy > 0.3, "ten classes, two epochs"


def test_a_release_that_is_on_and_does_nothing_is_an_error(config: Make) -> None:
    with pytest.raises(UserError, match="--release clip was on and changed nothing"):
        train(config(release=["clip"], clip=1e9))


# ---------------------------------------------------------------------- a user's own, and what is refused

OWN = """
import torch
from torch import nn
from sweetspot.lightning_modules.defences import Penalty, Release, option

class Shuffle(Penalty):
    strength: float = option(1.0, "how hard", least=0)

    def put(self, place):
        self.centre = nn.Parameter(torch.zeros(place.z_shape))

    def penalty(self, z, y, x):
        return self.strength * (z - self.centre).square().mean()

class Shift(Release):
    by: float = option(1.0, "how far")

    def forward(self, z):
        return z + self.by

class Clash(Penalty):
    epochs: int = option(3, "how often")

class Plain:
    pass
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_a_users_own_penalty_and_release_with_flags_of_their_own(
    own: str, npz: Callable[..., Path], tmp_path: Path
) -> None:
    common = ["--dataset", str(npz()), "--epochs", "1", "--batch-size", "12", "--trainer.accelerator", "cpu"]
    parts = ["--defence", f"{own}:Shuffle", "--strength", "3", "--release", f"{own}:Shift", "--by", "2"]
    attacks = ["--samples", "6", "--budget", "fast", "--device", "cpu"]
    assert main([*common, *parts, *attacks, "--out", str(tmp_path / "runs")]) == 0
    (folder,) = (tmp_path / "runs").glob("images-*")
    assert folder.name.startswith("images-lenet-Shuffle-l1-Shift2-s0-")
    results = Run(folder).read_results()
    assert results["defence"]["name"] == f"{own}:Shuffle"
    assert results["defence"]["strength"] == 3
    assert results["defence"]["release"] == [{"name": f"{own}:Shift", "by": 2.0}]
    assert "train/Shuffle" in results["training"]["history"][0]
    assert load_checkpoint(folder / "last.ckpt")["state_dict"]["defence.penalty.centre"].abs().max() > 0
    assert main(["--config", str(folder / "config.yaml")]) == 0, "the record names the file again"


def test_a_checkpoint_runs_no_code_that_the_user_has_not_named(
    own: str, config: Make, run_of: RunOf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(config(defence=f"{own}:Shuffle"))
    monkeypatch.delitem(sys.modules, module_name(own))  # as in another process
    ran = Path(own).with_name("ran")
    Path(own).write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n{OWN}")
    argv = [str(run.folder), "--attacks", "whitebox/paper", "--samples", "3", "--device", "cpu"]
    refused_by(evaluate.main, capsys, f"--code {own}", *argv)
    assert not ran.exists()
    assert evaluate.main([*argv, "--code", own]) == 0
    assert ran.exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--sigma", "0.5"], "--sigma means nothing for mixcon: it belongs to gaussian"),
        (["--release", "gaussian", "--sigma", "-1"], "--sigma must be above 0; got -1"),
        (["--release", "quantise", "--bits", "0"], "--bits must be at least 1; got 0"),
        (["--release", "gaussian", "--sigma", "x"], "--sigma must be a finite number; got x"),
        (["--bottleneck", "0"], "--bottleneck must be none, or widths such as 16"),
        (["--bottleneck", "x-16"], "--bottleneck must be none, or widths such as 16"),
        (["--defence", "compress"], "add --release gaussian --sigma 1"),
        (["--defence", "vib", "--release", "laplace"], "add --release gaussian --sigma 1"),
        (["--defence", "cem"], "add --release gaussian"),
        (["--defence", "compress", "--scale", "1"], "add --release gaussian"),
        (["--defence", "compress", "--release", "none", "--sigma", "1"], "--sigma means nothing for compress"),
        (["--defence", "nopeek", "--sigma", "1"], "--sigma means nothing for nopeek: it belongs to gaussian"),
        (["--release", "clip+"], "a chain joined by + such as clip+gaussian; got 'clip+'"),
        (["--release", "clip+none"], "--release none stands alone"),
        (["--defence", "unicon", "--beta", "1e-4"], "--beta means nothing for unicon: it belongs to mixcon"),
        (["--defence", "mixcn"], "did you mean mixcon?"),
        (["--release", "gausian"], "did you mean gaussian?"),
        (["--release", "none", "gaussian"], "--release none stands alone"),
        (["--defence", "OWN:Shufle"], "has no class Shufle; did you mean Shuffle?"),
        (["--defence", "OWN:Plain"], "is no defence: it must be a subclass of Penalty"),
        (["--defence", "OWN:Shift"], "is no defence: it must be a subclass of Penalty"),
        (["--defence", "OWN:Clash"], "has an option epochs, and --epochs is a flag already"),
        (["--defence", "nowhere.py:A"], "there is no file nowhere.py"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_makes_no_sense_is_one_line(
    argv: list[str], says: str, own: str, npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    given = [each.replace("OWN", own) for each in argv]
    refused_by(main, capsys, says, "--dataset", str(npz()), "--out", str(out), *given)
    assert not out.exists(), "nothing is made before everything that can be refused has been"
