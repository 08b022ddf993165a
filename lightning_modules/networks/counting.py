"""Multiply-adds of a network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


@contextlib.contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """A counter of what is computed meanwhile; attention takes the way that it can count."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with FlopCounterMode(display=False) as counter:
            yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def multiply_adds(counter: FlopCounterMode) -> int:
    """What was counted so far: a multiplication and an addition are two operations."""
    return counter.get_total_flops() // 2


@contextlib.contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Every module back in the mode that it was in, when the block ends."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@torch.no_grad()
def counted(network: nn.Module, x: Tensor) -> tuple[Tensor, int]:
    """What a network in evaluation mode gives for x, and the multiply-adds that it took."""
    with modes_kept(network), counting() as counter:
        z: Tensor = network.eval()(x)
    return z, multiply_adds(counter)
