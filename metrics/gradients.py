"""How much of a training batch came back from a gradient: recovered samples are matched to the true ones first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from sweetspot.errors import UserError


@dataclass(frozen=True)
class BatchScore:
    """A recovered batch beside the true one.

    Args:
        order: which recovered sample goes with each true one (B,).
        sign: with which sign (B,).
        error: ‖x̂_i − x_i‖ / ‖x_i‖ of each (B,).
        rms: the root mean square of ‖x̂_i − x_i‖ over the batch, the papers' figure.
        labels: |ŷ_i − y_i| of each (B,).
    """

    order: Tensor
    sign: Tensor
    error: Tensor
    rms: float
    labels: Tensor


def batch_score(
    x: Tensor, y: Tensor, true_x: Tensor, true_y: Tensor, up_to_sign: bool = False, up_to_scale: bool = False
) -> BatchScore:
    """The score of samples (B, d) with labels (B,), matched so that the sum of squared distances is least.

    Args:
        x: recovered samples.
        y: recovered labels.
        true_x: the client's.
        true_y: the client's.
        up_to_sign: whether −x counts as x; only where the gradient cannot tell them apart.
        up_to_scale: whether t·x with t > 0 counts as x; likewise.

    Example:
        >>> true = torch.eye(2)
        >>> batch_score(true.flip(0), torch.tensor([-1.0, 1.0]), true, torch.tensor([1.0, -1.0])).error
        tensor([0., 0.])
    """
    if x.shape != true_x.shape or y.shape != true_y.shape:
        raise UserError(
            f"recovered {tuple(x.shape)} and {tuple(y.shape)} for {tuple(true_x.shape)} and {tuple(true_y.shape)}"
        )
    x, true_x = x.flatten(1).to(true_x), true_x.flatten(1)
    if up_to_scale:
        size = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-300)
        x, true_x = x / size, true_x / torch.linalg.vector_norm(true_x, dim=1, keepdim=True).clamp_min(1e-300)
    signs = torch.tensor([1.0, -1.0] if up_to_sign else [1.0]).to(x)
    distances = (true_x[:, None, None] - signs[:, None] * x[None, :, None]).square().sum(dim=3)  # (B, B, signs)
    smallest, which = distances.min(dim=2)
    order = torch.as_tensor(linear_sum_assignment(smallest.cpu().numpy())[1]).to(x.device)
    rows = torch.arange(len(x), device=x.device)
    apart = smallest[rows, order].sqrt()
    return BatchScore(
        order=order,
        sign=signs[which[rows, order]],
        error=apart / torch.linalg.vector_norm(true_x, dim=1).clamp_min(1e-300),
        rms=float(apart.square().mean().sqrt()),
        labels=(y[order].to(true_y) - true_y).abs(),
    )
