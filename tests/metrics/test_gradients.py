"""Scores of a recovered batch: what is matched with what, and what counts as the same."""

from __future__ import annotations

import itertools

import pytest
import torch

from sweetspot.errors import UserError
from sweetspot.metrics.gradients import batch_score


def test_the_matching_is_the_best_of_all_permutations() -> None:
    torch.manual_seed(0)
    true, found, nothing = torch.randn(4, 3).double(), torch.randn(4, 3).double(), torch.zeros(4)
    score = batch_score(found, nothing, true, nothing)
    orders = itertools.permutations(range(4))
    expected = min(float((found[list(order)] - true).square().sum() / 4) ** 0.5 for order in orders)
    assert score.rms == pytest.approx(expected)


def test_labels_go_with_their_samples() -> None:
    true, y = torch.eye(3).double(), torch.tensor([1.0, 2.0, 3.0])
    score = batch_score(true[[2, 0, 1]] + 0.01, torch.tensor([3.0, 1.5, 2.0]), true, y)
    assert score.order.tolist() == [1, 2, 0]
    assert score.labels.tolist() == [0.5, 0.0, 0.0]


def test_sign_and_scale_count_unless_they_are_forgiven() -> None:
    true, nothing = torch.eye(2).double(), torch.zeros(2)
    assert batch_score(-true, nothing, true, nothing).error.min() > 1
    forgiven = batch_score(-true, nothing, true, nothing, up_to_sign=True)
    assert forgiven.error.max() == 0
    assert forgiven.sign.tolist() == [-1.0, -1.0]
    assert batch_score(3 * true, nothing, true, nothing).error.tolist() == [2.0, 2.0]
    assert batch_score(3 * true, nothing, true, nothing, up_to_scale=True).error.max() == 0
    assert batch_score(-3 * true, nothing, true, nothing, up_to_scale=True).error.min() > 1


def test_batches_of_different_shapes_are_refused() -> None:
    with pytest.raises(UserError, match=r"recovered \(1, 2\)"):
        batch_score(torch.ones(1, 2), torch.ones(1), torch.ones(2, 2), torch.ones(2))
