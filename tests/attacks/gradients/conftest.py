"""Small federated rounds: a batch, the weights it was asked with, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation, Function, as_activation
from sweetspot.attacks.gradients.federated import Gradient, Weights, chosen_weights, client_gradient
from sweetspot.attacks.gradients.moments import Observed
from sweetspot.runs.choices import BIAS

NAMES = ("square-cubic", "tanh", "sigmoid", "relu", "leaky-relu", "gelu", "silu", "softplus")


@dataclass(frozen=True)
class Round:
    x: Tensor
    y: Tensor
    weights: Weights
    gradient: Gradient
    activation: Activation

    @property
    def observed(self) -> Observed:
        return Observed.of(self.gradient, self.weights)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def played(
    which: str | Function, batch: int = 2, dim: int = 12, width: int = 600, seed: int = 0, bias: float = BIAS
) -> Round:
    """A round with samples of norm 1 and labels ±1."""
    x, activation = drawn(batch, dim, seed=seed), as_activation(which)
    x = x / x.norm(dim=1, keepdim=True)
    y = torch.where(torch.arange(batch) % 2 == 0, 1.0, -1.0).double()
    weights = chosen_weights(dim, width, seed + 1, bias)
    return Round(x, y, weights, client_gradient(x, y, weights, activation), activation)
