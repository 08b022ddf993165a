"""Deep networks: they compute the two-layer one, and give the same batch."""

from __future__ import annotations

import pytest
import torch

from sweetspot.attacks.gradients.activations import as_activation
from sweetspot.attacks.gradients.deep import (
    as_two_layer,
    chosen_deep_weights,
    deep_gradient,
    deep_output,
    reconstruct_deep,
    undone,
)
from sweetspot.attacks.gradients.federated import chosen_weights, client_gradient, output
from sweetspot.errors import UserError
from sweetspot.metrics.gradients import batch_score
from tests.attacks.gradients.conftest import drawn, played


@pytest.mark.parametrize("name", ["relu", "leaky-relu", "gelu", "silu", "softplus"])
@pytest.mark.parametrize("depth", [2, 3, 6])
def test_a_deep_network_is_the_two_layer_one(name: str, depth: int) -> None:
    activation, x, y = as_activation(name), drawn(3, 4), torch.tensor([1.0, -1.0, 1.0])
    deep, plain = chosen_deep_weights(4, 50, depth, activation, seed=1), chosen_weights(4, 50, seed=1)
    assert torch.allclose(deep_output(x, deep, activation), output(x, plain, activation))
    gradient, inner = as_two_layer(deep_gradient(x, y, deep, activation), deep)
    expected = client_gradient(x, y, plain, activation)
    assert torch.allclose(inner.w, plain.w)
    assert torch.allclose(gradient.a, expected.a)
    assert torch.allclose(gradient.w, expected.w)


@pytest.mark.parametrize("name", ["relu", "leaky-relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("depth", [3, 5])
def test_the_batch_comes_back_through_all_layers(name: str, depth: int) -> None:
    plain, activation = played(name, batch=2, dim=10), as_activation(name)
    weights = chosen_deep_weights(10, 600, depth, activation, seed=1)
    gradient = deep_gradient(plain.x, plain.y, weights, activation)
    recovered = reconstruct_deep(gradient, weights, name, batch=2)
    score = batch_score(recovered.x, recovered.y, plain.x, plain.y)
    assert recovered.verdict == "exact"
    assert score.error.max() < 1e-8
    assert score.labels.max() < 1e-7


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu"])
def test_layers_are_undone(name: str) -> None:
    activation, x = as_activation(name), 2 * drawn(3, 4)
    h = x
    for _ in range(3):
        h = (activation(h) - activation(-h)) / 0.7
    assert torch.allclose(undone(h, activation, 0.7, 3), x)
    assert undone(torch.full((1,), 5.0), as_activation("tanh"), 1.0, 1).isfinite().all()


def test_what_cannot_be_deep_is_refused() -> None:
    with pytest.raises(UserError, match="depth must be at least 2"):
        chosen_deep_weights(4, 50, 1, as_activation("tanh"))
    with pytest.raises(UserError, match="no layer can pass its input on"):
        chosen_deep_weights(4, 50, 3, as_activation("square-cubic"))
    weights = chosen_deep_weights(4, 50, 3, as_activation("relu"))
    with pytest.raises(UserError, match="shape"):
        as_two_layer(chosen_deep_weights(5, 50, 3, as_activation("relu")), weights)
