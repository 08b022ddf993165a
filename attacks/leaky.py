"""Gradients through shut ReLUs: white-box attackers own the weights, so they may also choose what flows backwards.

Where the victim's ReLU is shut and the representation says that it was open, the true gradient is 0 and descent is
blind. A leak lets a part of the gradient through; the forward pass is the victim's own, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

# what a network's ReLU may be called by: a module (which calls the first), a function or a method. `x.relu_()` is left
# alone: who calls it may look at x afterwards, not at what comes back.
RELUS = (F.relu, torch.relu, Tensor.relu)


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


class Leak(TorchFunctionMode):
    """`with leak: h(x)` runs h with every ReLU leaky backwards, however the network calls it.

    `slopes` says how much gradient passes a shut ReLU, one number an input (N,); None: nothing, the true gradient.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slopes: Tensor | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in RELUS or self.slopes is None or not args[0].shape or len(args[0]) % len(self.slopes):
            return func(*args, **(kwargs or {}))
        x = args[0]
        slopes = self.slopes.repeat_interleave(len(x) // len(self.slopes))  # tokens or windows folded into the batch
        return LeakyGradient.apply(x, slopes.view(-1, *[1] * (x.ndim - 1)))
