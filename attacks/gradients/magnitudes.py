"""Signs and magnitudes: from unit directions to samples and their residues (after Zhong et al. 2017, Algorithm 4)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.hermite import HIGHEST, coefficients
from sweetspot.attacks.gradients.least_squares import linear_least_squares
from sweetspot.attacks.gradients.moments import Observed, diagonal, without_lower_orders

NORMS = torch.logspace(-1.49, 2.01, 141, dtype=torch.float64)  # where a sample's norm is looked for
WIDE = 1.5  # of the logarithm of a norm before anything is seen: data are usually scaled to the order of 1
SPREAD = 0.3  # of the logarithm of norms within a batch


@lru_cache(maxsize=32)
def coefficients_of_norms(activation: Activation) -> Tensor:
    """The coefficients (N, HIGHEST + 1) at all norms of the grid, which depend on nothing but the activation."""
    return coefficients(activation, NORMS)


def weights_of(observed: Observed, source: str, directions: Tensor) -> Tensor:
    """The least-squares weights of u_i^⊗p in the moments of orders p = 1..HIGHEST, (HIGHEST, B).

    The normal equations need only inner products: (u_i·u_k)^p on one side, the moment at u_i on the other.
    """
    cosines, found = directions @ directions.T, []
    for order in range(1, HIGHEST + 1):
        at = diagonal(without_lower_orders(observed, order), source, order, directions)
        found.append(linear_least_squares(cosines**order, at[:, None])[:, 0])
    return torch.stack(found)


def scaled(
    observed: Observed, source: str, directions: Tensor, activation: Activation, bias: float, norm: float | None
) -> tuple[Tensor, Tensor]:
    """Samples (B, k) and residues (B,) that agree best with the moments of orders 1 to 4.

    A sample ±τ·u with residue r has the weights r·(±1)^p·E[σ(τZ)·He_p(Z)]: for every norm τ of a grid and both signs
    the best r is known, and so is what it misses.

    Args:
        observed: the gradient, in the coordinates of the directions.
        source: "w" or "a".
        directions: u_i as rows (B, k).
        activation: σ.
        bias: of the last layer; where x and −x cannot be told apart, the residue takes its sign.
        norm: the samples' norm, where the attacker knows it.
    """
    norms = (NORMS if norm is None else torch.tensor([norm], dtype=torch.float64)).to(observed.w)
    orders = range(1, HIGHEST + 1)
    ease = torch.tensor([1 / math.sqrt(math.factorial(p)) for p in orders], dtype=torch.float64).to(observed.w)
    signs = torch.tensor([[(-1.0) ** (p * side) for p in orders] for side in (0, 1)]).to(observed.w)  # (2, P)
    table = coefficients_of_norms(activation).to(norms) if norm is None else coefficients(activation, norms)
    curve = table[:, 1:] * signs[:, None] * ease  # (2, N, P)
    target = (weights_of(observed, source, directions).T * ease)[:, None, None]  # (B, 1, 1, P)
    r = (target * curve).sum(dim=3) / curve.square().sum(dim=2).clamp_min(1e-300)  # (B, 2, N)
    missed = (target - r[..., None] * curve).square().sum(dim=3) / noise_of(observed, source, directions)[:, None, None]
    doubt, side = likely(missed, norms).min(dim=1)  # (B, N): of both signs the better one
    size = between(norms, doubt)  # (B,)
    side = side.gather(1, doubt.argmin(dim=1, keepdim=True))[:, 0]  # (B,)
    curve = coefficients(activation, size)[:, 1:] * signs[side] * ease  # (B, P)
    r = (target[:, 0, 0] * curve).sum(dim=1) / curve.square().sum(dim=1).clamp_min(1e-300)
    sign = torch.where(side == 0, 1.0, -1.0).to(r)
    if activation.is_odd_but_for_a_constant:
        flip = torch.where(r * bias < 0, -1.0, 1.0)
        r, sign = r * flip, sign * flip
    return (sign * size)[:, None] * directions, r


def between(norms: Tensor, doubt: Tensor) -> Tensor:
    """The norm (B,) at which doubt (B, N) is least: the vertex of the parabola through the best three of the grid."""
    best = doubt.argmin(dim=1)
    if len(norms) < 3:
        return norms[best]
    middle = best.clamp(1, len(norms) - 2)
    low, at, high = (doubt.gather(1, (middle + shift)[:, None])[:, 0] for shift in (-1, 0, 1))
    offset = ((low - high) / (2 * (low - 2 * at + high)).clamp_min(1e-300)).clamp(-1, 1)
    step = (norms[1] / norms[0]).log()
    return norms[middle] * (offset * step).exp()


def noise_of(observed: Observed, source: str, directions: Tensor) -> Tensor:
    """The variance of a moment's weight, up to its order's factorial, for each direction (B,)."""
    if source == "a":
        return observed.g.square().mean().expand(len(directions)) / len(observed.g)
    return (observed.v @ directions.T).square().mean(dim=0) / len(observed.g)


def likely(missed: Tensor, norms: Tensor) -> Tensor:
    """χ² of each sample, sign and norm (B, 2, N), with a prior: a batch has one kind of norm, within SPREAD.

    Some activations hardly change their moments' ratios with the norm (GELU is almost homogeneous when it is large);
    what one sample cannot tell, the batch can.
    """
    usual = (norms.log() / WIDE).square()
    common = norms[(missed.amin(dim=1).mean(dim=0) + usual).argmin()]
    return missed + ((norms / common).log() / SPREAD).square()
