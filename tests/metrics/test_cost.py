"""Costs against counts by hand, and the server's gain on problems whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import Tensor, nn

from sweetspot.attacks import Victim
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.metrics.cost import RIDGE, cost, linear_accuracy, logistic_regression, server_gain


def test_multiply_adds_and_parameters_are_those_counted_by_hand() -> None:
    encoder = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    head = nn.Sequential(nn.Linear(8 * 4 * 4, 20), nn.ReLU(), nn.Linear(20, 10))
    assert cost(encoder, head, (3, 16, 16)) == {
        "client_macs": 8 * 8 * 8 * (3 * 5 * 5),  # one for each weight at each of 8 × 8 places
        "server_macs": 8 * 4 * 4 * 20 + 20 * 10,
        "client_parameters": 8 * 3 * 5 * 5 + 8,
        "server_parameters": 8 * 4 * 4 * 20 + 20 + 20 * 10 + 10,
    }


def test_a_bottleneck_is_the_clients_and_its_inverse_the_servers() -> None:
    without, squeezed = (
        Victim.from_module(SplitModule("lenet", [1, 28, 28], 10, bottleneck=each)) for each in (None, "120-16")
    )
    plain, ours = (cost(each.encoder, each.head, each.shape) for each in (without, squeezed))
    width = without.encoder(torch.zeros(1, 1, 28, 28)).numel()
    assert ours["client_macs"] - plain["client_macs"] == width * 120 + 120 * 16
    assert ours["server_macs"] - plain["server_macs"] == 16 * width
    assert ours["client_parameters"] - plain["client_parameters"] == width * 120 + 120 + 120 * 16 + 16
    assert ours["server_parameters"] - plain["server_parameters"] == 16 * width + width


def test_counting_leaves_a_network_as_it_was() -> None:
    encoder = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten())
    cost(encoder, nn.Linear(72, 3), (1, 8, 8))
    assert encoder.training
    batch_norm = encoder[1]
    assert isinstance(batch_norm, nn.BatchNorm2d)
    assert batch_norm.num_batches_tracked == 0
    assert all(each.grad is None for each in encoder.parameters())


def test_tokens_are_counted_too() -> None:
    assert cost(nn.Embedding(50, 8), nn.Linear(8, 50), (6,), torch.long)["server_macs"] == 6 * 8 * 50


def blobs(count: int, seed: int, spread: float = 0.1) -> tuple[Tensor, Tensor]:
    """Four blobs at the corners of a square, with features of very different sizes, and their corners."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.arange(count) % 4
    centre = torch.stack([corner % 2, corner // 2], dim=1) * 2.0 - 1
    z = centre + spread * torch.randn(count, 2, generator=generator)
    return 5 + z * torch.tensor([1000.0, 1e-3]), corner


def test_a_linear_classifier_does_what_a_line_can_do_and_no_more() -> None:
    (z, corner), (tests, theirs) = blobs(2000, 0), blobs(1000, 1)
    assert server_gain(1.0, z, corner, tests, theirs, 4) == 0.0
    exclusive, other = (corner % 2) ^ (corner // 2), (theirs % 2) ^ (theirs // 2)  # no line separates these
    gain = server_gain(1.0, z, exclusive, tests, other, 2)
    assert 0.2 < gain < 0.55


def test_it_is_trained_to_the_optimum() -> None:
    generator = torch.Generator().manual_seed(0)
    z, y = torch.randn(300, 4, generator=generator), torch.randint(0, 3, (300,), generator=generator)
    features = torch.cat([z, torch.ones(300, 1)], dim=1).double()

    def loss(flat: np.ndarray) -> float:
        weight = torch.from_numpy(flat).view(5, 3)
        return float(F.cross_entropy(features @ weight, y) + RIDGE / 2 * weight[:-1].square().sum())

    best = minimize(loss, np.zeros(15), method="BFGS")
    ours = logistic_regression(z, y, 3).double().numpy().ravel()
    assert loss(ours) == pytest.approx(float(best.fun), abs=1e-5)


def test_a_sorted_training_set_is_drawn_from_all_over() -> None:
    z, corner = blobs(24_000, 0)
    order = corner.argsort(stable=True)
    assert linear_accuracy(z[order], corner[order], *blobs(400, 1), 4) == 1


def test_constant_features_and_what_was_released_with_gradients_are_no_trouble() -> None:
    z, corner = blobs(400, 0)
    with_dead = torch.cat([z, torch.full((400, 3), 7.0)], dim=1).requires_grad_()
    with torch.no_grad():
        assert linear_accuracy(with_dead, corner, with_dead, corner, 4) == 1
