"""Joint diagonalisation by a congruence: matrices M_l ≈ U·diag(λ_l)·Uᵀ with one U that need not be orthogonal.

The scheme is Kuleshov et al.'s (2015): random projections of a tensor, a joint diagonaliser, the same once more with
the components that were found as the projections, then alternating least squares. The diagonaliser is our own: a
Newton-like iteration that solves, to first order, for all pairs of components at once (the idea of UWEDGE), started
from the generalised eigenvectors of two random mixtures.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sweetspot.attacks.gradients.least_squares import linear_least_squares
from sweetspot.attacks.gradients.subspace import block

PROJECTIONS = 100  # L
STARTS = 3
STEPS = 100
CONVERGED = 1e-9  # of a step; what is left over is noise


def components(project: Callable[[Tensor], Tensor], size: int, order: int, seed: int = 0) -> Tensor:
    """The unit components (size, B = size), as rows, of a symmetric tensor that is only seen through projections.

    Args:
        project: from fillers (L, order − 2, size) to the L matrices T(I, I, fillers…), (L, size, size).
        size: B.
        order: the tensor's.
        seed: draws the projections and the starts.
    """
    like = torch.zeros((), dtype=torch.float64)
    fillers = unit(block(PROJECTIONS * (order - 2), size, like, seed)).view(PROJECTIONS, order - 2, size)
    matrices = project(fillers)
    found = alternating(matrices, diagonaliser(matrices, seed))
    dual = unit(torch.linalg.pinv(found).T)  # dual_i·u_k = 0 for k ≠ i: a projection that sees one component only
    both = torch.cat([found, dual])
    plugged = project(both[:, None].expand(-1, order - 2, -1))
    return alternating(torch.cat([plugged, matrices]), found)


def unit(rows: Tensor) -> Tensor:
    """Rows of norm 1."""
    size: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / size.clamp_min(1e-300)


def diagonaliser(matrices: Tensor, seed: int = 0) -> Tensor:
    """The unit rows u_i (B, B) for which all matrices (L, B, B) are nearest to Σ_i λ_li·u_i·u_iᵀ, of several starts."""
    tries = [refined(matrices, start) for start in starts(matrices, seed)]
    return min(tries, key=lambda rows: missed(matrices, rows))


def starts(matrices: Tensor, seed: int) -> list[Tensor]:
    """First guesses: the generalised eigenvectors of two random mixtures of the matrices; and the identity."""
    size = matrices.shape[1]
    mixtures = torch.einsum("sl,lab->sab", block(2 * STARTS, len(matrices), matrices, seed + 1), matrices)
    found = [torch.eye(size).to(matrices)]
    for first, second in mixtures.view(STARTS, 2, size, size):
        vectors = torch.linalg.eig(first @ torch.linalg.pinv(second)).eigenvectors
        rows = unit((vectors.real + vectors.imag).T)  # a complex pair gives two real vectors of its plane
        if torch.linalg.cond(rows) < 1e8:
            found.append(rows)
    return found


def refined(matrices: Tensor, rows: Tensor) -> Tensor:
    """Components after a Newton-like iteration on the off-diagonal entries, (B, B) → (B, B).

    With M_l ≈ (I + E)·Λ_l·(I + E)ᵀ the entry (k, j) is E_kj·λ_lj + E_jk·λ_lk: two unknowns, least squares over l.
    """
    best, best_missed = rows, missed(matrices, rows)
    identity = torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    for _ in range(STEPS):
        unmix = torch.linalg.pinv(rows.T)
        seen = unmix @ matrices @ unmix.T  # (L, B, B), diagonal when done
        weights = seen.diagonal(dim1=1, dim2=2)  # (L, B)
        gram = weights.T @ weights
        crossed = torch.einsum("lkj,lj->kj", seen, weights)  # Σ_l M_l[k, j]·λ_lj
        own = gram.diagonal()
        determinant = torch.outer(own, own) - gram.square()
        step = (own[:, None] * crossed - gram * crossed.T) / determinant.clamp_min(1e-12 * torch.outer(own, own))
        step = step.fill_diagonal_(0.0)
        step = step / (step.abs().max() / 0.5).clamp_min(1.0)  # first order holds for small steps only
        rows = unit((rows.T @ (identity + step)).T)
        now = missed(matrices, rows)
        if now < best_missed:
            best, best_missed = rows, now
        if step.abs().max() < CONVERGED or not rows.isfinite().all():
            break
    return best


def fitted(matrices: Tensor, rows: Tensor) -> Tensor:
    """The weights λ (L, B) with which Σ_i λ_li·u_i·u_iᵀ is nearest to each matrix."""
    gram = (rows @ rows.T).square()
    return linear_least_squares(gram, torch.einsum("lab,ia,ib->il", matrices, rows, rows)).T


def missed(matrices: Tensor, rows: Tensor) -> float:
    """How far the matrices are from their nearest combinations of u_i·u_iᵀ, as a fraction of their norm."""
    if not rows.isfinite().all():
        return float("inf")
    near = torch.einsum("li,ia,ib->lab", fitted(matrices, rows), rows, rows)
    return float(torch.linalg.vector_norm(matrices - near) / torch.linalg.vector_norm(matrices).clamp_min(1e-300))


def alternating(matrices: Tensor, rows: Tensor, sweeps: int = 50) -> Tensor:
    """Components after alternating least squares on the weights, the left and the right factor; never a worse fit."""
    best, best_missed = rows, missed(matrices, rows)
    for _ in range(sweeps):
        weights = fitted(matrices, best)  # (L, B)
        other = torch.einsum("li,ib->lbi", weights, best).flatten(0, 1)  # (L·B, B)
        left = linear_least_squares(other, matrices.transpose(1, 2).flatten(0, 1))  # (B, B)
        now = unit(left)
        reached = missed(matrices, now)
        if not reached < best_missed * (1 - 1e-6):
            break
        best, best_missed = now, reached
    return best
