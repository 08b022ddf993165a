"""Hermite coefficients of an activation, and what they say: which moments carry the samples, or that none does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.least_squares import linear_least_squares
from sweetspot.errors import UserError

REACH = 12.0  # the Gaussian weight beyond is below 1e-31
PANELS = 4800  # of width 1/200: the kinks of the usual activations (0, ±1, ±3, …) lie on their edges
NODES = 3  # Gauss-Legendre nodes of a panel
HIGHEST = 4  # the highest moment that is ever formed
VANISHES = 1e-6  # a coefficient is 0 below this fraction of ‖σ‖: the quadrature is good to 1e-9


def quadrature() -> tuple[Tensor, Tensor]:
    """Nodes z and weights (N,) with Σ weight·h(z) = E[h(Z)], Z ~ N(0, 1).

    Composite Gauss-Legendre instead of Gauss-Hermite: a kink on the edge of a panel costs no accuracy.
    """
    inner, weights = np.polynomial.legendre.leggauss(NODES)
    half = REACH / PANELS
    centres = np.linspace(-REACH + half, REACH - half, PANELS)
    z = torch.from_numpy((centres[:, None] + half * inner).ravel())
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    return z, density * torch.from_numpy(np.tile(half * weights, PANELS))


def polynomial(z: Tensor, order: int) -> Tensor:
    """He_order(z), the probabilists' Hermite polynomial, shaped as z.

    Example:
        >>> polynomial(torch.tensor(2.0), 3)  # z³ − 3z
        tensor(2.)
    """
    before, now = torch.zeros_like(z), torch.ones_like(z)
    for p in range(order):
        before, now = now, z * now - p * before
    return now


def coefficients(activation: Activation, norms: Tensor, highest: int = HIGHEST) -> Tensor:
    """E[σ(τZ)·He_p(Z)] for each norm τ (N,) and p = 0..highest, (N, highest + 1).

    By Stein's lemma this is τ^p·E[σ^(p)(τZ)], the weight of a sample of norm τ in the moment of order p, without its
    residue and as a multiple of its direction.
    """
    z, weights = (each.to(norms.device) for each in quadrature())
    basis = torch.stack([weights * polynomial(z, p) for p in range(highest + 1)], dim=1)  # (nodes, highest + 1)
    return torch.stack([activation(norm * z) @ basis for norm in norms.double()])


@dataclass(frozen=True)
class Plan:
    """Which moments carry the samples.

    Args:
        subspace: the smallest order ≥ 2 whose coefficient is not 0: its moment spans the samples.
        tensor: the smallest order ≥ 3: its moment tells them apart.
    """

    subspace: int
    tensor: int


@lru_cache(maxsize=32)  # it depends on nothing but the activation
def plan(activation: Activation) -> Plan:
    """The orders for an activation, by its coefficients at unit norm; an activation that hides the samples is refused.

    Example:
        >>> from sweetspot.attacks.gradients.activations import as_activation
        >>> plan(as_activation("tanh")), plan(as_activation("relu"))
        (Plan(subspace=3, tensor=3), Plan(subspace=2, tensor=4))
    """
    at_one = coefficients(activation, torch.ones(1))[0]
    if not at_one.isfinite().all():
        raise UserError(f"activation {activation.name} is not finite on [-12, 12]")
    refuse_second_degree(activation)
    z, weights = quadrature()
    size = (activation(z).square() @ weights).sqrt()
    alive = [p for p in range(2, HIGHEST + 1) if at_one[p].abs() > VANISHES * size]
    if not alive or alive[-1] < 3:
        raise UserError(
            f"activation {activation.name}: its Hermite coefficients of orders 3 and 4 vanish; no moment tells the "
            "samples apart"
        )
    return Plan(subspace=alive[0], tensor=min(p for p in alive if p >= 3))


def refuse_second_degree(activation: Activation) -> None:
    """Refuse polynomials of degree ≤ 2, through which different batches give the same gradient."""
    z = torch.linspace(-4, 4, 41, dtype=torch.float64)
    powers = torch.stack([z**p for p in range(3)], dim=1)  # (41, 3)
    fit = linear_least_squares(powers, activation(z)[:, None])
    missed = (powers @ fit)[:, 0] - activation(z)
    if missed.abs().max() > 1e-9 * activation(z).abs().max():
        return
    if fit[2].abs() <= 1e-9 * fit.abs().max():
        raise UserError(
            f"activation {activation.name} is linear: the gradient holds only Σ r_i·x_i, "
            "the samples are not identifiable"
        )
    raise UserError(
        f"activation {activation.name} is quadratic: the gradient holds only Σ r_i·x_i·x_iᵀ and Σ r_i·x_i, "
        "the samples are not identifiable"
    )
