"""The independent classifier: trained once on the training split, for inputs of any size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import sweetspot.evaluations.classifier as classifier
from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.tensors import Arrays


def test_the_independent_classifier_learns_and_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "STEPS", 60)
    y = torch.arange(120) % 2
    x = (torch.rand(120, 1, 28, 28) * 0.2 + 0.7 * y.view(-1, 1, 1, 1)).clamp(0, 1)
    data = TensorDataModule(Arrays("two", "test", x, y, x[:20], y[:20], 2), 12)
    network = classifier.independent_classifier(data, tmp_path, torch.device("cpu"))
    assert network is not None
    assert (network(x[:20]).argmax(dim=1) == y[:20]).float().mean() == 1
    monkeypatch.setattr(classifier, "train_classifier", None)
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
