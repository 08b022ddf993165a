"""Scores of a whole attack: what fits the inputs, by whoever may see both sides."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

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
