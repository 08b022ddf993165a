"""Activations, their derivatives, and what of a sample can be told from a gradient through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from sweetspot.errors import UserError

Function = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Function] = {
    "square-cubic": lambda z: z.square() + z.pow(3),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky-relu": F.leaky_relu,  # slope 0.01
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "linear": lambda z: z,  # these two are here to be refused with the reason
    "quadratic": lambda z: z.square(),
}
SAME = 1e-12  # two values of a function this close, relative to its size, are the same


@dataclass(frozen=True)
class Activation:
    """An elementwise function σ with a name.

    Args:
        name: how figures call it.
        function: σ, applied to tensors of any shape; differentiable almost everywhere.
    """

    name: str
    function: Function

    def __call__(self, z: Tensor) -> Tensor:
        return self.function(z)

    def derivatives(self, z: Tensor, order: int) -> list[Tensor]:
        """σ, σ', …, σ^(order) at z, each shaped as z, by autograd; what a kink leaves undefined is 0."""
        with torch.enable_grad():
            point = z.detach().requires_grad_(True)
            values = [self.function(point)]
            for _ in range(order):
                values.append(slope(values[-1], point))
        return [each.detach() for each in values]

    @cached_property
    def is_odd(self) -> bool:
        """Whether σ(−z) = −σ(z): then (x, r) and (−x, −r) give the same gradient."""
        z = probe_points()
        return same(self(-z), -self(z))

    @cached_property
    def is_odd_but_for_a_constant(self) -> bool:
        """Whether σ(z) − σ(0) is odd, as for a sigmoid: then only Σ_i r_i tells (x, r) from (−x, −r)."""
        z = probe_points()
        zero = self(torch.zeros_like(z))
        return same(self(-z) - zero, zero - self(z))

    @cached_property
    def is_even(self) -> bool:
        """Whether σ(−z) = σ(z): then x and −x give the same gradient."""
        z = probe_points()
        return same(self(-z), self(z))

    @cached_property
    def is_homogeneous(self) -> bool:
        """Whether σ(t·z) = t·σ(z) for t > 0: then (t·x, r/t) gives the same gradient, and only directions are known."""
        z = probe_points()
        return same(self(2 * z), 2 * self(z)) and same(self(-2 * z), 2 * self(-z))

    @cached_property
    def slopes(self) -> tuple[float, float] | None:
        """σ' left and right of 0 where σ is two half-lines that meet there, None for any other σ."""
        if not self.is_homogeneous:
            return None
        one = torch.ones((), dtype=torch.float64)
        return float(-self(-one)) + 0.0, float(self(one))


def slope(values: Tensor, at: Tensor) -> Tensor:
    """d(values) / d(at), elementwise, ready to be differentiated again; 0 where autograd finds no dependence."""
    if not values.requires_grad:
        return torch.zeros_like(at)
    (found,) = torch.autograd.grad(values.sum(), at, create_graph=True, allow_unused=True)
    return torch.zeros_like(at) if found is None else found


def probe_points() -> Tensor:
    """Positive points at which symmetries of σ are looked for."""
    return torch.linspace(0.013, 4.7, 61, dtype=torch.float64)


def same(first: Tensor, second: Tensor) -> bool:
    """Whether two lists of values agree up to rounding."""
    return bool((first - second).abs().max() <= SAME * second.abs().max().clamp_min(1e-300))


def as_activation(which: str | Function | Activation) -> Activation:
    """The activation of a name, or of any elementwise function of tensors.

    Example:
        >>> as_activation("tanh").is_odd, as_activation("relu").slopes
        (True, (0.0, 1.0))
    """
    if isinstance(which, Activation):
        return which
    if not isinstance(which, str):
        return Activation(getattr(which, "__name__", type(which).__name__), which)
    if which not in ACTIVATIONS:
        raise UserError(f"the activation must be one of {', '.join(ACTIVATIONS)}; got {which}")
    return Activation(which, ACTIVATIONS[which])
