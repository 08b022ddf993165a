"""The subspace that the samples span: exactly, from the rows of ∂L/∂W, or as the papers do it, from a moment."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sweetspot.attacks.gradients.hermite import Plan
from sweetspot.attacks.gradients.moments import Observed, moment, without_mean

SPARE = 8  # columns beyond B in a block: they make the power method converge faster, and show what B leaves over
POWERS = 2  # a matrix of rank B needs none; noise does
SWEEPS = 8  # of the power method on a moment, whose spectrum decays slowly
GAP = 1.25  # between the weakest sample and the strongest noise: their singular values' ratio
SINGLE = 1e-5  # singular values below are the rounding of single precision, relative to the largest,
WIDE = 100.0  # if those above are so many times larger
FILLERS = 4  # random vectors in the third index, where the second moment vanishes


@dataclass(frozen=True)
class Span:
    """Where the samples are.

    Args:
        basis: orthonormal columns (d, B).
        strengths: the leading singular values, more of them than B where there are more.
        energy: the root of the sum of all squared singular values.
    """

    basis: Tensor
    strengths: Tensor
    energy: Tensor

    @property
    def left_over(self) -> float:
        """The fraction of ∂L/∂W outside the basis, as a norm: 0 up to rounding without noise."""
        inside = self.strengths[: self.basis.shape[1]].square().sum()
        return float((1 - inside / self.energy.square()).clamp_min(0.0).sqrt())

    @property
    def stands_out(self) -> bool:
        """Whether the B-th direction is stronger than the next, which is noise; if not, the basis is noise too."""
        batch = self.basis.shape[1]
        return len(self.strengths) <= batch or bool(self.strengths[batch - 1] > GAP * self.strengths[batch])

    @property
    def rank(self) -> int:
        """How many directions stand out of the rounding; with noise, all that were looked at."""
        return int((self.strengths > 1e-10 * self.strengths[0]).sum())

    @property
    def rank_in_single(self) -> int | None:
        """The same of a gradient that was sent in single precision, whose rounding is noise; None under other noise."""
        above = int((self.strengths > SINGLE * self.strengths[0]).sum())
        is_gap = above < len(self.strengths) and self.strengths[above - 1] > WIDE * self.strengths[above]
        return above if is_gap else None


def block(rows: int, columns: int, like: Tensor, seed: int) -> Tensor:
    """A Gaussian block (rows, columns)."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(like)


def row_span(v: Tensor, batch: int, seed: int = 0) -> Span:
    """The leading right singular vectors of ∂L/∂W (m, d): every row is a combination of the samples.

    Randomised, in O(m·d·B); exact where the rank is at most B + SPARE.
    """
    columns = min(batch + SPARE, *v.shape)
    left = block(len(v), columns, v, seed)
    basis, _ = torch.linalg.qr((left.T @ v).T)  # not v.T @ left: where left comes from qr, that is 20 times slower
    for _ in range(POWERS):
        left, _ = torch.linalg.qr(v @ basis)
        basis, _ = torch.linalg.qr((left.T @ v).T)
    _, strengths, turned = torch.linalg.svd(v @ basis, full_matrices=False)
    return Span(basis @ turned[:batch].T, strengths, torch.linalg.vector_norm(v))


def moment_subspace(observed: Observed, plan: Plan, source: str, batch: int, seed: int = 0) -> Tensor:
    """The leading B eigenvectors, by magnitude, of the moment of order `plan.subspace`, (d, B), in O(m·d·B).

    Where that order is 3 or 4, the other indices are filled with several random unit vectors, and the squares of the
    matrices are averaged: their signs differ from vector to vector, their eigenvectors do not.
    """
    clean, dim = without_mean(observed), observed.w.shape[1]
    draws = 1 if plan.subspace == 2 else FILLERS
    fillers = block(draws * (plan.subspace - 2), dim, observed.w, seed).view(draws, plan.subspace - 2, dim)
    fillers = fillers / torch.linalg.vector_norm(fillers, dim=2, keepdim=True).clamp_min(1e-300)
    matrices = [moment(clean, source, plan.subspace, each) for each in fillers]
    basis, _ = torch.linalg.qr(block(dim, min(batch + SPARE, dim), observed.w, seed + 1))
    for _ in range(SWEEPS):
        images = [each.product(basis) for each in matrices]
        squared = torch.stack([each.product(image) for each, image in zip(matrices, images, strict=True)]).sum(dim=0)
        basis, _ = torch.linalg.qr(squared)
    images = [each.product(basis) for each in matrices]
    gram: Tensor = torch.stack([image.T @ image for image in images]).sum(dim=0)
    leading: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -batch:].flip(1)
    found: Tensor = basis @ leading
    return found
