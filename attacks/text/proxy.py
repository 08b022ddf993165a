"""The inner loop: a vector in place of a token, moved by Adam until it explains the leaked state."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.recovery import Trace

LOOK_EVERY = 10  # steps between two looks at who is finished: a look waits for the device


@dataclass(frozen=True)
class InnerLoop:
    """How a proxy descends.

    Args:
        steps: the most steps.
        lr: Adam's step size at the start.
        lr_floor: where the cosine annealing ends.
        anneal: whether the step size is annealed at all.
        clip: the largest norm of a proxy's gradient, None: any.
        weight_decay: decoupled from the gradient, as in AdamW.
        loss_threshold: the MSE at which a proxy stops, as a fraction of the state's mean square: an absolute one that
            is tiny at one layer is as large as the states of another.
    """

    steps: int = 1000
    lr: float = 0.03
    lr_floor: float = 0.0
    anneal: bool = True
    clip: float | None = 1.0
    weight_decay: float = 0.0
    loss_threshold: float = 1e-5

    def lr_at(self, step: int) -> float:
        """The step size of a step, counted from 1."""
        if not self.anneal:
            return self.lr
        cosine = 0.5 * (1 + math.cos(math.pi * (step - 1) / self.steps))
        return self.lr_floor + (self.lr - self.lr_floor) * cosine


def loss_and_gradient(
    prefix: Prefix, proxies: Tensor, target: Tensor, rows: Tensor, spread: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The MSE of each proxy (N,) and its gradient (N, d). The losses are summed: nothing of one reaches another.

    With the `spread` of each coordinate (d,), the difference is divided by it before it is squared.
    """
    with torch.enable_grad():
        e = proxies.detach().requires_grad_(True)
        difference = prefix.states_of_embeddings(e, prefix.unless_all(rows)) - target
        losses = (difference if spread is None else difference / spread).square().mean(dim=1)
        (gradient,) = torch.autograd.grad(losses.sum(), e)
    return losses.detach(), gradient


def clipped(gradient: Tensor, norm: float | None) -> Tensor:
    """Each row with its norm at most `norm`, (N, d) → (N, d), as torch's clip_grad_norm_ does it to one."""
    if norm is None:
        return gradient
    size: Tensor = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    return gradient * (norm / (size + 1e-6)).clamp_max(1.0)


def descend(
    prefix: Prefix,
    target: Tensor,
    start: Tensor,
    rows: Tensor,
    loop: InnerLoop,
    trace: Trace,
    spread: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Where each proxy ends (N, d), and after how many steps (N,). One that is finished is frozen, and soon dropped.

    Args:
        prefix: what is committed already.
        target: the leaked states (N, d).
        start: where each proxy begins (N, d).
        rows: the place of each prompt in the prefix (N,).
        loop: how to descend.
        trace: what records the way.
        spread: of each coordinate (d,), by which the loss is scaled; then the threshold is a fraction of 1.
    """
    ended, taken = start.clone(), torch.zeros(len(start), dtype=torch.long, device=start.device)
    live = torch.arange(len(start), device=start.device)
    e, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)  # and Adam's moments
    going = torch.ones_like(live, dtype=torch.bool)
    size = target.square().mean(dim=1) if spread is None else torch.ones_like(target[:, 0])
    small = loop.loss_threshold * size  # (N,)
    wanted, place = target, rows
    for step in range(1, loop.steps + 1):
        losses, gradient = loss_and_gradient(prefix, e, wanted, place, spread)
        trace.step(e, losses, place, going)
        going = going & ~(losses < small)
        gradient = clipped(gradient.nan_to_num(0.0, 0.0, 0.0), loop.clip)  # a step that is not finite is not taken
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        lr = loop.lr_at(step)
        move = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        e = torch.where(going[:, None], e * (1 - lr * loop.weight_decay) - lr * move, e)
        ended[live], taken[live] = e, taken[live] + going
        if step % LOOK_EVERY == 0 and not going.all():
            live, e, first, second = live[going], e[going], first[going], second[going]
            wanted, place, small = target[live], rows[live], small[going]  # the same tensors until the next look
            going = going[going]
            if len(live) == 0:
                break
    return ended, taken
