"""MixCon (Eq. 1): pull representations of *different* classes together, and let β keep them from becoming one point."""

from collections.abc import Callable

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.penalties.base import PENALTIES
from sweetspot.lightning_modules.defences.penalties.pairs import (
    Pairwise,
    across_classes,
    mean_over_listed_pairs,
    same_class,
    sum_over_pairs,
)
from sweetspot.options import option

# Convex functions of the squared distance d on (0, ∞) that go to infinity at both ends, as the paper asks of the
# family, each with its derivative.
PENALTY_FAMILY: dict[str, Callable[[Tensor, float], tuple[Tensor, Tensor]]] = {
    "inverse": lambda d, beta: (d + beta / d, 1 - beta / d.square()),  # Eq. 1; least at √β
    "log": lambda d, beta: (d - beta * d.log(), 1 - beta / d),  # least at β
    "inverse-square": lambda d, beta: (d + beta / d.square(), 1 - 2 * beta / d.pow(3)),  # least at (2β)^⅓
}


def mixcon_pairs(y: Tensor) -> Tensor:
    """Which pairs Eq. 1 sums over, (B,) → (B, B): the i-th example of a class with the i-th of every other, i ≤ p.

    p is the size of the smallest class that is present, so ragged classes lose their surplus, as in the paper.
    """
    same = same_class(y)
    rank = same.tril(-1).sum(dim=1)  # (B,) how many of its class stand before it: i − 1
    p = same.sum(dim=1).min()
    rank = rank.where(rank < p, -1 - torch.arange(len(y), device=y.device))  # the surplus shares its rank with nobody
    return (rank[:, None] == rank) & ~same


def mixcon_loss(
    z: Tensor, y: Tensor, beta: float, epsilon: float = 1e-6, family: str = "inverse", normalise: bool = True
) -> Tensor:
    """The mean of `dist + β/dist` over all pairs of Eq. 1, a scalar.

    A batch with a single class has no pairs: the result is NaN, never a silent zero.

    Args:
        z: cut-layer representations (B, …).
        y: classes (B,).
        beta: β ≥ 0, what keeps the classes apart.
        epsilon: squared distances are clamped to [ε, 1/ε].
        family: the function of the distance, a key of `PENALTY_FAMILY`.
        normalise: whether representations are scaled to unit ℓ2 norm first, as the paper does in practice.

    Example:
        >>> z, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> mixcon_loss(z, y, beta=1.0)  # dist = 2, so 2 + 1/2
        tensor(2.5000)
    """
    pairs = mixcon_pairs(y)
    return sum_over_pairs(z, pairs / pairs.sum(), lambda d: PENALTY_FAMILY[family](d, beta), epsilon, normalise)


@PENALTIES("mixcon")
class MixCon(Pairwise):
    """MixCon as a penalty on the cut layer. See `mixcon_loss`."""

    if_it_never_moved = "representations may be dead or clamped (try another --lr, --epsilon or --cut)"
    beta: float = option(
        1e-4, "β, what keeps representations of different classes apart; 0 lets them collapse", least=0
    )
    family: str = option(
        "inverse",
        "the function of the squared distance d: inverse (the paper's d + β/d), log (d − β·log d) or inverse-square "
        "(d + β/d²)",
        choices=PENALTY_FAMILY,
    )
    epsilon: float = option(1e-6, "squared distances are clamped to [ε, 1/ε]", above=0, below=1)

    def least_batch(self, classes: int) -> int:
        return 2  # of two classes

    def left_out(self, classes: int, batch: int) -> int:
        return 0 if self.partners or batch < classes else batch % classes  # the surplus over p of every class

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        if not self.partners:
            return mixcon_loss(z, y, self.beta, self.epsilon, self.family, self.normalise)
        pairs = across_classes(y, self.partners)
        curve = PENALTY_FAMILY[self.family]
        return mean_over_listed_pairs(z, pairs, lambda d: curve(d, self.beta), self.epsilon, self.normalise)
