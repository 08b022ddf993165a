"""Checkpoints that are data, not code: written whole, read with weights only, refused in one line when unsound."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from torch import nn

from errors import UserError
from files import save_tensors
from lightning_modules.split_module import SplitModule

NEEDED = {"state_dict", "epoch", "global_step", "history", "hyper_parameters", "loops", "pytorch-lightning_version"}


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint in `path` on the CPU. A pickle that wants to run something is refused, and nothing of it runs."""
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"checkpoint {path} holds more than weights and is refused: it may run code when loaded, or it is damaged; "
            f"remove it if you do not trust where it comes from"
        ) from error
    except Exception as error:  # a damaged file fails in as many ways as it has bytes
        raise UserError(
            f"checkpoint {path} is truncated or damaged; remove it, and the same command starts the run anew"
        ) from error
    if not isinstance(checkpoint, dict) or not checkpoint.keys() >= NEEDED:
        raise UserError(f"checkpoint {path} is not one of sweetspot's: it needs {', '.join(sorted(NEEDED))}")
    return checkpoint


def load_module(path: Path) -> SplitModule:
    """The trained module in a run's `last.ckpt`: the same a minute and a month after training."""
    checkpoint = load_checkpoint(path)
    try:
        module = SplitModule(**checkpoint["hyper_parameters"])
        module.load_state_dict(checkpoint["state_dict"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"checkpoint {path} does not hold a split network of this version of sweetspot") from error
    return module.eval().requires_grad_(False)


def check_resumable(path: Path, module: nn.Module) -> int:
    """The epoch after which `path` was written, if its weights fit the module."""
    checkpoint = load_checkpoint(path)
    here = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if here != {name: getattr(tensor, "shape", None) for name, tensor in checkpoint["state_dict"].items()}:
        raise UserError(f"checkpoint {path} holds another network than this run's; remove it, and the run starts anew")
    return int(checkpoint["epoch"])


class SafeCheckpointIO(CheckpointIO):
    """How Lightning writes and reads checkpoints here."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        save_tensors(Path(path), checkpoint)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return load_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def restored(network: nn.Module, file: Path) -> bool:
    """Whether a network has its weights from a file of our own cache; one that cannot be read is made anew."""
    if not file.is_file():
        return False
    try:
        network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    except (RuntimeError, OSError, EOFError, KeyError, AttributeError, pickle.UnpicklingError):
        return False
    return True
