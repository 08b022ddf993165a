"""Scores against second implementations, and against what must be true of any score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from sweetspot.errors import UserError
from sweetspot.metrics.similarity import mcs, mse, psnr, retrieval_rank, ssim
from sweetspot.metrics.summary import HIGHER_IS_WORSE, mean_std_worst, summary


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    original = torch.rand(4, 3, 32, 32, generator=generator)
    noise = torch.randn(4, 3, 32, 32, generator=generator)
    strength = torch.tensor([0.02, 0.1, 0.3, 1.0]).view(4, 1, 1, 1)
    return (original + strength * noise).clamp(0, 1), original


def ssim_by_scipy(a: np.ndarray, b: np.ndarray) -> float:
    """Wang et al. 2004 on one channel: Gaussian window of 11 px with σ = 1.5, constants for a data range of 1."""

    def window(image: np.ndarray) -> np.ndarray:
        filtered: np.ndarray = gaussian_filter(image.astype(np.float64), 1.5, truncate=3.5, mode="mirror")
        return filtered

    mean_a, mean_b = window(a), window(b)
    var_a, var_b = window(a * a) - mean_a**2, window(b * b) - mean_b**2
    covariance = window(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    value = (2 * mean_a * mean_b + c1) * (2 * covariance + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return float(value.mean())


def test_ssim_equals_a_second_implementation(pair: tuple[Tensor, Tensor]) -> None:
    recovered, original = (images.numpy().astype(np.float64) for images in pair)
    expected = [
        np.mean([ssim_by_scipy(r[c], o[c]) for c in range(3)]) for r, o in zip(recovered, original, strict=True)
    ]
    assert ssim(*pair).tolist() == pytest.approx(np.clip(expected, 0, 1), abs=1e-4)


def test_ssim_of_one_image_does_not_depend_on_the_others(pair: tuple[Tensor, Tensor]) -> None:
    alone = torch.cat([ssim(r[None], o[None]) for r, o in zip(*pair, strict=True)])
    assert torch.allclose(ssim(*pair), alone, atol=1e-6)


def test_ssim_is_clipped_at_zero_and_refuses_images_below_its_window() -> None:
    x = torch.rand(2, 1, 28, 28)
    assert (ssim(1 - x, x) == 0).all()
    with pytest.raises(UserError, match="at least 11 px"):
        ssim(torch.rand(1, 1, 8, 8), torch.rand(1, 1, 8, 8))


def test_an_exact_recovery_is_a_perfect_score(pair: tuple[Tensor, Tensor]) -> None:
    _, x = pair
    assert ssim(x, x).tolist() == pytest.approx([1] * 4)
    assert mse(x, x).tolist() == [0] * 4
    assert psnr(x, x).tolist() == [100] * 4
    assert mcs(x, x).tolist() == pytest.approx([1] * 4)


def test_scores_fall_as_noise_grows(pair: tuple[Tensor, Tensor]) -> None:
    for score in (ssim, psnr, mcs):
        assert (score(*pair).diff() < 0).all()
    assert (mse(*pair).diff() > 0).all()


def test_psnr_and_mcs_equal_numpys(pair: tuple[Tensor, Tensor]) -> None:
    recovered, original = (images.numpy().astype(np.float64).reshape(4, -1) for images in pair)
    assert psnr(*pair).tolist() == pytest.approx(
        10 * np.log10(1 / ((recovered - original) ** 2).mean(axis=1)), rel=1e-4
    )
    norms = np.linalg.norm(recovered, axis=1) * np.linalg.norm(original, axis=1)
    assert mcs(*pair).tolist() == pytest.approx((recovered * original).sum(axis=1) / norms, rel=1e-5)


def test_retrieval_counts_who_is_nearer_than_the_true_image() -> None:
    gallery = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    recovered, original = torch.tensor([[0.1], [2.9], [0.2]]), torch.tensor([[0.0], [2.0], [3.0]])
    assert retrieval_rank(recovered, original, gallery).tolist() == [0, 1, 3]
    assert retrieval_rank(gallery, gallery, gallery).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", HIGHER_IS_WORSE)
def test_the_worst_case_is_the_best_recovered_sample(name: str) -> None:
    scores = torch.arange(20.0)
    result = summary(name, scores)
    assert result["worst"] == (19 if HIGHER_IS_WORSE[name] else 0)
    assert result["worst_decile"] == (18.5 if HIGHER_IS_WORSE[name] else 0.5)
    assert (result["mean"], result["std"]) == pytest.approx((9.5, scores.numpy().std()))


def test_a_summary_reads_as_in_the_paper() -> None:
    assert mean_std_worst(summary("ssim", torch.tensor([0.1, 0.2, 0.6]))) == "0.30 ± 0.22 (0.60)"


def test_a_nearly_perfect_recovery_has_rank_0() -> None:
    generator = torch.Generator().manual_seed(0)
    gallery = torch.rand(500, 1, 28, 28, generator=generator)
    for noise in (1e-4, 1e-3, 1e-2):
        recovered = gallery[:50] + noise * torch.randn(50, 1, 28, 28, generator=generator)
        assert retrieval_rank(recovered, gallery[:50], gallery).max() == 0
