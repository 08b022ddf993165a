"""Diagnostics: wrong commits are flagged where they happen, without the truth; margins equal brute force."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.text.diagnostics import (
    Detection,
    auroc,
    calibration,
    category,
    detect,
    detector_quality,
    failures_by_category,
    first_error,
    one_step_margin,
)
from sweetspot.attacks.text.hybrid import Hybrid
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.single_commit import SingleCommit
from tests.attacks.text.conftest import Trained

Leaked = Callable[..., list[Tensor]]


def test_the_detector_tells_right_from_wrong_and_where(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = leaked(model, trained.prompts)
    recovery = SingleCommit(model, InnerLoop(steps=40), candidates=1).invert(states)
    wrong = [tokens != prompt for tokens, prompt in zip(recovery.tokens, trained.prompts, strict=True)]
    assert any(wrong)
    assert not all(wrong)
    detection = detect(recovery)
    assert detection.flagged == wrong
    quality = detector_quality(detection, recovery.tokens, trained.prompts)
    assert (quality.precision, quality.recall, quality.auroc, quality.located) == (1.0, 1.0, 1.0, 1.0)


def test_a_right_recovery_is_not_flagged(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut(1)
    detection = detect(Hybrid(model).invert(leaked(model, trained.prompts[:3])))
    assert detection.flagged == [False] * 3
    assert detection.first == [None] * 3
    assert max(detection.score) < -8  # the floor


def test_quality_counts_by_hand() -> None:
    detection = Detection([True, True, False, False], [0, 2, None, None], [5.0, 3.0, 4.0, 1.0])
    quality = detector_quality(detection, [[9, 1], [1, 1], [1, 9], [1, 1]], [[1, 1]] * 4)
    assert (quality.precision, quality.recall, quality.auroc, quality.located) == (0.5, 0.5, 1.0, 0.5)


def test_behind_noise_the_posterior_says_what_is_suspicious() -> None:
    given = Recovery(
        tokens=[[1, 2], [3, 4], [5]], verified=[[False] * 2, [False] * 2, [False]],
        discrete_loss=[[9.0] * 2] * 2 + [[9.0]],
        residual=[[1.0] * 2] * 2 + [[1.0]], steps=[[0] * 2] * 2 + [[0]], tried=[[1] * 2] * 2 + [[1]], seconds={},
        probability=[[0.9, 0.95], [0.8, 0.3], [0.6]], confidence=[0.85, 0.3, 0.6],
    )  # fmt: skip
    detection = detect(given)
    assert detection.flagged == [False, True, False]
    assert detection.first == [None, 1, None]
    assert detection.score == pytest.approx([0.15, 0.7, 0.4])


def test_the_calibration_error_equals_a_loop_over_bins() -> None:
    torch.manual_seed(0)
    said = torch.rand(200).tolist()
    right = (torch.rand(200) < 0.5).tolist()
    expected = 0.0
    for low in range(10):
        inside = [i for i, p in enumerate(said) if low / 10 <= p < (low + 1) / 10]
        if inside:
            gap = sum(said[i] for i in inside) / len(inside) - sum(right[i] for i in inside) / len(inside)
            expected += abs(gap) * len(inside) / 200
    found = calibration(said, right)
    assert found.error == pytest.approx(expected)
    assert sum(found.count) == 200
    assert found.chance < found.error, "these come true half the time, whatever is said"
    one = calibration([0.5] * 4, [True] * 4)  # |k/4 − 1/2| over k of 4: 1, 4, 6, 4 and 1 of 16 ways
    assert one.chance == pytest.approx((2 * 0.5 + 8 * 0.25) / 16, abs=0.03)
    assert (calibration([1.0, 0.0], [True, False]).error, calibration([1.0, 0.0], [True, False]).chance) == (0, 0)
    assert math.isnan(calibration([], []).error)


def test_auroc_equals_counting_pairs() -> None:
    torch.manual_seed(0)
    scores, positive = torch.randint(0, 6, (30,)).tolist(), (torch.rand(30) < 0.4).tolist()
    pairs = [(a > b) + 0.5 * (a == b) for a, p in zip(scores, positive, strict=True) if p
             for b, q in zip(scores, positive, strict=True) if not q]  # fmt: skip
    assert auroc(scores, positive) == pytest.approx(sum(pairs) / len(pairs))
    assert auroc([1.0], [True]) != auroc([1.0], [True])  # NaN: there is nothing to tell apart


@pytest.mark.parametrize(
    ("tokens", "expected"), [([1, 2, 3], None), ([1, 9, 9], 1), ([1, 2], 2), ([1, 2, 3, 4], 3), ([], 0)]
)
def test_the_first_error(tokens: list[int], expected: int | None) -> None:
    assert first_error(tokens, [1, 2, 3]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" the", "space-prefixed"),
        ("Ġthe", "space-prefixed"),
        ("▁the", "space-prefixed"),
        (" ,", "space-prefixed"),
        (".", "punctuation"),
        ("),", "punctuation"),
        ("42", "digits"),
        ("ing", "continuation"),
        ("é", "continuation"),
        ("\n\n", "other"),
        ("a1", "other"),
        (" ", "other"),
        ("", "other"),
    ],
)
def test_categories(text: str, expected: str) -> None:
    assert category(text) == expected


def test_failures_are_counted_by_the_true_token() -> None:
    texts = {1: " the", 2: ",", 3: "7", 4: "ing"}
    failures = failures_by_category([[1, 1, 1], [4, 4, 4]], [[1, 2, 3], [1, 4, 1]], texts.__getitem__)
    assert failures == {"space-prefixed": 2, "punctuation": 1, "digits": 1, "continuation": 0, "other": 0}


def test_the_margin_equals_brute_force_without_a_cache(trained: Trained) -> None:
    model, prompts = trained.cut("last"), [trained.prompts[0][:3], trained.prompts[1][:2]]
    expected = []
    for prompt in prompts:
        for t, token in enumerate(prompt):
            with torch.no_grad():
                states = model.encoder(torch.tensor([[*prompt[:t], each] for each in range(300)]))[:, -1]
            distances = (states - states[token]).norm(dim=1)
            distances[token] = torch.inf
            expected.append(distances.min())
    margin = one_step_margin(model, prompts)
    assert torch.allclose(margin.distance, torch.stack(expected), rtol=1e-3)
    assert margin.min == pytest.approx(min(margin.distance.tolist()))
    assert margin.min <= margin.median
    assert (margin.relative < 2).all()
    bound = one_step_margin(model, prompts, tokens=50)
    assert (bound.distance >= margin.distance - 1e-5).all()
