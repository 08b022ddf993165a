"""Leak beyond the label: 0 where only the label is known, 1 where everything is, and no leak by taking the best."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sweetspot.metrics.leak import LEAKING, floor_of, leak_record, leaks
from sweetspot.metrics.similarity import mcs, mse
from sweetspot.runs.record import HIGHER_IS_WORSE

INPUTS, ATTACKERS = 1000, 5


def worst_case(attackers: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The best score of any attacker on each input."""
    return floor_of(attackers, len(attackers))


def knowing_the_label(x: Tensor, y: Tensor, own_x: Tensor, own_y: Tensor, seed: int) -> dict[str, Tensor]:
    """The scores of an attacker who learned from a few of its own inputs of the class, others for each answer."""
    generator = torch.Generator().manual_seed(seed)
    of_class = (own_y == y[:, None]).double()
    few = torch.multinomial(of_class, 8, generator=generator)  # (B, 8)
    guess = own_x[few].mean(dim=1)
    return {"mcs": mcs(guess, x), "mse": mse(guess, x)}


@pytest.fixture
def label_attackers() -> list[dict[str, Tensor]]:
    """Twice as many attackers as an evaluation has, none of whom knows more than the label."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(10, 1, 12, 12, generator=generator)
    y, own_y = torch.arange(INPUTS) % 10, torch.arange(3000) % 10
    x, own_x = (centres[each] + 0.3 * torch.randn(len(each), 1, 12, 12, generator=generator) for each in (y, own_y))
    return [knowing_the_label(x, y, own_x, own_y, seed) for seed in range(2 * ATTACKERS)]


def test_a_release_of_the_label_alone_leaks_nothing_over_a_floor_of_as_many(
    label_attackers: list[dict[str, Tensor]],
) -> None:
    attacks, others = label_attackers[:ATTACKERS], label_attackers[ATTACKERS:]
    for name in ("mcs", "mse"):
        record = leak_record(worst_case(attacks), floor_of(others, ATTACKERS))["leak"][name]
        assert abs(record["mean"]) <= 3 * record["std"] / math.sqrt(INPUTS)
        against_one = leak_record(worst_case(attacks), floor_of(others, 1))["leak"][name]
        assert against_one["mean"] > 10 * against_one["std"] / math.sqrt(INPUTS)


@pytest.mark.parametrize("name", LEAKING)
def test_the_ends_of_the_scale(name: str) -> None:
    floor = torch.tensor([0.2, 0.4, 0.6])
    everything = torch.full((3,), 0.0 if name == "mse" else 1.0)
    assert leaks(name, floor, floor).tolist() == [0, 0, 0]
    assert leaks(name, everything, floor).mean() == pytest.approx(1)
    worse = floor + 0.1 if name == "mse" else floor - 0.1
    assert (leaks(name, worse, floor) < 0).all()  # kept as it is, or the mean of nothing would be a leak


def test_the_mean_leak_is_the_leak_of_the_mean() -> None:
    scores, floor = torch.tensor([0.9, 0.3, 0.6]), torch.tensor([0.99, 0.1, 0.2])
    expected = (scores.mean() - floor.mean()) / (1 - floor.mean())
    assert leaks("ssim", scores, floor).mean() == pytest.approx(float(expected))
    expected = 1 - scores.mean() / floor.mean()
    assert leaks("mse", scores, floor).mean() == pytest.approx(float(expected))


def test_where_the_label_says_everything_nothing_is_left_to_leak() -> None:
    assert leaks("em", torch.ones(4), torch.ones(4)).tolist() == [0] * 4
    assert leaks("ssim", torch.ones(2), torch.tensor([1 - 1e-9, 1.0])).tolist() == [0, 0]
    assert leaks("mse", torch.tensor([0.0, 0.1]), torch.zeros(2)).tolist() == [0, 0]
    small = torch.full((2,), 1e-7)  # a small error is none
    assert leaks("mse", small / 2, small).tolist() == pytest.approx([0.5, 0.5])


def test_metrics_without_a_floor_have_no_leak() -> None:
    for name in HIGHER_IS_WORSE.keys() - set(LEAKING):
        with pytest.raises(ValueError, match=f"no leak by {name}"):
            leaks(name, torch.ones(2), torch.ones(2))
    assert leak_record({"psnr": [1.0], "rank": [0.0], "recognised": [1.0]}, {"psnr": [1.0]}) == {
        "leak": {},
        "leaks": {},
    }


def test_scores_of_other_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="same inputs"):
        leaks("ssim", torch.ones(3), torch.zeros(1))


@pytest.mark.parametrize("count", [0, 3])
def test_a_floor_is_never_of_fewer_attackers_than_it_says(count: int) -> None:
    with pytest.raises(ValueError, match="as many label-only attackers"):
        floor_of([{"ssim": [0.5]}, {"ssim": [0.6]}], count)


def test_the_floor_of_errors_is_the_smallest_and_only_shared_metrics_have_one() -> None:
    found = floor_of([{"mse": [0.1, 0.4], "ssim": [0.1, 0.4]}, {"mse": [0.2, 0.3]}], 2)
    assert {name: each.tolist() for name, each in found.items()} == {"mse": [0.1, 0.3]}


def test_worst_is_the_input_of_which_most_came_back() -> None:
    record = leak_record({"mse": [0.0, 0.1, 0.2]}, {"mse": [0.1, 0.1, 0.1]})
    assert record["leak"]["mse"]["worst"] == 1
    assert record["leaks"]["mse"] == [1.0, 0.0, -1.0]
