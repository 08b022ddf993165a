"""What a client may do to its gradient before it leaves: noise, clipping, pruning."""

from __future__ import annotations

import torch
from torch import Tensor

from sweetspot.attacks.gradients.federated import Gradient
from sweetspot.errors import UserError


def noisy(gradient: Gradient, level: float, seed: int = 0) -> Gradient:
    """The gradient with Gaussian noise.

    Args:
        gradient: what the client computed.
        level: the noise's standard deviation, as a fraction of the root mean square of ∂L/∂a and of ∂L/∂W, each its
            own: ∂L/∂W is smaller by the factor a_j, and one level for both would leave one of them untouched.
        seed: draws the noise.
    """
    if not 0 <= level < float("inf"):
        raise UserError(f"the noise must be a number of at least 0; got {level:g}")
    generator = torch.Generator().manual_seed(seed)

    def shaken(part: Tensor) -> Tensor:
        drawn = torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part)
        return part + level * part.square().mean().sqrt() * drawn

    return Gradient(shaken(gradient.a), shaken(gradient.w))


def clipped(gradient: Gradient, norm: float) -> Gradient:
    """The gradient scaled down to at most this norm, as in DP-SGD; nobody is told by how much.

    Example:
        >>> clipped(Gradient(torch.tensor([3.0]), torch.tensor([[4.0]])), norm=1.0).a
        tensor([0.6000])
    """
    if not norm > 0:
        raise UserError(f"the clipping norm must be positive; got {norm:g}")
    size = torch.hypot(torch.linalg.vector_norm(gradient.a), torch.linalg.vector_norm(gradient.w))
    scale = (norm / size).clamp_max(1.0)
    return Gradient(gradient.a * scale, gradient.w * scale)


def pruned(gradient: Gradient, fraction: float) -> Gradient:
    """The gradient with this fraction of ∂L/∂a and of ∂L/∂W set to 0, the entries of smallest magnitude.

    Example:
        >>> pruned(Gradient(torch.tensor([3.0, -1.0]), torch.tensor([[4.0], [5.0]])), 0.5).a
        tensor([3., 0.])
    """
    if not 0 <= fraction < 1:
        raise UserError(f"the pruned fraction must be at least 0 and below 1; got {fraction:g}")

    def thinned(part: Tensor) -> Tensor:
        count = int(fraction * part.numel())
        smallest = part.abs().flatten().argsort(stable=True)[:count]
        return part.flatten().index_fill(0, smallest, 0.0).view_as(part)

    return Gradient(thinned(gradient.a), thinned(gradient.w))
