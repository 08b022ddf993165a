"""Augmentation: what each kind may change, what it is drawn from, and runs that resume with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sweetspot.commands.train import main
from sweetspot.datamodules.augment import AUGMENTATIONS, Augmentation, augmentation_seed, checked_augmentations
from sweetspot.errors import UserError
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.runs.matching import matching_vanilla
from sweetspot.sweeps.grid import completed, laid_out
from sweetspot.training import train
from tests.conftest import ROOT

Make = Callable[..., TrainConfig]
CPU = torch.device("cpu")


def images(count: int = 16, channels: int = 3, height: int = 24, width: int = 17) -> Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(0))


def augmented(x: Tensor, *names: str, seed: int = 0) -> Tensor:
    with draws_from(seed, CPU):
        return Augmentation(names, x.shape[1:])(x)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("names", [*((name,) for name in AUGMENTATIONS), AUGMENTATIONS])
def test_images_change_and_stay_images(names: tuple[str, ...], channels: int) -> None:
    x = images(channels=channels)
    before, changed = x.clone(), augmented(x, *names)
    assert changed.shape == x.shape
    assert changed.dtype == x.dtype
    assert changed.is_contiguous(memory_format=torch.channels_last)
    assert 0 <= changed.min() <= changed.max() <= 1
    assert torch.equal(x, before), "the batch itself is left as it is"
    assert not torch.equal(changed, x)
    assert len({tuple((a - b).flatten()[:50].tolist()) for a, b in zip(changed, x, strict=True)}) > 1, "each its own"


def test_a_flip_is_the_mirror_image_or_nothing() -> None:
    x = images(64)
    changed = augmented(x, "flip")
    mirrored = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(changed, x, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(changed, x, strict=True)])
    assert (mirrored ^ same).all()
    assert 16 < int(mirrored.sum()) < 48


def test_a_crop_moves_the_image_by_whole_pixels_within_black_borders() -> None:
    x = images(32)
    changed, up, left = augmented(x, "crop"), 3, 3  # an eighth of 24 and of 17, rounded up
    padded = torch.nn.functional.pad(x, (left, left, up, up))
    moves = set()
    for ours, whole in zip(changed, padded, strict=True):
        windows = whole.unfold(1, 24, 1).unfold(2, 17, 1)  # (C, 7, 7, 24, 17)
        errors = (windows - ours[:, None, None]).abs().amax(dim=(0, 3, 4))
        assert errors.min() < 1e-4
        moves.add(int(errors.argmin()))
    assert len(moves) > 10


def test_colour_keeps_grey_grey_and_changes_no_place() -> None:
    grey = images(channels=1).expand(-1, 3, -1, -1)
    changed = augmented(grey, "colour")
    assert (changed - changed[:, :1]).abs().max() < 1e-5
    flat = augmented(torch.full((8, 3, 9, 9), 0.5), "colour")
    assert flat.flatten(1).std(dim=1).max() < 1e-5


def test_draws_follow_from_the_seed_alone() -> None:
    x = images()
    first = augmented(x, *AUGMENTATIONS)
    torch.rand(100)
    state = torch.get_rng_state()
    assert torch.equal(augmented(x, *AUGMENTATIONS), first)
    assert torch.equal(torch.get_rng_state(), state), "nothing else that is random changes"
    assert not torch.equal(augmented(x, *AUGMENTATIONS, seed=1), first)
    seeds = {
        augmentation_seed(*each) for each in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
    }
    assert len(seeds) == 5


def test_half_precision_of_a_step_does_not_reach_the_images() -> None:
    x = images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(augmented(x, *AUGMENTATIONS), augmented(x, *AUGMENTATIONS))
        assert augmented(x, "rotate").dtype == torch.float32


# ---------------------------------------------------------------------- runs


def weights(config: TrainConfig, results: dict[str, Any]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = load_checkpoint(Path(config.out) / results["name"] / "last.ckpt")["state_dict"]
    return state


def test_a_resumed_run_ends_where_an_unbroken_one_ends(
    config: Make, tmp_path: Path, power_cut: Callable[[TrainConfig, int], None]
) -> None:
    options: dict[str, Any] = {"lam": 0.0, "epochs": 3, "augment": ["crop", "flip"], "release": ["gaussian"]}
    unbroken, broken = (config(**options, out=str(tmp_path / name)) for name in ("unbroken", "broken"))
    expected = train(unbroken)
    power_cut(broken, 1)
    results = train(broken)
    ours, theirs = weights(broken, results), weights(unbroken, expected)
    assert results["training"]["resumed"]
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    plain = config(**{**options, "augment": []}, out=str(tmp_path / "plain"))
    bare = weights(plain, train(plain))
    assert not all(torch.equal(bare[name], theirs[name]) for name in theirs)
    assert expected["config"]["augment"] == ["crop", "flip"]


def test_training_alone_is_augmented(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    call = Augmentation.__call__

    def counting(self: Augmentation, x: Tensor) -> Tensor:
        seen.append(len(x))
        return call(self, x)

    monkeypatch.setattr(Augmentation, "__call__", counting)
    train(config(lam=0.0, augment=["flip"], epochs=2))
    assert sum(seen) == 2 * 57, "not the 3 of validation, nor the 30 of the test"


def test_it_is_part_of_a_run_and_of_its_vanilla(config: Make) -> None:
    def name(**fields: Any) -> str:
        return config(**fields).run_name("mnist", "torchvision")

    assert "augment" not in config().identity("mnist", "torchvision"), "runs from before keep their names"
    assert name() == name(augment=[]) == name(augment=["none"])
    assert name(augment=["crop", "flip"]) == name(augment=["flip", "crop"]) == name(augment=["flip+crop", "crop"])
    assert len({name(), *(name(augment=[each]) for each in AUGMENTATIONS)}) == 5
    runs = {}
    for lam in (0.0, 1.0):
        for augment in ([], ["flip"]):
            chosen = config(lam=lam, augment=augment, epochs=1)
            runs[lam, bool(augment)] = chosen, train(chosen)
    for is_augmented in (False, True):
        chosen, results = runs[1.0, is_augmented]
        vanilla = matching_vanilla(Run(Path(chosen.out) / results["name"]))
        assert vanilla is not None
        assert vanilla["name"] == runs[0.0, is_augmented][1]["name"]


def test_it_is_an_axis() -> None:
    grid = completed({"defence": ["none"], "augment": ["none", "crop", "flip+crop"]})
    found = laid_out([grid], {"dataset": "mnist-5k"}).configs
    assert [each.augment for each in found] == [[], ["crop"], ["crop", "flip"]]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["flp"], r"--augment must be of crop, flip, rotate, colour; got flp \(did you mean flip\?\)"),
        (["color"], r"did you mean colour\?"),
        (["none", "crop"], "--augment none stands alone"),
        (["crop+"], "must be of"),
    ],
)
def test_what_there_is_not_is_said_in_one_line(names: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        checked_augmentations("--augment", names)


def test_vectors_are_no_images(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--dataset", "synthetic", "--network", "mlp", "--augment", "crop", "--out", str(tmp_path)]) == 2
    assert "--augment crop changes images, and these data are none" in capsys.readouterr().err


def test_kornia_is_loaded_only_where_it_is_needed() -> None:
    said = "import sys, sweetspot.commands.train; print('kornia' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
