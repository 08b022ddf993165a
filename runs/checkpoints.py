"""Checkpoints that are data, not code: written whole, read with weights only, refused in one line when unsound."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from torch import nn

from sweetspot.errors import UserError, first_line
from sweetspot.files import DamagedFileError, read_tensors, save_tensors
from sweetspot.lightning_modules.networks.foreign import is_code
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.registry import is_loaded, is_users_own
from sweetspot.runs.folder import Run

NEEDED = {"state_dict", "epoch", "global_step", "history", "hyper_parameters", "loops", "pytorch-lightning_version"}


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint in `path` on the CPU. A pickle that wants to run something is refused, and nothing of it runs."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file; {anew(path)}")
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    try:
        checkpoint = read_tensors(path)
    except DamagedFileError as error:
        if isinstance(error.__cause__, pickle.UnpicklingError):
            raise UserError(
                f"checkpoint {path} holds more than weights and is refused: it may run code when loaded, or it is "
                f"damaged; {anew(path)}"
            ) from error
        raise UserError(f"checkpoint {path} is truncated or damaged; {anew(path)}") from error
    except OSError as error:
        raise UserError(f"checkpoint {path} cannot be read ({error.strerror})") from error
    if not isinstance(checkpoint, dict) or not checkpoint.keys() >= NEEDED:
        raise UserError(f"checkpoint {path} is not one of sweetspot's: it needs {', '.join(sorted(NEEDED))}")
    if wrong := wrong_part(checkpoint):
        raise UserError(f"checkpoint {path} is damaged: its {wrong} is not what sweetspot writes; {anew(path)}")
    return checkpoint


def anew(path: Path) -> str:
    """What to do about a checkpoint that cannot be used: it works when done."""
    run = Run(path.parent)
    if run.finished:  # train.py finds such a run done, and would not train it again for want of a checkpoint alone
        return f"`{run.command()} --force` trains the run again"
    return "remove it, and the same command starts the run anew"


def is_figure(value: Any) -> bool:
    """Whether a value of an epoch can be drawn."""
    return isinstance(value, int | float)


def wrong_part(checkpoint: dict[str, Any]) -> str:
    """The first part of a checkpoint that is not of its kind; empty: none."""
    kinds: dict[str, type] = {"state_dict": dict, "hyper_parameters": dict, "loops": dict, "history": list}
    kinds |= {"epoch": int, "global_step": int, "pytorch-lightning_version": str}
    for name, kind in kinds.items():
        if not isinstance(checkpoint[name], kind) or isinstance(checkpoint[name], bool):
            return name
    if not all(isinstance(weight, torch.Tensor) for weight in checkpoint["state_dict"].values()):
        return "state_dict"
    for epoch in checkpoint["history"]:
        if not isinstance(epoch, dict) or "epoch" not in epoch or not all(map(is_figure, epoch.values())):
            return "history"
    return "" if checkpoint["epoch"] >= 0 and checkpoint["global_step"] >= 0 else "epoch"


def check_code(path: Path, made_with: dict[str, Any]) -> None:
    """Refuse a checkpoint that names code which the user has not named: a checkpoint is data, and runs nothing."""
    releases = made_with.get("release") or []
    named = [made_with.get("defence"), *(each.get("name") for each in releases if isinstance(each, dict))]
    code = [name for name in named if isinstance(name, str) and is_users_own(name)]
    network = made_with.get("network")
    if isinstance(network, str) and is_code(network):
        code.append(network)
    for name in code:
        if not is_loaded(name):
            file = name.partition(":")[0]
            raise UserError(f"checkpoint {path} needs the code in {file}; if you trust it: evaluate.py … --code {file}")


def load_module(path: Path) -> SplitModule:
    """The trained module in a run's `last.ckpt`: the same a minute and a month after training."""
    checkpoint = load_checkpoint(path)
    check_code(path, checkpoint["hyper_parameters"])
    try:
        module = SplitModule(**checkpoint["hyper_parameters"])
        module.load_state_dict(checkpoint["state_dict"])
    except UserError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise UserError(f"checkpoint {path} does not hold a split network of this version of sweetspot") from error
    return module.eval().requires_grad_(False)


def check_resumable(path: Path, module: nn.Module) -> int:
    """The epoch after which `path` was written, if its weights fit the module."""
    checkpoint = load_checkpoint(path)
    here = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if here != {name: tensor.shape for name, tensor in checkpoint["state_dict"].items()}:
        raise UserError(f"checkpoint {path} holds another network than this run's; {anew(path)}")
    progress, optimisers = checkpoint["loops"].get("fit_loop"), checkpoint.get("optimizer_states")
    # without them Lightning would go on in silence, from the first epoch or with a fresh optimiser
    if not isinstance(progress, dict) or "epoch_progress" not in progress:
        raise UserError(f"checkpoint {path} does not say how far it is; {anew(path)}")
    if not isinstance(optimisers, list | tuple) or not optimisers:
        raise UserError(f"checkpoint {path} does not hold the state of its optimiser; {anew(path)}")
    return int(checkpoint["epoch"])


class FirstStep(Callback):
    """Tells whether a run goes on: what fails before its first step fails for what is in the checkpoint."""

    def __init__(self) -> None:
        self.goes_on = False

    def on_train_batch_end(self, *_: Any) -> None:
        self.goes_on = True


@contextlib.contextmanager
def resuming(trainer: Trainer, path: Path | None) -> Iterator[None]:
    """Lightning's complaints about a checkpoint that it cannot resume from, in one line."""
    progress = FirstStep()
    trainer.callbacks.append(progress)  # type: ignore[attr-defined]
    try:
        yield
    except (UserError, MisconfigurationException):
        raise
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        if path is None or progress.goes_on or "CUDA" in str(error):
            raise
        raise UserError(
            f"checkpoint {path} cannot be resumed from ({type(error).__name__}: {first_line(error)}); {anew(path)}"
        ) from error


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
    """Whether a network has its weights from a file of our own cache; one that is damaged is made anew."""
    if not file.is_file():
        return False
    try:
        network.load_state_dict(read_tensors(file))
    except (DamagedFileError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return False
    return True
