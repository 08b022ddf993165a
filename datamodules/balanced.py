"""Class-balanced batches: what MixCon's pairing needs, on one device or on many."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def balanced_order(y: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """`length` indices into y in rounds, each holding one example of every class, (length,).

    The classes come in one random order, the same in all rounds, so that any B indices in a row hold each class
    ⌊B/|C|⌋ or ⌈B/|C|⌉ times. A class is gone through completely before one of its examples comes again: with equal
    classes and `length = len(y)` every example comes exactly once, and a smaller class starts over.

    Example:
        >>> order = balanced_order(torch.tensor([0, 0, 1, 1]), 4, torch.Generator().manual_seed(0))
        >>> sorted(order.tolist())
        [0, 1, 2, 3]
    """
    classes = torch.unique(y)
    classes = classes[torch.randperm(len(classes), generator=generator)]
    rounds = -(-length // len(classes))
    columns = []
    for c in classes:
        members = (y == c).nonzero().squeeze(1)
        passes = -(-rounds // len(members))
        shuffled = [members[torch.randperm(len(members), generator=generator)] for _ in range(passes)]
        columns.append(torch.cat(shuffled)[:rounds])
    return torch.stack(columns, dim=1).flatten()[:length]  # (rounds, |C|), row by row


class BalancedBatches:
    """The batches of indices of one epoch, a pure function of (seed, epoch), so that a resumed run sees the same ones.

    Args:
        y: the classes of the training examples (N,).
        batch_size: examples in one optimiser step, over all devices together.
        seed: the run's seed.
        rank: which device this is.
        world_size: how many devices there are; each gets its own class-balanced part of every batch.
    """

    def __init__(self, y: Tensor, batch_size: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        self.y, self.batch_size, self.seed, self.rank, self.world_size = y, batch_size, seed, rank, world_size
        self.epoch = 0
        # A last batch that could not hold every class twice joins the one before it: no pair, across classes or within
        # one, is missing there that an ordinary batch would have.
        left = len(y) % batch_size
        too_small = 0 < left < min(2 * int(y.unique().numel()), batch_size)
        self.batches = max(1, len(y) // batch_size + (1 if left and not too_small else 0))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next (Lightning calls this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = balanced_order(self.y, len(self.y), generator)
        for number in range(self.batches):
            start = number * self.batch_size
            stop = len(order) if number == self.batches - 1 else start + self.batch_size
            yield self.share(order[start:stop])

    def share(self, batch: Tensor) -> Tensor:
        """This rank's part of a batch: neighbouring rounds, of equal size on all ranks (a short batch starts over)."""
        if self.world_size == 1:
            return batch
        size = -(-len(batch) // self.world_size)
        places = torch.arange(self.rank * size, (self.rank + 1) * size) % len(batch)
        return batch[places]
