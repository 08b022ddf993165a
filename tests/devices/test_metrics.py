"""Every metric with reconstructions and truth on a second device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import lpips
import pytest
import torch
from torch import nn

import sweetspot.evaluations.classifier as classifier
from sweetspot.lightning_modules.defences.releases import Chain, Clip, Gaussian
from sweetspot.lightning_modules.separability import separability
from sweetspot.lightning_modules.utility import measure_utility, representations_of_tests
from sweetspot.metrics.certificates import certificate, gaussian_of, reid_measured, reverse_trace
from sweetspot.metrics.cost import cost, server_gain
from sweetspot.metrics.gradients import batch_score
from sweetspot.metrics.scoring import Scorer
from sweetspot.metrics.summary import scored
from tests.devices.second_device import SecondDevice, is_marked
from tests.devices.training import CLASSES, VOCABULARY, built, data_for

IMAGES = (6, 1, 28, 28)


@pytest.fixture
def second() -> Iterator[SecondDevice]:
    with SecondDevice() as device:
        yield device


@pytest.fixture(scope="module")
def perceptual() -> lpips.LPIPS:
    """LPIPS with random weights: where they come from is nothing to a device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lpips.LPIPS(net="alex", pnet_rand=True, verbose=False).eval().requires_grad_(False)


def test_scores_of_images(second: SecondDevice, perceptual: lpips.LPIPS) -> None:
    x, recovered = torch.rand(*IMAGES).to(second.device), torch.rand(*IMAGES).to(second.device)
    judge = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, CLASSES)).to(second.device)
    scorer = Scorer(x, torch.arange(6).to(second.device) % CLASSES, x, perceptual.to(second.device), judge)
    with second.watched() as waits:
        scores = scorer.score(recovered)
    assert not waits, waits
    assert set(scores) == {"ssim", "psim", "psnr", "mse", "recognised", "rank"}
    assert all(map(is_marked, scores.values()))
    assert set(scored(scores)) > set(scores)


def test_scores_of_vectors(second: SecondDevice) -> None:
    x = torch.randn(6, 10).to(second.device)
    scores = Scorer(x, torch.zeros(6, dtype=torch.long).to(second.device), x).score(x.roll(1, dims=0))
    assert set(scores) == {"mcs", "mse", "rank"}
    assert all(map(is_marked, scores.values()))


@pytest.mark.parametrize("network", ["lenet", "mlp"])
def test_the_independent_classifier(
    network: str, second: SecondDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_for(built(network, tmp_path), 24)
    found = []
    for steps in (2, 4):
        monkeypatch.setattr(classifier, "STEPS", steps)
        with second.watched() as waits:
            judge = classifier.independent_classifier(data, tmp_path / str(steps), second.device)
        found.append(len(waits))
        assert judge is not None
        assert is_marked(judge(data.train[0].to(second.device)))
    assert found[0] == found[1], "its training waits in every step"
    assert classifier.independent_classifier(data, tmp_path / "4", second.device) is not None  # from the cache


def test_certificates(second: SecondDevice) -> None:
    encoder = nn.Sequential(nn.Linear(10, 6), nn.Tanh()).to(second.device)
    x, y = torch.randn(20, 10).to(second.device), torch.arange(20).to(second.device) % CLASSES
    h = encoder(x).detach()
    release = gaussian_of(Chain(Clip(clip=2.0), Gaussian(sigma=0.5, unit="raw")))
    assert release is not None
    for wide in (h, torch.cat([h] * 4, dim=1)):
        found = certificate(release.before(wide), y, release.sigma, release.clip, encoder, x, trials=40)
        assert found is not None
        assert found["holds"] in (True, False)
    generator = torch.Generator(device=second.device).manual_seed(0)
    assert is_marked(reverse_trace(encoder, x, 2, generator))
    for distance in ("squared", "l1"):
        hits = reid_measured(h, h, y, gallery=5, distance=distance).hits
        assert hits is not None
        assert is_marked(hits)
    hits = reid_measured(h[:3], h, y, gallery=5, inputs=torch.arange(3)).hits
    assert hits is not None
    assert is_marked(hits)


@pytest.mark.parametrize("network", ["lenet", "gpt2-tiny"])
def test_utility_and_separability(network: str, second: SecondDevice, tmp_path: Path) -> None:
    module = built(network, tmp_path, release=[{"name": "gaussian"}]).to(second.device)
    data = data_for(module)
    utility = measure_utility(module, data)
    assert is_marked(utility.representations)
    assert separability(utility.representations)["samples"] == len(utility.representations)
    if network == "lenet":
        z, y = representations_of_tests(module, data, count=8)
        assert server_gain(utility.accuracy, z, y, z, y, CLASSES) <= 1
        assert cost(module.network.encoder, module.network.head, (1, 28, 28))["client_macs"] > 0
    else:
        assert cost(module.network.encoder, module.network.head, (4,), torch.long)["server_macs"] > 0
        assert utility.perplexity is not None
        assert 0 < utility.perplexity < 10 * VOCABULARY


def test_scores_of_a_gradients_batch(second: SecondDevice) -> None:
    x, y = torch.randn(4, 6).to(second.device), torch.ones(4).to(second.device)
    found = batch_score(x.flip(0), -y, x, y, up_to_sign=True, up_to_scale=True)
    assert all(map(is_marked, (found.order, found.sign, found.error, found.labels)))
    assert found.rms < 1e-6
