"""What is refused before an attack begins, and what an attack cannot do: one line each."""

from __future__ import annotations

import warnings

import torch

from sweetspot.attacks.gradients.federated import Gradient, Weights
from sweetspot.attacks.gradients.subspace import Span
from sweetspot.errors import UserError


def check_gradient(gradient: Gradient, weights: Weights) -> None:
    """Refuse a gradient that cannot be one of these weights."""
    if weights.w.ndim != 2 or weights.a.shape != weights.w.shape[:1]:
        raise UserError(
            f"the weights must be w (m, d) and a (m,); got {tuple(weights.w.shape)} and {tuple(weights.a.shape)}"
        )
    if gradient.w.shape != weights.w.shape or gradient.a.shape != weights.a.shape:
        raise UserError(
            f"the gradient's shapes {tuple(gradient.a.shape)} and {tuple(gradient.w.shape)} are not the weights', "
            f"{tuple(weights.a.shape)} and {tuple(weights.w.shape)}"
        )
    for name, part in (("∂L/∂a", gradient.a), ("∂L/∂W", gradient.w), ("a", weights.a), ("W", weights.w)):
        if not torch.isfinite(part).all():
            raise UserError(f"{name} holds NaN or infinity")
    if (weights.a == 0).any():
        raise UserError("an entry of the last layer's weights a is 0: that hidden unit's gradient says nothing")
    if not gradient.w.any():
        raise UserError("the gradient is 0: every residue is, there is nothing to recover")


def smallest_width(batch: int) -> int:
    """The width from which every batch was recovered; measured without noise, for batches of 2 to 16."""
    return 8 * batch


def check_batch(batch: int, weights: Weights) -> None:
    """Refuse a batch that no gradient of this network determines, and warn of one that it hardly does."""
    width, dim = weights.w.shape
    if batch < 1:
        raise UserError(f"the batch must hold at least one sample; got {batch}")
    if batch > dim:
        raise UserError(f"a batch of {batch} is larger than the dimension {dim}: the samples cannot be independent")
    if width <= batch:
        raise UserError(f"a width of {width} cannot determine {batch} samples: it must be larger than the batch")
    if width < smallest_width(batch):
        warnings.warn(
            f"a width of {width} is small for {batch} samples: recovery needs about {smallest_width(batch)}",
            stacklevel=3,
        )


def check_span(span: Span, batch: int) -> None:
    """Refuse a gradient whose rows span fewer, or exactly more, directions than the batch has samples."""
    looked_at = len(span.strengths)
    if span.rank < batch:
        raise UserError(
            f"the gradient's rows span {span.rank} dimensions, not {batch}: the samples are linearly dependent, "
            "a residue is 0, or the batch is smaller"
        )
    if batch < span.rank < looked_at:
        raise UserError(f"the gradient's rows span {span.rank} dimensions: it is of {span.rank} samples, not {batch}")
