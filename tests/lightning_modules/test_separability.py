"""Pairwise distances against SciPy's."""

import pytest
import torch
from scipy.spatial.distance import pdist

from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.tensors import Arrays
from sweetspot.errors import UserError
from sweetspot.lightning_modules.separability import SAMPLES, pairwise_distances, separability
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.utility import measure_utility


def test_distances_equal_scipys() -> None:
    z = torch.randn(50, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    expected = pdist(z.flatten(1).numpy().astype("float64"))
    result = separability(z)
    assert result["raw"] == pytest.approx(
        {"min": expected.min(), "mean": expected.mean(), "max": expected.max()}, rel=1e-9
    )
    unit = pdist(torch.nn.functional.normalize(z.flatten(1).double()).numpy())
    assert {k: result[k] for k in ("min", "mean", "max")} == pytest.approx(
        {"min": unit.min(), "mean": unit.mean(), "max": unit.max()}, rel=1e-5
    )


def test_a_close_pair_is_seen_among_far_ones() -> None:
    z = torch.randn(100, 50) * 100
    z[1] = z[0] + 1e-3 / 50**0.5
    assert pairwise_distances(z)["min"] == pytest.approx(1e-3, rel=0.05)


def test_it_refuses_a_single_one_and_more_than_a_sample() -> None:
    with pytest.raises(UserError, match="at least 2"):
        pairwise_distances(torch.randn(1, 2))
    with pytest.raises(ValueError, match="at most"):
        separability(torch.randn(SAMPLES + 1, 2))


@pytest.mark.parametrize("order", ["sorted", "in turn", "shuffled"])
def test_the_order_of_the_test_set_does_not_matter(order: str) -> None:
    each, classes = SAMPLES, 4
    y = torch.arange(classes).repeat_interleave(each)
    y = {"sorted": y, "in turn": y.view(classes, each).T.flatten(), "shuffled": y[torch.randperm(len(y))]}[order]
    x = torch.nn.functional.one_hot(y, 10).float() * 3 + 0.01 * torch.randn(len(y), 10)  # a class is a direction
    arrays = Arrays("made", "here", x, y, x, y, classes)
    module = SplitModule("mlp", [10], classes, defence="none")
    module.network.encoder, module.network.head = torch.nn.Sequential(), torch.nn.Sequential()  # z is x
    useful = measure_utility(module, TensorDataModule(arrays))
    assert len(useful.representations) == len(useful.classes) == SAMPLES
    assert (useful.representations.argmax(dim=1) == useful.classes).all()
    # three of four pairs are of two classes, at right angles; the first 2,000 of a sorted set are of one class
    assert separability(useful.representations)["mean"] == pytest.approx(0.75 * 2**0.5, rel=0.02)
