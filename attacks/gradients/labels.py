"""Labels from samples and residues: y_i = f(x_i) − r_i."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.federated import Weights, output

SAME = 1e-6  # labels this much nearer to a known set are no nearer


def labelled(x: Tensor, r: Tensor, weights: Weights, activation: Activation) -> tuple[Tensor, Tensor, Tensor]:
    """Samples (B, d), residues (B,) and labels (B,).

    Where σ is odd, (x, r) and (−x, −r) give the same gradient: of the two, the one with the smaller label is taken.
    With a bias as large as Remark 1 asks for, that is the true one whenever |y| is below the bias.
    """
    outputs = output(x, weights, activation)
    if activation.is_odd:
        other = output(-x, weights, activation) + r
        sign = torch.where((outputs - r).abs() <= other.abs(), 1.0, -1.0).to(x)
        x, r = sign[:, None] * x, sign * r
        outputs = output(x, weights, activation)
    return x, r, outputs - r


def labelled_among(
    x: Tensor, r: Tensor, weights: Weights, activation: Activation, among: Sequence[float]
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Samples (B, d), residues (B,), labels (B,), and how far the worst label is from a known set.

    Where σ is odd, of (x, r) and (−x, −r) the one whose label is nearer to the set is taken.
    """
    y = output(x, weights, activation) - r
    if activation.is_odd:
        other = output(-x, weights, activation) + r
        sign = torch.where(distance(other, among) < distance(y, among) - SAME, -1.0, 1.0).to(x)
        x, r, y = sign[:, None] * x, sign * r, torch.where(sign < 0, other, y)
    return x, r, y, float(distance(y, among).max())


def distance(y: Tensor, among: Sequence[float]) -> Tensor:
    """How far each label (B,) is from the nearest one of a known set.

    Example:
        >>> distance(torch.tensor([0.9, -3.0]), [-1, 1])
        tensor([0.1000, 2.0000])
    """
    return (y[:, None] - torch.tensor(among).to(y)).abs().amin(dim=1)


def unclipped(x: Tensor, r: Tensor, weights: Weights, activation: Activation, among: Sequence[float]) -> Tensor:
    """Residues (B,) as they were before the client scaled its gradient, found by asking for labels of a known set.

    Clipping multiplies every residue by one unknown factor and leaves the samples as they are. Every sample and every
    label of the set propose a factor; the one that brings all labels nearest to the set is taken, 1 if it does as well.

    Args:
        x: the samples (B, d).
        r: the residues as the gradient has them (B,).
        weights: what the server sent.
        activation: σ.
        among: the labels that occur.
    """
    outputs, known = output(x, weights, activation), torch.tensor(among).to(x)
    factors = (r[:, None] / (outputs[:, None] - known)).flatten()
    factors = torch.cat([torch.ones(1).to(x), factors[factors.isfinite() & (factors > 0) & (factors < 1)]])
    proposed = outputs - r / factors[:, None]  # (F, B)
    missed = (proposed[:, :, None] - known).abs().amin(dim=2).amax(dim=1)  # (F,)
    missed[0] -= 1e-9  # prefer no clipping
    return r / factors[missed.argmin()]
