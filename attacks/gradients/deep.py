"""Deep networks (Algorithm 2): weights with which a deep network computes the two-layer one, and its gradient undone.

All layers but the last hidden one carry x as a pair (h, −h) of d units each, with h ← (σ(h) − σ(−h)) / gain. For ReLU
this is the identity, as it is for LeakyReLU, GELU, SiLU and softplus once the gain is right; for tanh and sigmoid it is
a monotone function, undone at the end. The paper's middle layers are the identity, which for ReLU is the same; the pair
is kept through all of them because a sigmoid's offset would otherwise make all samples alike. The paper's zero rows,
which pad the layers to width m, are left out: they compute nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation, Function, as_activation
from sweetspot.attacks.gradients.federated import Gradient, Weights, chosen_weights
from sweetspot.attacks.gradients.reconstruct import Recovered, reconstruct
from sweetspot.errors import UserError
from sweetspot.runs.choices import BIAS

REACH = 20.0  # |x| up to which tanh and sigmoid are undone: beyond, they are 1 in double precision
HALVINGS = 80  # of that interval: down to rounding


@dataclass(frozen=True)
class DeepWeights:
    """f(x) = a·σ(W_last·σ(W_k ⋯ σ(W_1·x))) + bias.

    Args:
        inner: all hidden layers but the last: (2d, d), then (2d, 2d).
        last: the last hidden layer (m, 2d), or (m, d) where there is no other.
        a: the last layer (m,).
        bias: of the last layer.
        gain: what the weights behind a pair of units are divided by.
    """

    inner: tuple[Tensor, ...]
    last: Tensor
    a: Tensor
    bias: float = BIAS
    gain: float = 1.0


def gain(activation: Activation) -> float:
    """The slope at 0 of σ(z) − σ(−z), which one layer multiplies small inputs with."""
    small = torch.tensor(1e-4, dtype=torch.float64)
    found = float((activation(small) - activation(-small)) / small)
    if not found > 1e-3:
        raise UserError(
            f"activation {activation.name} has no odd part with a slope at 0: no layer can pass its input on"
        )
    return found


def chosen_deep_weights(
    dim: int, width: int, depth: int, activation: Activation, seed: int = 0, bias: float = BIAS
) -> DeepWeights:
    """The weights of an attacking server for a network of `depth` layers, the last one included; 2 is the plain one."""
    if depth < 2:
        raise UserError(f"the depth must be at least 2; got {depth}")
    plain = chosen_weights(dim, width, seed, bias)
    if depth == 2:
        return DeepWeights((), plain.w, plain.a, bias)
    identity, scale = torch.eye(dim, dtype=plain.w.dtype), gain(activation)
    pair = torch.cat([identity, -identity])  # (2d, d)
    inner = (pair, *[pair @ pair.T / scale] * (depth - 3))
    return DeepWeights(inner, plain.w @ pair.T / scale, plain.a, bias, scale)


def deep_output(x: Tensor, weights: DeepWeights, activation: Activation) -> Tensor:
    """f(x), (B, d) → (B,)."""
    for layer in (*weights.inner, weights.last):
        x = activation(x @ layer.T)
    return x @ weights.a + weights.bias


def deep_gradient(x: Tensor, y: Tensor, weights: DeepWeights, activation: Activation) -> DeepWeights:
    """The gradient of ½·Σ_i (f(x_i) − y_i)² by every weight, by autograd, shaped as the weights; its bias has none."""
    layers = [each.detach().clone().requires_grad_(True) for each in (*weights.inner, weights.last, weights.a)]
    with torch.enable_grad():
        model = DeepWeights(tuple(layers[:-2]), layers[-2], layers[-1], weights.bias)
        loss = (deep_output(x.to(layers[0]), model, activation) - y.to(layers[0])).square().sum() / 2
        *inner, last, a = torch.autograd.grad(loss, layers)
    return DeepWeights(tuple(inner), last, a, 0.0)


def as_two_layer(gradient: DeepWeights, weights: DeepWeights) -> tuple[Gradient, Weights]:
    """The gradient and the weights of the two-layer network inside, whose input is what the inner layers make of x."""
    if not weights.inner:
        return Gradient(gradient.a, gradient.last), Weights(weights.last, weights.a, weights.bias)
    dim = weights.last.shape[1] // 2
    if gradient.last.shape != weights.last.shape:
        raise UserError(f"the gradient's shape {tuple(gradient.last.shape)} is not {tuple(weights.last.shape)}")
    difference = (gradient.last[:, :dim] - gradient.last[:, dim:]) / weights.gain
    return Gradient(gradient.a, difference), Weights(weights.last[:, :dim] * weights.gain, weights.a, weights.bias)


def undone(h: Tensor, activation: Activation, scale: float, times: int) -> Tensor:
    """x with h = φ(…φ(x)), φ(z) = (σ(z) − σ(−z)) / scale, by bisection: φ is monotone.

    What lies outside the range of φ (noise, where tanh saturates) goes to the edge of what is searched.
    """
    for _ in range(times):
        edge = torch.maximum(torch.full_like(h, REACH), 2 * h.abs())
        low, high = -edge, edge
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = (activation(middle) - activation(-middle)) / scale < h
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        h = (low + high) / 2
    return h


def reconstruct_deep(
    gradient: DeepWeights, weights: DeepWeights, activation: str | Function | Activation, **options: Any
) -> Recovered:
    """The batch behind a deep network's gradient; the options are those of `reconstruct`."""
    sigma, times = as_activation(activation), len(weights.inner)
    recovered = reconstruct(*as_two_layer(gradient, weights), sigma, **options)
    tensor = replace(recovered.tensor, x=undone(recovered.tensor.x, sigma, weights.gain, times))
    return replace(recovered, x=undone(recovered.x, sigma, weights.gain, times), tensor=tensor)
