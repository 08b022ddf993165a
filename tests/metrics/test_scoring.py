"""Scores of a whole attack: what fits the inputs, by whoever may see both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sweetspot.metrics.classifier as classifier
from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.tensors import Arrays
from sweetspot.errors import UserError
from sweetspot.metrics.scoring import Scorer
from sweetspot.metrics.summary import worst_case


def scorer(x: Tensor, network: nn.Module | None = None) -> Scorer:
    return Scorer(x, torch.zeros(len(x), dtype=torch.long), x, None, network)


def test_images_and_vectors_have_their_own_metrics() -> None:
    assert set(scorer(torch.rand(3, 1, 16, 16)).score(torch.rand(3, 1, 16, 16))) == {"ssim", "psnr", "mse", "rank"}
    assert set(scorer(torch.rand(3, 1, 8, 8)).score(torch.rand(3, 1, 8, 8))) == {"psnr", "mse", "rank"}
    assert set(scorer(torch.randn(3, 5)).score(torch.randn(3, 5))) == {"mcs", "mse", "rank"}


def test_images_are_clipped_and_what_is_no_number_is_black() -> None:
    x = torch.ones(2, 1, 16, 16)
    recovered = 7 * x
    recovered[1, 0, 0, 0] = torch.nan
    mse = scorer(x).score(recovered)["mse"]
    assert mse[0] == 0
    assert mse[1] == pytest.approx(1 / 256)


def test_recognised_is_what_the_classifier_says() -> None:
    class Bright(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x.mean(dim=1), 0.5 * torch.ones(len(x))], dim=1)

    x = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert scorer(x, Bright()).score(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))["recognised"].tolist() == [1, 0]


def test_a_reconstruction_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match="was recovered where"):
        scorer(torch.rand(3, 4)).score(torch.rand(2, 4))


def test_the_worst_case_is_by_sample_and_leaves_the_floor_out() -> None:
    attacks = {
        "prototype": {"inputs": [4, 7], "scores": {"ssim": [1.0, 1.0], "mse": [0.0, 0.0]}},
        "a": {"inputs": [4, 7], "scores": {"ssim": [0.1, 0.8], "mse": [0.5, 0.1]}},
        "b": {"inputs": [4, 5, 7], "scores": {"ssim": [0.3, 1.0, 0.2]}},
    }
    worst = worst_case(attacks)
    assert (worst["attacks"], worst["samples"]) == (["a", "b"], 2)
    assert worst["ssim"]["mean"] == pytest.approx(0.55), "input 5 was not seen by both"
    assert "mse" not in worst, "one of the attacks has none"
    assert worst_case({"prototype": attacks["prototype"]}) == {}


def test_the_independent_classifier_learns_and_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "STEPS", 60)
    y = torch.arange(120) % 2
    x = (torch.rand(120, 1, 28, 28) * 0.2 + 0.7 * y.view(-1, 1, 1, 1)).clamp(0, 1)
    data = TensorDataModule(Arrays("two", "test", x, y, x[:20], y[:20], 2), 12)
    network = classifier.independent_classifier(data, tmp_path, torch.device("cpu"))
    assert network is not None
    assert (network(x[:20]).argmax(dim=1) == y[:20]).float().mean() == 1
    monkeypatch.setattr(classifier, "fit", None)
    again = classifier.independent_classifier(data, tmp_path, torch.device("cpu"))
    assert again is not None
    assert torch.equal(again(x[:4]), network(x[:4]))


@pytest.mark.parametrize("shape", [(1, 17, 19), (3, 64, 64), (3, 97, 80)])
def test_images_of_any_size_have_a_classifier(
    shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "STEPS", 12)
    monkeypatch.setattr(classifier, "BATCH", 32)
    y = torch.arange(40) % 2
    x = (torch.rand(40, *shape) * 0.2 + 0.7 * y.view(-1, 1, 1, 1)).clamp(0, 1)
    data = TensorDataModule(Arrays("odd", "test", x, y, x[:8], y[:8], 2), 12)
    network = classifier.independent_classifier(data, tmp_path, torch.device("cpu"))
    assert network is not None
    assert (network(x[:8]).argmax(dim=1) == y[:8]).float().mean() == 1


def test_inputs_that_fit_no_classifier_have_none(tmp_path: Path) -> None:
    y = torch.arange(40) % 2
    data = TensorDataModule(Arrays("odd", "test", torch.rand(40, 17, 19), y, torch.rand(4, 17, 19), y[:4], 2), 12)
    assert classifier.independent_classifier(data, tmp_path, torch.device("cpu")) is None
