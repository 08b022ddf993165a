"""Moments of a gradient with Hermite tensors of the weights (Stein's lemma), as matrices that are never d × d × d.

    P̂ = 1/m·Σ_j g_j·H2(w_j) ≈ Σ_i r_i·E[σ''(w·x_i)]·x_i·x_iᵀ,  and so for the orders 3 and 4,

from ∂L/∂a, or from ∂L/∂W with one Hermite order less and the result made symmetric. All but two indices are filled with
given vectors. A moment is kept as what it is made of, so that its product with a few vectors costs O(m·d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sweetspot.attacks.gradients.federated import Gradient, Weights
from sweetspot.attacks.gradients.hermite import polynomial
from sweetspot.errors import UserError
from sweetspot.runs.choices import SOURCES

FEW = 64  # fewer than the projections that a joint diagonalisation takes
FEATURES = 0.1  # a control variate may have this fraction of m as parameters: more would fit the noise


@dataclass(frozen=True)
class Observed:
    """What the attack works on: hidden units as rows, in all d dimensions or in fewer.

    Args:
        w: the weights (m, k).
        g: ∂L/∂a (m,), Σ_i r_i·σ(w_j·x_i).
        v: ∂L/∂W without its factor a_j (m, k), Σ_i r_i·σ'(w_j·x_i)·x_i.
    """

    w: Tensor
    g: Tensor
    v: Tensor

    @classmethod
    def of(cls, gradient: Gradient, weights: Weights) -> Observed:
        """All of a gradient, in double precision."""
        return cls(weights.w.double(), gradient.a.double(), gradient.w.double() / weights.a.double()[:, None])

    def of_units(self, chosen: Tensor) -> Observed:
        """The chosen hidden units (m,) alone."""
        return Observed(self.w[chosen], self.g[chosen], self.v[chosen])

    def projected(self, basis: Tensor) -> Observed:
        """The same in the coordinates of orthonormal columns (k, n)."""
        return Observed(self.w @ basis, self.g, self.v @ basis)


@dataclass(frozen=True)
class MomentMatrix:
    """1/m · [Wᵀ·diag(p)·W + sym(Vᵀ·diag(q)·W) + sym(left·rightᵀ) + shift·I], with sym(X) = (X + Xᵀ) / 2.

    Args:
        observed: W and V, m rows each.
        p: weights of w_j·w_jᵀ (m,), None where there are none.
        q: weights of v_j·w_jᵀ (m,), None where there are none.
        left: (k, n).
        right: (k, n).
        shift: a multiple of the identity.
    """

    observed: Observed
    p: Tensor | None
    q: Tensor | None
    left: Tensor
    right: Tensor
    shift: Tensor

    def product(self, x: Tensor) -> Tensor:
        """The matrix times columns x (k, n), in O(m·k·n)."""
        w, v = self.observed.w, self.observed.v
        wx = w @ x  # (m, n)
        total = self.shift * x + (self.left @ (self.right.T @ x) + self.right @ (self.left.T @ x)) / 2
        if self.p is not None:
            total = total + w.T @ (self.p[:, None] * wx)
        if self.q is not None:
            total = total + (v.T @ (self.q[:, None] * wx) + w.T @ (self.q[:, None] * (v @ x))) / 2
        return total / len(w)

    def dense(self) -> Tensor:
        """The matrix itself (k, k)."""
        return self.product(torch.eye(self.observed.w.shape[1]).to(self.left))


def moment(observed: Observed, source: str, order: int, fillers: Tensor) -> MomentMatrix:
    """The moment of an order with all but two indices filled.

    Args:
        observed: the gradient.
        source: "w" for ∂L/∂W, which is more accurate, or "a" for ∂L/∂a.
        order: 2, 3 or 4.
        fillers: the vectors in the other indices (order − 2, k).
    """
    if source not in SOURCES or order not in (2, 3, 4) or len(fillers) != order - 2:
        raise UserError(f"no moment of order {order} from {source!r} with {len(fillers)} vectors")
    return (from_scalars if source == "a" else from_vectors)(observed, fillers)


def projections(observed: Observed, source: str, order: int) -> Callable[[Tensor], Tensor]:
    """A function from fillers (L, order − 2, k) to the L moments of an order that they leave, (L, k, k).

    A moment is linear in each filler: where there are few coordinates, the moments filled with those give all others.
    """
    size = observed.w.shape[1]
    unit = torch.eye(size).to(observed.w)

    def one_by_one(fillers: Tensor) -> Tensor:
        return torch.stack([moment(observed, source, order, each).dense() for each in fillers.to(observed.w)])

    if order == 2 or size ** (order - 2) > FEW:
        return one_by_one
    every, which = (torch.arange(count, device=unit.device) for count in (size, order - 2))
    places = torch.cartesian_prod(*[every] * (order - 2)).view(-1, order - 2)  # (k^(order − 2), order − 2)
    whole = one_by_one(unit[places])

    def combined(fillers: Tensor) -> Tensor:
        weights = fillers.to(observed.w)[:, which, places].prod(dim=2)  # (L, k^(order − 2))
        return torch.einsum("lc,cab->lab", weights, whole)

    return combined


def from_scalars(observed: Observed, fillers: Tensor) -> MomentMatrix:
    """1/m·Σ_j g_j·H(w_j)(I, I, fillers…)."""
    w, g = observed.w, observed.g
    nothing = w.new_zeros(w.shape[1], 0)
    if len(fillers) == 0:
        return MomentMatrix(observed, g, None, nothing, nothing, -g.sum())
    if len(fillers) == 1:
        weighted = g * (w @ fillers[0])
        return MomentMatrix(observed, weighted, None, -2 * (g @ w)[:, None], fillers.T, -weighted.sum())
    first, second = (w @ fillers.T).unbind(1)
    common = fillers[0] @ fillers[1]
    p = g * (first * second - common)
    left = -2 * torch.stack([(g * second) @ w, (g * first) @ w, -g.sum() * fillers[0]], dim=1)
    return MomentMatrix(observed, p, None, left, torch.stack([*fillers, fillers[1]], dim=1), -p.sum())


def from_vectors(observed: Observed, fillers: Tensor) -> MomentMatrix:
    """1/m·Σ_j v_j ⊗ H(w_j), averaged over the place of v_j, then (I, I, fillers…)."""
    w, v = observed.w, observed.v
    nothing = w.new_zeros(w.shape[1], 0)
    if len(fillers) == 0:
        return MomentMatrix(observed, None, torch.ones_like(observed.g), nothing, nothing, w.new_zeros(()))
    if len(fillers) == 1:
        p, q = v @ fillers[0] / 3, w @ fillers[0] * (2 / 3)
        return MomentMatrix(observed, p, q, -2 / 3 * v.sum(dim=0)[:, None], fillers.T, -p.sum())
    (first, second), (in_first, in_second) = (w @ fillers.T).unbind(1), (v @ fillers.T).unbind(1)
    p = (in_first * second + in_second * first) / 4
    q = (first * second - fillers[0] @ fillers[1]) / 2
    by_first, by_second = in_second @ w + second @ v, in_first @ w + first @ v
    return MomentMatrix(observed, p, q, -torch.stack([by_first, by_second], dim=1) / 2, fillers.T, -p.sum())


def diagonal(observed: Observed, source: str, order: int, directions: Tensor) -> Tensor:
    """The moment of an order ≥ 1 with all indices filled by the same unit vector, for each of (B, k), (B,)."""
    along = observed.w @ directions.T  # (m, B)
    if source == "a":
        return observed.g @ polynomial(along, order) / len(along)
    return (observed.v @ directions.T * polynomial(along, order - 1)).mean(dim=0)


def without_mean(observed: Observed) -> Observed:
    """A cheap control variate in all dimensions: g without its constant and linear part, v without its mean; O(m·d)."""
    w, g, v = observed.w, observed.g, observed.v
    centred = g - g.mean()
    return replace(observed, g=centred - w @ (w.T @ centred) / len(w), v=v - v.mean(dim=0))


def without_lower_orders(observed: Observed, order: int) -> Observed:
    """The control variate in few dimensions: what a polynomial of w explains of lower Hermite orders, regressed out.

    For the moment of an order, g loses its orders below it, and v those below the one it is multiplied with.
    """
    features = polynomials(observed.w, order - 1)
    g = unexplained(observed.g[:, None], features[-1])[:, 0]
    of_v = features[: order - 1]  # none for the first order: v's mean is the moment itself
    return replace(observed, g=g, v=unexplained(observed.v, of_v[-1]) if of_v else observed.v)


def polynomials(w: Tensor, degree: int) -> list[Tensor]:
    """All monomials of w's columns up to the degrees 0, 1, …, degree, (m, features) each if FEATURES allows."""
    (units, size), found = w.shape, [torch.ones_like(w[:, :1])]
    for p in range(1, degree + 1):
        if math.comb(size + p, p) > FEATURES * units:
            found.append(found[-1])
            continue
        choices = torch.combinations(torch.arange(size, device=w.device), p, with_replacement=True)  # (features, p)
        found.append(torch.cat([found[-1], w[:, choices].prod(dim=2)], dim=1))
    return found


def unexplained(values: Tensor, features: Tensor) -> Tensor:
    """Values (m, n) minus their least-squares fit by features (m, f)."""
    basis: Tensor = torch.linalg.qr(features)[0]
    return values - basis @ (basis.T @ values)
