"""An attacker sees weights and representations, never an input it is scored on."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sweetspot.attacks import Attack, AttackerData, Reconstruction, Victim
from sweetspot.attacks.prototype import Prototype
from sweetspot.attacks.whitebox import WhiteBox
from sweetspot.datamodules import TensorDataModule, load
from sweetspot.errors import UserError
from sweetspot.lightning_modules.split_module import SplitModule


@pytest.fixture
def victim() -> Victim:
    torch.manual_seed(0)
    return Victim.from_module(SplitModule("lenet", [1, 28, 28], 3, cut="conv1", defence="mixcon", lam=1.0))


@pytest.fixture
def datamodule(npz: Callable[..., Path]) -> TensorDataModule:
    return TensorDataModule(load(str(npz()), Path(".")), 12)


def test_nothing_that_an_attack_gets_can_hold_the_attacked_inputs() -> None:
    assert list(inspect.signature(Attack.reconstruct).parameters) == ["self", "victim", "z"]
    fields = {field.name for field in dataclasses.fields(Victim)}
    assert fields == {"encoder", "head", "release", "shape", "classes", "bounds"}
    assert {field.name for field in dataclasses.fields(AttackerData)} == {"x", "y"}
    assert {field.name for field in dataclasses.fields(Reconstruction)} == {"x", "residual", "seconds", "trace"}


def test_the_attackers_data_are_the_training_split(datamodule: TensorDataModule) -> None:
    data = AttackerData.of(datamodule)
    assert data.x is datamodule.train[0]
    assert data.images(slice(0, 2)).max() <= 1
    spaced = AttackerData(torch.arange(10.0).view(10, 1), torch.arange(10)).sample(4)
    assert spaced.flatten().tolist() == [0, 3, 6, 9], "data are often sorted by class"


def test_an_attack_that_needs_data_refuses_without(victim: Victim) -> None:
    with pytest.raises(UserError, match="needs inputs of the attacker's own"):
        Prototype().prepare(victim, None)


@pytest.mark.parametrize("attack", [WhiteBox("paper"), Prototype()], ids=repr)
def test_representations_that_are_no_numbers_are_refused(
    attack: Attack, victim: Victim, datamodule: TensorDataModule
) -> None:
    attack.prepare(victim, AttackerData.of(datamodule))
    z = victim.encoder(torch.zeros(2, 1, 28, 28))
    z[0, 0, 0, 0] = torch.nan
    with pytest.raises(UserError, match="NaN or infinite"):
        attack.reconstruct(victim, z)


def test_the_prototype_answers_with_the_median_of_the_class_that_it_is_told(
    victim: Victim, datamodule: TensorDataModule
) -> None:
    attack = Prototype()
    attack.prepare(victim, AttackerData.of(datamodule))
    x, y = datamodule.test[0][:6].float() / 255, datamodule.test[1][:6]
    with torch.no_grad():
        z = victim.encoder(x)
    with pytest.raises(UserError, match="must be told the classes"):
        attack.reconstruct(victim, z)
    attack.tell(y)
    recovered = attack.reconstruct(victim, z).x
    train_x, train_y = datamodule.train
    for row, c in zip(recovered, y, strict=True):
        assert torch.allclose(row, (train_x[train_y == c].float() / 255).median(dim=0).values)
