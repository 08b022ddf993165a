"""A defence of somebody's own, with a parameter and a random release: it trains, moves, repeats and is gone through."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.decoder import Decoder
from sweetspot.attacks.whitebox import WhiteBox
from sweetspot.commands.evaluate import main
from sweetspot.lightning_modules.defences import RELEASES, Release, option
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.sweeps.grid import completed, laid_out
from sweetspot.training import train
from tests.weak_attacks import weaken

Make = Callable[..., TrainConfig]


class Scaled(Release):
    """z times a learned factor, with noise on it; nothing is added to the loss."""

    random = True
    sigma: float = option(0.1, "of the noise", above=0)

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.factor = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.seen: Tensor

    def forward(self, z: Tensor) -> Tensor:
        return self.factor * z + self.sigma * torch.randn_like(z)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defence in the registry, and attacks of a few steps."""
    monkeypatch.setitem(RELEASES.known, "scaled", Scaled)
    weaken(monkeypatch, with_lpips=False)


def factor(run: Run) -> float:
    return float(load_checkpoint(run.checkpoint)["state_dict"]["defence.release.0.factor"])


def test_its_parameter_trains_and_a_stopped_run_ends_where_an_unbroken_one_ends(
    config: Make, tmp_path: Path, power_cut: Callable[[TrainConfig, int], None]
) -> None:
    whole = config(release=["scaled"], epochs=3, momentum=0.9, out=str(tmp_path / "whole"))
    unbroken = Run(Path(whole.out) / train(whole)["name"])
    assert factor(unbroken) != 1
    broken = config(release=["scaled"], epochs=3, momentum=0.9)
    power_cut(broken, 2)
    resumed = Run(Path(broken.out) / train(broken)["name"])
    ours, theirs = (load_checkpoint(run.checkpoint)["state_dict"] for run in (resumed, unbroken))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert resumed.read_results()["utility"] == unbroken.read_results()["utility"]


def test_what_it_keeps_moves_with_the_victim() -> None:
    victim = Victim.from_module(SplitModule("lenet", [1, 28, 28], 3, release=[{"name": "scaled"}]))
    moved = copy.deepcopy(victim).to(torch.device("meta"))
    assert {tensor.device.type for tensor in moved.release.state_dict().values()} == {"meta"}  # type: ignore[attr-defined]
    plain = Victim(nn.Flatten(), nn.Identity(), lambda z: z, (1, 28, 28), 3, (0.0, 1.0))
    assert plain.to(torch.device("cpu")).released(torch.ones(2, 1, 28, 28)).shape == (2, 784)


def test_the_same_command_gives_the_same_figures_however_random_the_release(config: Make, tmp_path: Path) -> None:
    found = []
    for folder in ("one", "other"):
        chosen = config(release=["scaled"], out=str(tmp_path / folder))
        run = Run(Path(chosen.out) / train(chosen)["name"])
        torch.randn(7)  # whatever else was drawn in between
        assert main([str(run.folder), "--device", "cpu", "--samples", "6", "--budget", "fast"]) == 0
        results = run.read_results()
        found.append((results["utility"], results["separability"], results["worst_case"]))
    assert found[0] == found[1]


def test_the_client_and_the_attacker_do_not_draw_the_same_noise(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = config(release=["scaled"])
    run, seen = Run(Path(chosen.out) / train(chosen)["name"]), []
    reconstruct = WhiteBox.reconstruct

    def spied(self: WhiteBox, victim: Victim, z: Tensor) -> Any:
        x = torch.zeros(len(z), *victim.shape)
        seen.append((z - victim.encoder(x) * float(victim.release[0].factor), victim.released(x)))  # type: ignore[index]
        seen.append((victim.released(x), victim.released(x)))
        return reconstruct(self, victim, z)

    monkeypatch.setattr(WhiteBox, "reconstruct", spied)
    assert main([str(run.folder), "--device", "cpu", "--samples", "6", "--attacks", "whitebox/paper"]) == 0
    (client, attacker), (first, second) = seen
    noise = (attacker - attacker.mean(dim=0)).flatten()
    assert torch.corrcoef(torch.stack([(client - client.mean(dim=0)).flatten(), noise]))[0, 1].abs() < 0.2
    assert not torch.equal(first, second), "every query is a fresh draw"


def test_a_decoder_of_one_release_is_not_taken_for_another(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = AttackerData(torch.rand(40, 1, 28, 28), torch.arange(40) % 3)
    victim = Victim.from_module(SplitModule("lenet", [1, 28, 28], 3, cut="conv1"))
    releases: list[Callable[[Tensor], Tensor]] = [
        lambda z: z,
        lambda z: 3 * z,
        lambda z: z + 0.1 * torch.randn_like(z),
        lambda z: z + 0.2 * torch.randn_like(z),
    ]
    decoder = Decoder("adaptive", "fast", cache=tmp_path)
    files = {
        decoder.file("inverse", Victim(victim.encoder, victim.head, release, (1, 28, 28), 3, (0.0, 1.0)), data)
        for release in releases
    }
    assert len(files) == len(releases)
    assert decoder.file("inverse", victim, data) in files, "a release that does nothing is the one that does nothing"


def test_a_grid_over_a_release_has_a_vanilla_cell_of_its_own() -> None:
    grid = completed({"lambda": [0.0], "release": ["scaled"]})
    cells = [(cell.defence, cell.release) for cell in laid_out([grid], {"dataset": "mnist-5k"}).configs]
    assert cells == [("none", []), ("none", ["scaled"])]
