"""What of a grid is there."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sweetspot.datamodules.torchvision_sets as torchvision_sets
from sweetspot.errors import UserError
from sweetspot.runs.config import TrainConfig
from sweetspot.sweeps.plan import State, check_room, planned
from sweetspot.training import train

Config = Callable[..., TrainConfig]


def test_a_cell_has_the_folder_that_train_gives_it(config: Config) -> None:
    asked = config(lam=1.0)
    (cell,) = planned([asked])
    assert cell.state() is State.TO_DO
    assert train(asked)["name"] == cell.name
    assert cell.state() is State.DONE


def test_a_cell_without_its_attacks_is_not_done(config: Config) -> None:
    asked = config(lam=0.0, epochs=1)
    train(asked)
    (cell,) = planned([dataclasses.replace(asked, attacks=["whitebox"])])
    assert cell.state() is State.TRAINED


def test_a_cell_that_failed_or_was_stopped_says_so(config: Config) -> None:
    (cell,) = planned([config(lam=1.0)])
    cell.run.create()
    cell.run.checkpoint.write_bytes(b"")
    assert cell.state() is State.BEGUN
    cell.run.write_failure(cell.failure("no luck"))
    assert cell.state() is State.FAILED
    assert cell.run.read_failure()["error"] == "no luck"


def test_a_success_removes_what_an_earlier_failure_left(config: Config) -> None:
    asked = config(lam=1.0, epochs=1)
    (cell,) = planned([asked])
    cell.run.create()
    cell.run.write_failure(cell.failure("no luck"))
    train(asked)
    assert cell.state() is State.DONE
    assert not cell.run.failure.exists()


def test_the_fallback_of_the_data_is_decided_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torchvision_sets, "reachable", lambda url: False)
    config = TrainConfig(out=str(tmp_path), data_root=str(tmp_path))
    (cell,) = planned([config])
    assert cell.config.dataset == "mnist-5k"
    assert cell.name.startswith("mnist-5k-")
    assert planned([cell.config])[0].name == cell.name


class Usage(NamedTuple):
    total: float
    used: float
    free: float


def test_a_full_disk_is_said_before_anything_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(path: Any) -> Usage:
        return Usage(1e9, 1e9, 1e6)

    monkeypatch.setattr(shutil, "disk_usage", full)
    with pytest.raises(UserError, match="has 1 MB of disk left, and 57 runs need about 335; make room"):
        check_room(tmp_path / "not" / "there", planned([TrainConfig(dataset="mnist-5k", lam=1.0)]) * 57)
