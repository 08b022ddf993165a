"""The federated round: what the server sends, and the one gradient that the client sends back.

weights = chosen_weights(dim=50, width=5000, seed=0)
gradient = client_gradient(x, y, weights, as_activation("tanh"))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.errors import UserError
from sweetspot.runs.choices import BIAS


@dataclass(frozen=True)
class Weights:
    """The two-layer network f(x) = Σ_j a_j·σ(w_j·x) + bias.

    Args:
        w: the hidden layer (m, d).
        a: the last layer (m,), no entry 0.
        bias: of the last layer, a constant of the server's (Remark 1); nobody reports a gradient for it.
    """

    w: Tensor
    a: Tensor
    bias: float = BIAS

    def double(self) -> Weights:
        """The same in double precision, in which attacks compute."""
        return replace(self, w=self.w.detach().double(), a=self.a.detach().double())


@dataclass(frozen=True)
class Gradient:
    """What the client reports.

    Args:
        a: ∂L/∂a_j (m,).
        w: ∂L/∂w_j (m, d).
    """

    a: Tensor
    w: Tensor

    def double(self) -> Gradient:
        """The same in double precision, in which attacks compute."""
        return Gradient(self.a.detach().double(), self.w.detach().double())

    def over(self, factor: float) -> Gradient:
        """The gradient divided by a number."""
        return Gradient(self.a / factor, self.w / factor)


def chosen_weights(
    dim: int, width: int, seed: int = 0, bias: float = BIAS, dtype: torch.dtype = torch.float64
) -> Weights:
    """The weights that an attacking server sends: a_j = 1/m and w_j ~ N(0, I).

    Example:
        >>> chosen_weights(3, 10).w.shape
        torch.Size([10, 3])
    """
    if min(dim, width) < 1:
        raise UserError(f"the network needs at least one input and one hidden unit; got dim {dim} and width {width}")
    w = torch.randn(width, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return Weights(w, torch.full((width,), 1 / width, dtype=dtype), bias)


def output(x: Tensor, weights: Weights, activation: Activation) -> Tensor:
    """f(x), (B, d) → (B,)."""
    return activation(x @ weights.w.T) @ weights.a + weights.bias


def client_gradient(x: Tensor, y: Tensor, weights: Weights, activation: Activation) -> Gradient:
    """The gradient of L = ½·Σ_i (f(x_i) − y_i)² by autograd: what the formulas of the attack are checked against.

    Args:
        x: the private batch (B, d).
        y: its labels (B,).
        weights: what the server sent.
        activation: σ.
    """
    w, a = (each.detach().clone().requires_grad_(True) for each in (weights.w, weights.a))
    with torch.enable_grad():
        residues = output(x.to(w), Weights(w, a, weights.bias), activation) - y.to(w)
        of_a, of_w = torch.autograd.grad(residues.square().sum() / 2, (a, w))
    return Gradient(of_a, of_w)


def explained(x: Tensor, r: Tensor, weights: Weights, activation: Activation) -> Gradient:
    """The gradient of samples x (B, d) with residues r (B,), by the closed form.

    g_j = Σ_i r_i·σ(w_j·x_i)  and  ĝ_j = a_j·Σ_i r_i·σ'(w_j·x_i)·x_i
    """
    value, first = activation.derivatives(weights.w @ x.T, 1)  # (m, B)
    return Gradient(value @ r, weights.a[:, None] * ((first * r) @ x))
