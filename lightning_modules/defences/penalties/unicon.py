"""UniCon, the strawman of MixCon's appendix D.1: pull representations *within* a class together."""

import torch
from torch import Tensor

from sweetspot.lightning_modules.defences.penalties.base import PENALTIES
from sweetspot.lightning_modules.defences.penalties.pairs import (
    Pairwise,
    mean_over_listed_pairs,
    same_class,
    sum_over_pairs,
    within_classes,
)


def unicon_loss(z: Tensor, y: Tensor, normalise: bool = True) -> Tensor:
    """The mean squared distance within a class, averaged over the classes that have a pair, a scalar.

    A batch in which no class has two examples has no pairs: the result is NaN, never a silent zero.

    Args:
        z: cut-layer representations (B, …).
        y: classes (B,).
        normalise: whether representations are scaled to unit ℓ2 norm first, as for MixCon.

    Example:
        >>> unicon_loss(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([3, 3]))
        tensor(2.)
    """
    same = same_class(y)
    size = same.sum(dim=1)  # (B,) examples in the class of each example
    pairs = size * (size - 1)
    classes = (1 / size).where(size > 1, 0.0).sum()  # each class of n examples counts n · 1/n
    weight = same * (1 / pairs).where(size > 1, 0.0) / classes  # (B, B)
    return sum_over_pairs(z, weight, lambda d: (d, torch.ones_like(d)), normalise=normalise)


@PENALTIES("unicon")
class UniCon(Pairwise):
    """UniCon as a penalty on the cut layer. See `unicon_loss`."""

    def least_batch(self, classes: int) -> int:
        return 2 if self.partners else classes + 1  # of one class twice

    def penalty(self, z: Tensor, y: Tensor, x: Tensor) -> Tensor:
        if not self.partners:
            return unicon_loss(z, y, self.normalise)
        pairs = within_classes(y, self.partners)
        return mean_over_listed_pairs(z, pairs, lambda d: (d, torch.ones_like(d)), normalise=self.normalise)
