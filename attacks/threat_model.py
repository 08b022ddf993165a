"""The threat model as objects: an attack gets a Victim and the released z, never x, and gives back a Reconstruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from datamodules import TensorDataModule
from lightning_modules.split_module import SplitModule
from runs.checkpoints import load_checkpoint


@dataclass(frozen=True)
class Victim:
    """What an attacker may see of a trained split network: its weights, and the shape and range of its inputs.

    Args:
        encoder: the client's part, with its weights, in evaluation mode, its weights frozen.
        head: the server's part.
        release: what the defence does to z on its way out; an adaptive attacker goes through it.
        shape: the shape of one input.
        bounds: the range of an input's entries, None where it has none (vectors).
    """

    encoder: nn.Module
    head: nn.Module
    release: Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    bounds: tuple[float, float] | None

    @classmethod
    def from_module(cls, module: SplitModule) -> Victim:
        """The victim inside a trained module."""
        module = module.eval().requires_grad_(False)
        shape = tuple(module.hparams["shape"])
        bounds = (0.0, 1.0) if len(shape) == 3 else None
        return cls(module.network.encoder, module.network.head, module.defence.release, shape, bounds)

    @classmethod
    def from_checkpoint(cls, path: Path) -> Victim:
        """The victim in a run's `last.ckpt`: the same a minute and a month after training."""
        checkpoint = load_checkpoint(path)
        module = SplitModule(**checkpoint["hyper_parameters"])
        module.load_state_dict(checkpoint["state_dict"])
        return cls.from_module(module)


@dataclass
class Reconstruction:
    """What an attack recovered.

    Args:
        x: the recovered inputs (B, …).
        residual: ‖h(x̂) − z‖ of each (B,), a score that needs no ground truth.
        seconds: how long it took.
        trace: whatever the attack recorded on its way.
    """

    x: Tensor
    residual: Tensor
    seconds: float
    trace: dict[str, Any] = field(default_factory=dict)


class Attack(Protocol):
    """`prepare` trains what the attack needs on the attacker's own data, `reconstruct` turns z into inputs."""

    name: str

    def prepare(self, victim: Victim, datamodule: TensorDataModule) -> None: ...

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction: ...
