"""Class-balanced batches: every class in every batch, every example in its turn, the same on resume, on all ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sweetspot.datamodules.balanced import BalancedBatches, balanced_order

EQUAL = torch.arange(60) % 5
SKEWED = torch.cat([torch.zeros(50), torch.ones(7), torch.full((3,), 2)]).long()


def counts(y: Tensor, batch: Tensor, classes: int) -> Tensor:
    return torch.bincount(y[batch], minlength=classes)


@pytest.mark.parametrize("batch_size", [5, 7, 12, 20, 60, 100])
@pytest.mark.parametrize(("y", "classes"), [(EQUAL, 5), (SKEWED, 3)], ids=["equal", "skewed"])
def test_classes_differ_by_at_most_one_in_any_batch(y: Tensor, classes: int, batch_size: int) -> None:
    for batch in BalancedBatches(y, batch_size, seed=0):
        c = counts(y, batch, classes)
        assert c.min() >= 1
        assert c.max() - c.min() <= 1


def test_equal_classes_see_every_example_exactly_once_an_epoch() -> None:
    seen = torch.cat(list(BalancedBatches(EQUAL, 12, seed=3)))
    assert sorted(seen.tolist()) == list(range(60))


def test_a_small_class_is_gone_through_before_it_repeats() -> None:
    order = balanced_order(SKEWED, 60, torch.Generator().manual_seed(0))
    rare = [index for index in order.tolist() if SKEWED[index] == 2]
    for start in range(0, len(rare) - 2, 3):
        assert len(set(rare[start : start + 3])) == 3


def test_epochs_differ_and_are_a_function_of_seed_and_epoch() -> None:
    def epoch(seed: int, number: int) -> list[int]:
        batches = BalancedBatches(EQUAL, 12, seed=seed)
        batches.set_epoch(number)
        return torch.cat(list(batches)).tolist()

    assert epoch(0, 1) == epoch(0, 1)
    assert epoch(0, 1) != epoch(0, 2)
    assert epoch(0, 1) != epoch(1, 1)


@pytest.mark.parametrize(
    ("batch_size", "expected"), [(12, 5), (13, 4), (19, 3), (25, 3), (26, 2), (60, 1), (61, 1), (59, 1)]
)
def test_a_last_batch_too_small_for_two_of_every_class_joins_the_one_before(batch_size: int, expected: int) -> None:
    batches = BalancedBatches(EQUAL, batch_size, seed=0)
    assert len(batches) == expected == len(list(batches))
    assert sum(map(len, batches)) == 60


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_share_every_batch_evenly_and_stay_balanced(world_size: int) -> None:
    whole = list(BalancedBatches(EQUAL, 20, seed=0))
    shares = [list(BalancedBatches(EQUAL, 20, seed=0, rank=rank, world_size=world_size)) for rank in range(world_size)]
    for number, batch in enumerate(whole):
        parts = [share[number] for share in shares]
        assert {len(part) for part in parts} == {-(-len(batch) // world_size)}
        assert set(torch.cat(parts).tolist()) == set(batch.tolist())
        for part in parts:
            c = counts(EQUAL, part, 5)
            assert c.max() - c.min() <= 1
            assert c.min() >= 1
