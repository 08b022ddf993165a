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

# what a network's ReLU may be called by: a module (which calls the first), a function or a method
RELUS = (F.relu, torch.relu, Tensor.relu)
IN_PLACE = (torch.relu_, Tensor.relu_)  # F.relu_ is the first of them


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


class LeakyInPlace(torch.autograd.Function):
    """The same, written into x: whoever looks at x afterwards sees what the victim's own ReLU leaves there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slopes: Tensor) -> Tensor:
        ctx.save_for_backward(x > 0, slopes)
        ctx.mark_dirty(x)
        return x.clamp_min_(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return LeakyGradient.backward(ctx, *gradients)


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
        given = kwargs or {}
        if func not in (*RELUS, *IN_PLACE) or self.slopes is None:
            return func(*args, **given)
        x = args[0] if args else given["input"]
        in_place = func in IN_PLACE or bool(args[1] if len(args) > 1 else given.get("inplace", False))
        if not x.shape or len(x) % len(self.slopes):
            return func(*args, **given)
        if in_place and not (x.requires_grad and torch.is_grad_enabled()):
            return func(*args, **given)
        slopes = self.slopes.repeat_interleave(len(x) // len(self.slopes))  # tokens or windows folded into the batch
        return (LeakyInPlace if in_place else LeakyGradient).apply(x, slopes.view(-1, *[1] * (x.ndim - 1)))
