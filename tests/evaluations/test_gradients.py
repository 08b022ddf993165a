"""A gradient, inverted as `invert.py gradient` does it: exact, honest, and one line for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sweetspot.attacks.gradients.activations import as_activation
from sweetspot.attacks.gradients.deep import DeepWeights, chosen_deep_weights, deep_gradient
from sweetspot.errors import UserError
from sweetspot.evaluations.gradient_config import GradientConfig
from sweetspot.evaluations.gradients import invert_gradient

SMALL: dict[str, Any] = {"width": 600, "dim": 12, "device": "cpu"}


def inverted(**flags: Any) -> dict[str, Any]:
    results = invert_gradient(GradientConfig(**SMALL | flags))
    json.dumps(results, allow_nan=False)  # it must fit into a file
    return results


def images(path: Path, **flags: Any) -> dict[str, Any]:
    return inverted(dataset=str(path), dim=None, **flags)


def leaked(path: Path, depth: int = 2, **changed: Any) -> str:
    """The path of a leak: tanh, 600 hidden units, two samples of 12 entries; `None` leaves a key out."""
    sigma = as_activation("tanh")
    weights = chosen_deep_weights(12, 600, depth, sigma, seed=3)
    x = torch.eye(2, 12, dtype=torch.float64) * 0.8
    y = torch.tensor([1.0, -1.0], dtype=torch.float64)
    gradient: DeepWeights = deep_gradient(x, y, weights, sigma)
    held: dict[str, Any] = {"w": weights.last, "a": weights.a, "bias": weights.bias}
    held |= {"grad_w": gradient.last, "grad_a": gradient.a}
    held |= {"inner": list(weights.inner)} if weights.inner else {}
    held |= changed | ({"x": x, "y": y} if changed.get("x") == "true" else {})
    torch.save({key: value for key, value in held.items() if value is not None}, path / "gradient.pt")
    return str(path / "gradient.pt")


def of_leak(states: str, **flags: Any) -> dict[str, Any]:
    return invert_gradient(GradientConfig(states=states, activation="tanh", device="cpu", **flags))


# ---------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("activation", ["square-cubic", "sigmoid", "relu", "softplus"])
@pytest.mark.parametrize("inputs", ["basis", "sphere"])
def test_a_synthetic_batch_comes_back_exactly(activation: str, inputs: str) -> None:
    results = inverted(activation=activation, inputs=inputs, batch=3)
    tensor, polished = results["recovered"]["tensor"], results["recovered"]["polished"]
    assert results["verdict"] == "exact"
    assert polished["worst"] < 1e-9 < tensor["worst"]
    assert polished["labels_right"] == 1
    assert polished["y"] == pytest.approx([1, -1, 1], abs=1e-6), "in the order of the truth"
    assert torch.tensor(polished["x"]).allclose(torch.tensor(results["truth"]["x"]), atol=1e-9)
    assert set(results["seconds"]) == {"client", "subspace", "tensor", "polish", "attack"}


@pytest.mark.parametrize("activation", ["tanh", "leaky-relu"])
def test_a_deep_network_is_as_good_as_a_shallow_one(activation: str) -> None:
    results = inverted(activation=activation, depth=4, inputs="sphere")
    assert results["network"]["depth"] == 4
    assert results["verdict"] == "exact"
    assert results["recovered"]["polished"]["worst"] < 1e-8


def test_images_are_flattened_scaled_and_of_as_many_classes_as_there_are(npz: Callable[..., Path]) -> None:
    path = npz(classes=3)
    results = images(path, batch=4, activation="softplus", width=300)
    assert results["data"]["shape"] == [1, 28, 28]
    assert results["network"]["dim"] == 784
    truth = results["truth"]
    assert len(set(truth["y"])) == 3
    assert torch.tensor(truth["x"]).norm(dim=1).allclose(torch.ones(4))
    assert results["recovered"]["polished"]["worst"] < 1e-8
    assert results["recovered"]["polished"]["labels_right"] == 1


def test_a_pair_may_share_its_label(npz: Callable[..., Path]) -> None:
    results = images(npz(), activation="square-cubic", same_label=True, width=300)
    assert len(set(results["truth"]["y"])) == 1
    assert results["recovered"]["polished"]["worst"] < 1e-8


def test_the_papers_attack_alone_gives_no_verdict_of_recovery() -> None:
    results = inverted(tensor_only=True, source="a", subspace="moment", width=4000)
    assert set(results["recovered"]) == {"tensor"}
    assert results["verdict"] == "not recovered"
    assert 1e-4 < results["recovered"]["tensor"]["rms"] < 0.5


def test_defences_are_applied_and_named() -> None:
    noisy = inverted(noise=0.01)
    assert noisy["verdict"] == "up to noise"
    assert 1e-6 < noisy["recovered"]["polished"]["worst"] < 0.1
    clipped = inverted(clip=0.1)
    assert clipped["recovered"]["polished"]["labels_right"] == 1, "known labels undo the unknown scale"
    assert inverted(prune=0.5)["recovered"]["polished"]["worst"] < 1e-6
    assert inverted(noise=100.0)["verdict"] == "not recovered"


def test_the_same_seed_gives_the_same_numbers_and_another_does_not() -> None:
    first, again, other = (inverted(seed=seed, noise=0.01)["recovered"]["polished"]["x"] for seed in (1, 1, 2))
    assert first == again != other


def test_more_samples_than_there_are_or_than_fit_are_refused(npz: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="--batch 21: images has only 20 such samples"):
        images(npz(count=60), batch=21, same_label=True)
    small = {"x_train": np.ones((6, 4), np.float32), "x_test": np.ones((6, 4), np.float32)}
    labels = {"y_train": np.arange(6) % 3, "y_test": np.arange(6) % 3}
    with pytest.raises(UserError, match="--batch 5 is larger than the dimension 4"):
        images(npz(**small, **labels), batch=5)


# ---------------------------------------------------------------------- a leak


@pytest.mark.parametrize("depth", [2, 3])
def test_a_leaked_gradient_needs_no_truth(tmp_path: Path, depth: int) -> None:
    results = of_leak(leaked(tmp_path, depth))
    assert results["verdict"] == "exact"
    assert results["data"]["batch"] == 2, "counted"
    assert "truth" not in results
    assert sorted(results["recovered"]["polished"]["y"]) == pytest.approx([-1, 1], abs=1e-6)
    assert torch.tensor(results["recovered"]["polished"]["x"]).norm(dim=1).allclose(torch.tensor([0.8, 0.8]))


def test_the_layers_of_a_deep_leak_may_be_numbered(tmp_path: Path) -> None:
    held = torch.load(leaked(tmp_path, depth=4))
    layers = {f"inner.{number}": layer for number, layer in enumerate(held.pop("inner"))}
    np.savez(tmp_path / "gradient.npz", **held, **layers)
    results = of_leak(str(tmp_path / "gradient.npz"))
    assert (results["network"]["depth"], results["verdict"]) == (4, "exact")


def test_a_leak_with_the_truth_is_scored(tmp_path: Path) -> None:
    assert of_leak(leaked(tmp_path, x="true"))["recovered"]["polished"]["worst"] < 1e-9


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"grad_a": None}, "must hold the tensors w, a, grad_w, grad_a by name"),
        ({"extra": torch.ones(1)}, "holds extra, which is none of"),
        ({"grad_w": torch.ones(600, 5)}, "grad_w is (600, 5)"),
        ({"grad_a": torch.ones(5)}, "grad_a is (5,)"),
        ({"w": torch.ones(600)}, "w is (600,)"),
        ({"a": torch.tensor(1.0)}, "a is ()"),
        ({"grad_a": torch.full((600,), torch.nan)}, "grad_a holds NaN"),
        ({"bias": [1, 2]}, "bias must be a number"),
        ({"inner": torch.ones(3)}, "inner must be a list"),
        ({"inner": [torch.ones(12, 6)]}, "those of Algorithm 2"),
        ({"x": torch.ones(2, 7), "y": torch.ones(2)}, "x is (2, 7)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_leak_that_cannot_be_one_is_one_line(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError) as caught:
        of_leak(leaked(tmp_path, **changed))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_leak_that_would_run_something_is_refused(tmp_path: Path) -> None:
    torch.save(GradientConfig(), tmp_path / "gradient.pt")
    with pytest.raises(UserError, match="cannot be read: it holds more than tensors"):
        of_leak(str(tmp_path / "gradient.pt"))


def test_a_wrong_batch_size_of_a_leak_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="it is of 2 samples, not 1"):
        of_leak(leaked(tmp_path), batch=1)
