"""The gradient attack with weights and gradient on a second device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import sweetspot.attacks.gradients.components as components
import sweetspot.attacks.gradients.refinement as refinement
from sweetspot.attacks.gradients.activations import as_activation
from sweetspot.attacks.gradients.components import search_for
from sweetspot.attacks.gradients.deep import DeepWeights, chosen_deep_weights, deep_gradient, reconstruct_deep
from sweetspot.attacks.gradients.defences import clipped, noisy, pruned
from sweetspot.attacks.gradients.federated import Gradient
from sweetspot.attacks.gradients.least_squares import LOOK_EVERY, levenberg_marquardt
from sweetspot.attacks.gradients.polish import JointProblem
from sweetspot.attacks.gradients.reconstruct import reconstruct
from sweetspot.metrics.gradients import batch_score
from tests.attacks.gradients.conftest import Round, played
from tests.devices.second_device import SecondDevice, is_marked


@pytest.fixture
def second() -> Iterator[SecondDevice]:
    with SecondDevice() as device:
        yield device


def on(second: SecondDevice, which: str, dim: int = 6, width: int = 120) -> Round:
    """A small round whose weights, gradient and samples lie on the second device."""
    play = played(which, batch=2, dim=dim, width=width)
    x, y = play.x.to(second.device), play.y.to(second.device)
    weights = replace(play.weights, w=play.weights.w.to(second.device), a=play.weights.a.to(second.device))
    gradient = Gradient(play.gradient.a.to(second.device), play.gradient.w.to(second.device))
    return Round(x, y, weights, gradient, play.activation)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "joint diagonalisation of the third moment": ("square-cubic", {}),
    "no polish": ("tanh", {"polish": False}),
    "moments of the other part": ("sigmoid", {"source": "a", "subspace": "moment"}),
    "a step": ("relu", {}),
    "a fourth moment": ("softplus", {"subspace": "moment"}),
    "labels and loss": ("gelu", {"labels": [-1.0, 1.0], "loss": None}),
    "counted": ("silu", {"batch": None}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_batch_comes_back_on_its_device(case: str, second: SecondDevice) -> None:
    which, options = CASES[case]
    play = on(second, which)
    found = reconstruct(play.gradient, play.weights, play.activation, **{"batch": 2, **options})
    assert all(map(is_marked, (found.x, found.y, found.r, found.tensor.x)))
    score = batch_score(found.x, found.y, play.x, play.y, up_to_sign=play.activation.is_odd)
    assert not options.get("polish", True) or found.verdict == "exact"
    assert found.verdict != "exact" or score.error.max().item() < 1e-6


@pytest.mark.parametrize(
    ("which", "defence"),
    [
        ("tanh", "noise"),
        ("relu", "clipping"),
        ("relu", "pruning"),
        pytest.param("tanh", "pruning", marks=pytest.mark.slow),
        pytest.param("relu", "noise", marks=pytest.mark.slow),
    ],
)
def test_a_defended_gradient(which: str, defence: str, second: SecondDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "ITERATIONS", 3)
    monkeypatch.setattr(refinement, "SWEEPS", 2)
    monkeypatch.setattr(components, "ROUNDS", 1)
    play = on(second, which)
    leave = {
        "noise": lambda g: noisy(g, 0.05),
        "clipping": lambda g: clipped(g, 0.5),
        "pruning": lambda g: pruned(g, 0.3),
    }
    sent = leave[defence](play.gradient)
    assert is_marked(sent.a)
    found = reconstruct(sent, play.weights, play.activation, batch=2, labels=[-1.0, 1.0])
    assert is_marked(found.x)


def test_a_deep_network(second: SecondDevice) -> None:
    play, activation = played("relu", batch=2, dim=6, width=120), as_activation("relu")
    deep = chosen_deep_weights(6, 120, 3, activation, seed=1)
    sent = deep_gradient(play.x, play.y, deep, activation)

    def moved(weights: DeepWeights) -> DeepWeights:
        inner = tuple(each.to(second.device) for each in weights.inner)
        return replace(weights, inner=inner, last=weights.last.to(second.device), a=weights.a.to(second.device))

    found = reconstruct_deep(moved(sent), moved(deep), activation, batch=2)
    assert is_marked(found.x)


def test_no_step_of_the_polish_waits(second: SecondDevice) -> None:
    play = on(second, "tanh")
    observed, start = play.observed, play.x + 0.1
    joint, search = JointProblem(observed, play.activation, 2), search_for(observed, play.activation)
    problems = ((joint.system, joint.packed(start, play.y)[None]), (search.system, start))
    for system, at in problems:
        found = []
        for steps in (2, LOOK_EVERY - 1):
            with second.watched() as waits:
                levenberg_marquardt(system, at, steps)
            found.append(Counter(waits))
        assert found[0] == found[1] == Counter()


def test_problems_are_solved_alike_however_often_they_are_looked_at(second: SecondDevice) -> None:
    """On a device that is looked at every few steps a problem that is done stays as it is."""
    play = played("tanh", batch=2, dim=6, width=120)
    starts = torch.stack([play.x[0] + scale * torch.ones_like(play.x[0]) for scale in (1e-3, 0.1, 0.5)])
    on_cpu = levenberg_marquardt(search_for(play.observed, play.activation).system, starts, 25)
    there = on(second, "tanh")
    search = search_for(there.observed, there.activation)
    elsewhere = levenberg_marquardt(search.system, starts.to(second.device), 25)
    for here, other in zip(on_cpu, elsewhere, strict=True):
        assert torch.allclose(here, other.cpu(), atol=1e-9)
