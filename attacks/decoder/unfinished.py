"""A decoder's training that was stopped goes on where it was: the GAN's 50 epochs take an hour of a CPU core."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from sweetspot.files import DamagedFileError, read_tensors, save_tensors

EVERY = 60.0  # seconds between two times that the state is written: what a kill costs at most


class Unfinished(Callback):
    """Writes the state of a training to a file as it goes, and takes it from there.

    What follows is the same, to the last bit, as without a stop.

    Args:
        file: where the state lies, or will; None: nowhere.
        module: what is trained. Where the file holds another's state, or is damaged, the training begins anew.
    """

    def __init__(self, file: Path | None, module: lightning.LightningModule) -> None:
        self.file = file
        self.state = None if file is None else state_of(file, module)
        self.before: int = 0 if self.state is None else self.state["step"]
        self.written = time.monotonic()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        if self.state is None:
            return
        pl_module.load_state_dict(self.state["module"])
        for part, state in zip(stateful(trainer), self.state["parts"], strict=True):
            part.load_state_dict(state)
        draws_go_on(self.state["draws"], pl_module.device)
        self.state = None  # as large as the networks and their optimisers

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, *args: Any) -> None:
        step = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        if self.file is None or time.monotonic() - self.written < EVERY or step >= trainer.num_training_batches:
            return
        state = {
            "step": self.before + step,
            "module": pl_module.state_dict(),
            "parts": [part.state_dict() for part in stateful(trainer)],
            "draws": draws_so_far(pl_module.device),
        }
        save_tensors(self.file, state)
        self.written = time.monotonic()


def state_of(file: Path, module: lightning.LightningModule) -> dict[str, Any] | None:
    """The state in a file, None where there is none for this module."""
    if not file.is_file():
        return None
    try:
        state: dict[str, Any] = read_tensors(file)
        same = {name: tensor.shape for name, tensor in state["module"].items()} == {
            name: tensor.shape for name, tensor in module.state_dict().items()
        }
    except (DamagedFileError, LookupError, TypeError, AttributeError):
        return None
    return state if same else None


def stateful(trainer: lightning.Trainer) -> list[Any]:
    """The optimisers and schedules of a training."""
    return [*trainer.optimizers, *(each.scheduler for each in trainer.lr_scheduler_configs)]


def draws_so_far(device: torch.device) -> dict[str, Tensor]:
    """The states of the random generators that a release may draw from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states["device"] = torch.get_device_module(device).get_rng_state(device)
    return states


def draws_go_on(states: dict[str, Tensor], device: torch.device) -> None:
    """Set the generators to those states."""
    torch.set_rng_state(states["cpu"])
    if "device" in states and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states["device"], device)
