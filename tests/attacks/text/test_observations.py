"""Observations: the same medians as a plain loop gives, ready for JSON, and nothing where nothing is known."""

from __future__ import annotations

import json
import math
from statistics import median

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.text.observations import observed
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.single_commit import SingleCommit
from tests.attacks.text.conftest import Trained

TRUTH = [[1, 2, 3], [1, 4], [2, 2, 2]]
TOKENS = [[1, 2, 3], [1, 9], [2, 9, 9]]
TEXTS = {1: " the", 2: ",", 3: "7", 4: "ing"}


def recovery(**changed: object) -> Recovery:
    """Three prompts, the first one right, of three, two and three positions; some of them needed no gradient."""
    loss = [[1e-14, 1e-14, 0.0], [0.0, 0.5], [1e-14, 2.0, 1.0]]
    lengths = [[2, 30, 0], [7, 3], [1, 20, 0]]
    torch.manual_seed(0)
    options: dict[str, object] = {
        "tokens": TOKENS,
        "verified": [[each < 1e-4 for each in prompt] for prompt in loss],
        "discrete_loss": loss,
        "residual": [[math.sqrt(each) for each in prompt] for prompt in loss],
        "steps": lengths,
        "tried": lengths,
        "seconds": {"propose": 1.0, "verify": 2.0, "gradient": 4.0, "other": 1.0},
        "curves": [[torch.rand(n) for n in prompt] for prompt in lengths],
        "ranks": [[torch.randint(0, 1000, (n,)) for n in prompt] for prompt in lengths],
    }
    return Recovery(**(options | changed))  # type: ignore[arg-type]


def at(curves: list[Tensor], step: int) -> float:
    """The median at a step, a curve that has ended being at its last value."""
    return median(float(curve[min(step, len(curve)) - 1]) for curve in curves)


def test_loss_curves_are_medians_by_position_and_keep_the_last_value() -> None:
    given = recovery()
    curves = observed(given)["curves"]
    assert curves["steps"] == [1, 2, 3, 5, 8, 13, 21, 30]
    assert curves["prompts"] == [3, 3, 0]
    assert curves["loss"][2] == []
    assert given.curves is not None
    for t in range(2):
        taken = [prompt[t] for prompt in given.curves]
        assert curves["loss"][t] == pytest.approx([at(taken, step) for step in curves["steps"]], rel=1e-3)


def test_ranks_are_medians_over_right_and_over_wrong_commits() -> None:
    given = recovery()
    ranks = observed(given, TRUTH)["ranks"]
    for kind in ("right", "wrong"):
        taken = [
            trajectory
            for i, prompt in enumerate(given.ranks or [])
            for t, trajectory in enumerate(prompt)
            if len(trajectory) and (TOKENS[i][t] == TRUTH[i][t]) == (kind == "right")
        ]
        assert ranks[kind]["count"] == len(taken) > 0
        assert ranks[kind]["median"] == pytest.approx([at(taken, step) for step in ranks["steps"]], rel=1e-3)


def test_failures_come_with_the_number_of_tokens_that_were_reached() -> None:
    failures = observed(recovery(), TRUTH, TEXTS.__getitem__)["failures"]
    assert failures == {
        "space-prefixed": 0, "punctuation": 2, "digits": 0, "continuation": 1, "other": 0,
        "tokens": {"space-prefixed": 2, "punctuation": 4, "digits": 1, "continuation": 1, "other": 0},
    }  # fmt: skip


def test_a_walk_that_was_stopped_is_observed_as_far_as_it_went() -> None:
    two = [[0.0], [0.0], []]
    ways = [[torch.ones(2)], [torch.ones(3)], []]
    stopped = recovery(tokens=[[1], [1], []], discrete_loss=two, residual=two, curves=ways, ranks=ways)
    seen = observed(stopped, TRUTH, TEXTS.__getitem__)
    assert seen["right"] == [False] * 3
    assert sum(seen["failures"]["tokens"].values()) == 2
    assert seen["ranks"]["wrong"] == {"median": [], "count": 0}


def test_what_is_not_known_is_not_there() -> None:
    always = {"cumulative_loss", "seconds_per_token", "detector"}
    assert observed(recovery()).keys() == always | {"curves"}
    assert observed(recovery(curves=None, ranks=None)).keys() == always
    assert observed(recovery(curves=None, ranks=None), TRUTH).keys() == always | {"right"}
    no_steps = [[torch.empty(0)] * len(prompt) for prompt in TRUTH]  # nothing needed a gradient
    assert observed(recovery(curves=no_steps, ranks=no_steps), TRUTH).keys() == always | {"right"}
    assert "auroc" not in observed(recovery())["detector"]


def test_json_gets_no_nan_and_no_infinity() -> None:
    broken = recovery(
        discrete_loss=[[math.nan, 1.0], [math.inf], [0.0]],
        residual=[[math.nan, 1.0], [math.inf], [0.0]],
        tokens=[[1, 2], [1], [2]],
        curves=[[torch.tensor([math.inf, 1.0])], [torch.tensor([math.inf])], []],
        ranks=None,
    )
    seen = observed(broken, [[1, 2], [1], [2]])
    assert json.loads(json.dumps(seen, allow_nan=False)) == seen
    assert seen["cumulative_loss"] == [[None, None], [None], [0.0]]
    assert seen["detector"]["score"] == [None, None, -45.0]
    assert seen["detector"]["flagged"] == [True, True, False]
    assert (seen["detector"]["recall"], seen["detector"]["auroc"]) == (None, None)  # all right: nothing to find


def test_wrong_tokens_are_in_doubt_and_counted_in_pairs() -> None:
    sure = [[0.9, 0.8, 0.9], [0.95, 0.2], [0.6, 0.7, 0.1]]
    detector = observed(recovery(probability=sure, confidence=[0.7, 0.2, 0.1]), TRUTH)["detector"]
    right, wrong = [0.9, 0.8, 0.9, 0.95, 0.6], [0.2, 0.7, 0.1]
    below = [w < r for w in wrong for r in right]
    assert detector["token_auroc"] == pytest.approx(sum(below) / len(below), abs=1e-3)
    assert detector["calibration"]["prompt"] == pytest.approx((0.3 + 0.2 + 0.1) / 3, abs=1e-3)


def test_the_noise_of_the_channel_can_be_told_to_the_detector() -> None:
    assert observed(recovery())["detector"]["first"] == [None, 1, 1]
    assert observed(recovery(), explained=0.6)["detector"]["first"] == [None, None, 1]


def test_an_attack_is_condensed_to_what_a_record_can_hold(trained: Trained) -> None:
    model, prompts = trained.cut("last"), trained.text[:400:8]
    states = [model.encoder(torch.tensor([prompt]))[0].detach() for prompt in prompts]
    result = SingleCommit(model, InnerLoop(steps=30), candidates=1).invert(states, prompts)
    seen = observed(result, prompts, trained.tokenizer.id_to_token)
    assert len(json.dumps(seen, allow_nan=False)) < 10_000
    assert seen["right"] == [tokens == prompt for tokens, prompt in zip(result.tokens, prompts, strict=True)]
    assert 0 < sum(seen["right"]) < len(prompts)
    assert seen["detector"]["auroc"] > 0.99
    assert seen["ranks"]["right"]["median"][-1] == 0 < seen["ranks"]["wrong"]["median"][-1]
