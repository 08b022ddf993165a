"""The whole attack: exact through every activation, honest about what cannot be known, one line for what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sweetspot.attacks.gradients.activations import Function
from sweetspot.attacks.gradients.defences import clipped, noisy, pruned
from sweetspot.attacks.gradients.federated import Gradient, Weights, client_gradient
from sweetspot.attacks.gradients.reconstruct import reconstruct
from sweetspot.errors import UserError
from sweetspot.metrics.gradients import BatchScore, batch_score
from tests.attacks.gradients.conftest import NAMES, Round, played


def attacked(played_round: Round, **options: Any) -> tuple[str, BatchScore, BatchScore]:
    """The verdict, the score of what was recovered, and that of the tensor stage."""
    options = {"batch": len(played_round.x), **options}
    recovered = reconstruct(played_round.gradient, played_round.weights, played_round.activation, **options)
    truth = (played_round.x, played_round.y)
    return (
        recovered.verdict,
        batch_score(recovered.x, recovered.y, *truth),
        batch_score(recovered.tensor.x, recovered.tensor.y, *truth),
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("batch", "dim"), [(1, 5), (2, 20), (5, 12)])
def test_inputs_and_labels_come_back_exactly(name: str, batch: int, dim: int) -> None:
    verdict, score, _ = attacked(played(name, batch, dim))
    assert verdict == "exact"
    assert score.error.max() < 1e-9
    assert score.labels.max() < 1e-7


@pytest.mark.parametrize("source", ["w", "a"])
@pytest.mark.parametrize("subspace", ["span", "moment"])
def test_the_tensor_stage_alone_is_near(source: str, subspace: str) -> None:
    _, polished, tensor = attacked(played("square-cubic", width=20000), source=source, subspace=subspace)
    assert 1e-4 < tensor.rms < 0.25
    assert polished.error.max() < 1e-9


def test_without_the_polish_the_tensor_stage_is_what_comes_back() -> None:
    played_round = played("tanh")
    recovered = reconstruct(played_round.gradient, played_round.weights, "tanh", 2, polish=False)
    assert torch.equal(recovered.x, recovered.tensor.x)
    assert recovered.verdict == "not recovered"
    assert set(recovered.seconds) == {"subspace", "tensor"}


def test_the_batch_is_counted_where_nobody_says_it() -> None:
    played_round = played("gelu", batch=3)
    assert len(reconstruct(played_round.gradient, played_round.weights, "gelu").x) == 3
    with pytest.raises(UserError, match="full rank"):
        reconstruct(noisy(played_round.gradient, 0.01), played_round.weights, "gelu")


def test_the_same_seed_gives_the_same_batch_to_the_last_bit() -> None:
    played_round = played("silu", batch=3)
    first, again = (reconstruct(played_round.gradient, played_round.weights, "silu", 3, seed=5) for _ in range(2))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.tensor.x, again.tensor.x)


@pytest.mark.parametrize("function", [lambda z: z.sin() + z.square(), F.elu])
def test_any_function_will_do(function: Function) -> None:
    verdict, score, _ = attacked(played(function, width=1500))
    assert verdict == "exact"
    assert score.error.max() < 1e-8


def test_what_no_gradient_tells_is_named() -> None:
    unknown = {}
    functions: dict[str, Function] = {"cos": torch.cos, "tanh": torch.tanh, "relu": torch.relu, "gelu": F.gelu}
    for name, function in functions.items():
        played_round = played(function, width=1500)
        recovered = reconstruct(played_round.gradient, played_round.weights, function, 2)
        score = batch_score(recovered.x, recovered.y, played_round.x, played_round.y, up_to_sign=name == "cos")
        assert score.error.max() < 1e-8
        unknown[name] = recovered.unknown
    assert unknown == {"cos": ("sign",), "tanh": ("sign",), "relu": ("scale",), "gelu": ()}


@pytest.mark.parametrize("name", ["relu", "leaky-relu"])
def test_a_norm_that_relu_hides_can_be_told(name: str) -> None:
    played_round = played(name)
    x = 3 * played_round.x
    gradient = client_gradient(x, played_round.y, played_round.weights, played_round.activation)
    recovered = reconstruct(gradient, played_round.weights, name, 2, norm=3.0)
    score = batch_score(recovered.x, recovered.y, x, played_round.y)
    assert score.error.max() < 1e-9
    assert score.labels.max() < 1e-8
    assumed = reconstruct(gradient, played_round.weights, name, 2)
    assert assumed.verdict == "exact"  # the same gradient, from a batch of norm 1 with other labels
    assert batch_score(assumed.x, assumed.y, x, played_round.y, up_to_scale=True).error.max() < 1e-9


def test_noise_moves_the_result_in_proportion_and_is_named() -> None:
    errors = []
    for level in (1e-4, 1e-2):
        played_round = played("gelu", dim=20, width=1500)
        verdict, score, _ = attacked(replace(played_round, gradient=noisy(played_round.gradient, level)))
        assert verdict == "up to noise"
        errors.append(float(score.error.max()))
    assert errors[0] < 1e-4
    assert errors[1] < 1e-2


def test_a_batch_that_drowns_in_noise_is_not_called_recovered() -> None:
    played_round = played("gelu", dim=20, width=1500)
    assert attacked(replace(played_round, gradient=noisy(played_round.gradient, 30.0)))[0] == "not recovered"


def test_clipping_hides_the_labels_only_and_a_known_set_of_labels_brings_them_back() -> None:
    played_round = played("tanh")
    small = replace(played_round, gradient=clipped(played_round.gradient, 1.0))
    verdict, score, _ = attacked(small)
    assert verdict == "exact"
    assert score.error.max() < 1e-9
    assert score.labels.min() > 1
    assert attacked(small, labels=(-1.0, 1.0))[1].labels.max() < 1e-7


@pytest.mark.parametrize(("name", "fraction"), [("tanh", 0.6), ("relu", 0.6), ("square-cubic", 0.6)])
def test_pruning_a_good_part_of_the_gradient_hides_nothing(name: str, fraction: float) -> None:
    played_round = played(name, dim=20, width=1000)
    verdict, score, _ = attacked(replace(played_round, gradient=pruned(played_round.gradient, fraction)))
    assert verdict == "exact"
    assert score.error.max() < 1e-7


def test_a_batch_that_pruning_leaves_open_is_not_called_exact() -> None:
    played_round = played("relu", dim=50, width=5000)
    bare = pruned(played_round.gradient, 0.99)
    recovered = reconstruct(bare, played_round.weights, "relu", 2)
    wrong = batch_score(recovered.x, recovered.y, played_round.x, played_round.y, up_to_scale=True)
    assert wrong.error.max() > 0.1, "whole coordinates are missing"
    assert recovered.verdict == "not recovered"


def test_a_gradient_in_single_precision_is_as_exact_as_that_allows() -> None:
    played_round = played("tanh")
    gradient = Gradient(played_round.gradient.a.float(), played_round.gradient.w.float())
    _, score, _ = attacked(replace(played_round, gradient=gradient))
    assert score.error.max() < 1e-5


def test_an_unrelated_gradient_is_not_recovered() -> None:
    played_round, other = played("tanh"), played("tanh", seed=7)
    recovered = reconstruct(other.gradient, played_round.weights, "tanh", 2)
    assert recovered.verdict == "not recovered"
    assert recovered.residual > 0.1


def with_gradient(**parts: Any) -> Callable[[Round], tuple[Gradient, Weights]]:
    return lambda it: (replace(it.gradient, **parts), it.weights)


@pytest.mark.parametrize(
    ("change", "batch", "message"),
    [
        (lambda it: (it.gradient, it.weights), 13, "13 is larger than the dimension 12"),
        (lambda it: (it.gradient, it.weights), 0, "at least one sample"),
        (lambda it: (it.gradient, it.weights), 3, "span 2 dimensions, not 3"),
        (lambda it: (it.gradient, it.weights), 1, "it is of 2 samples, not 1"),
        (with_gradient(w=torch.ones(3, 4)), 2, "are not the weights'"),
        (with_gradient(a=torch.full((600,), torch.nan)), 2, "∂L/∂a holds NaN"),
        (with_gradient(w=torch.zeros(600, 12)), 2, "the gradient is 0"),
        (lambda it: (it.gradient, replace(it.weights, a=torch.zeros(600))), 2, "weights a is 0"),
        (lambda it: (it.gradient, replace(it.weights, a=torch.ones(5))), 2, r"must be w \(m, d\)"),
    ],
)
def test_wrong_input_gets_one_line(
    change: Callable[[Round], tuple[Gradient, Weights]], batch: int, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        reconstruct(*change(played("tanh")), "tanh", batch)
    assert "\n" not in str(caught.value)


def test_dependent_samples_and_a_zero_residue_are_refused() -> None:
    played_round = played("tanh")
    twice = torch.stack([played_round.x[0], 2 * played_round.x[0]])
    gradient = client_gradient(twice, played_round.y, played_round.weights, played_round.activation)
    with pytest.raises(UserError, match="linearly dependent"):
        reconstruct(gradient, played_round.weights, "tanh", 2)
    exact = torch.tanh(played_round.x @ played_round.weights.w.T).mean(dim=1) + 30
    gradient = client_gradient(
        played_round.x, torch.stack([exact[0], played_round.y[1]]), played_round.weights, played_round.activation
    )
    with pytest.raises(UserError, match="a residue is 0"):
        reconstruct(gradient, played_round.weights, "tanh", 2)


def test_a_width_that_is_too_small_is_warned_of_or_refused() -> None:
    narrow = played("tanh", batch=4, width=20)
    with pytest.warns(UserWarning, match="a width of 20 is small for 4 samples: recovery needs about 32"):
        reconstruct(narrow.gradient, narrow.weights, "tanh", 4)
    with pytest.raises(UserError, match="cannot determine 4 samples"):
        reconstruct(played("tanh", batch=4, width=4).gradient, played("tanh", width=4).weights, "tanh", 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attacked(played("tanh", batch=4))


def test_words_that_mean_nothing_are_refused() -> None:
    it = played("tanh")
    with pytest.raises(UserError, match="source must be one of w, a; got b"):
        reconstruct(it.gradient, it.weights, "tanh", 2, source="b")
    with pytest.raises(UserError, match="subspace must be one of span, moment; got all"):
        reconstruct(it.gradient, it.weights, "tanh", 2, subspace="all")
