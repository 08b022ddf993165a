"""Gradients through shut ReLUs: white-box attackers own the weights, so they may also choose what flows backwards.

Where the victim's ReLU is shut and the representation says that it was open, the true gradient is 0 and descent is
blind. A leak lets a part of the gradient through; the forward pass is the victim's own, to the last bit.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn


class Leak:
    """How much gradient passes a shut ReLU, one number an input (N,); None: nothing, the true gradient."""

    def __init__(self) -> None:
        self.slopes: Tensor | None = None


class LeakyGradient(torch.autograd.Function):
    """relu(x), with `slopes` (N, 1, …) in place of the gradient's zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slopes: Tensor) -> Tensor:
        ctx.save_for_backward(x > 0, slopes)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        is_open, slopes = ctx.saved_tensors
        return torch.where(is_open, gradients[0], slopes * gradients[0]), None


class LeakyReLUBackwards(nn.Module):
    """A ReLU whose gradient leaks."""

    def __init__(self, leak: Leak) -> None:
        super().__init__()
        self.leak = leak

    def forward(self, x: Tensor) -> Tensor:
        slopes = self.leak.slopes
        if slopes is None or len(slopes) != len(x):
            return x.clamp_min(0)
        leaky: Tensor = LeakyGradient.apply(x, slopes.view(-1, *[1] * (x.ndim - 1)))
        return leaky


def with_leaks(encoder: nn.Module) -> tuple[nn.Module, Leak]:
    """The encoder with every `nn.ReLU` made leaky backwards, and the leak they share; the original is left alone."""
    leak = Leak()
    opened = copy.deepcopy(encoder)
    for parent in [*opened.modules()]:
        for name, child in parent.named_children():
            if isinstance(child, nn.ReLU):
                setattr(parent, name, LeakyReLUBackwards(leak))
    return opened, leak
