"""Attacks on text go through what the defence releases: a public rotation of the states hides nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.text.diagnostics import one_step_margin
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.probe import cached_first_states, fingerprint, first_states
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.released import as_released
from sweetspot.attacks.text.single_commit import SingleCommit
from sweetspot.attacks.text.sipit import Sipit
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.attacks.text.conftest import Rotation, Trained


def hybrid(model: SplitLanguageModel, text: list[list[int]]) -> Inverter:
    return Hybrid(model, **learned(model, text[:100]))


def by_gradient(model: SplitLanguageModel, text: list[list[int]]) -> Inverter:
    return Hybrid(model, proposals=1, loop=InnerLoop(steps=100), candidates=len(model.embeddings.weight))


def single_commit(model: SplitLanguageModel, text: list[list[int]]) -> Inverter:
    return SingleCommit(model, InnerLoop(steps=100), candidates=100)


def sipit(model: SplitLanguageModel, text: list[list[int]]) -> Inverter:
    return Sipit(model)


@pytest.mark.parametrize("policy", [hybrid, by_gradient, single_commit, sipit])
def test_a_public_rotation_hides_nothing(
    trained: Trained, leaked: Callable[..., list[Tensor]], policy: Callable[..., Inverter]
) -> None:
    defence, model, prompts = Rotation(64), trained.cut(1), [prompt[:4] for prompt in trained.prompts[:3]]
    sent = [state @ defence.matrix for state in leaked(model, prompts)]
    recovery = policy(as_released(model, Chain(defence)), trained.text).invert(sent)
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


def test_the_margin_is_of_what_is_released(trained: Trained) -> None:
    model, prompts = trained.cut(1), [trained.prompts[0][:3]]
    margin = one_step_margin(model, prompts)
    twice = one_step_margin(as_released(model, Chain(Rotation(64, stretch=2.0))), prompts)
    assert torch.allclose(twice.distance, 2 * margin.distance, rtol=1e-4)


def test_what_is_prepared_for_one_release_is_not_taken_for_another(trained: Trained, tmp_path: Path) -> None:
    model = trained.cut(1)
    views = [
        as_released(model, Chain(*each)) for each in ((), (Rotation(64),), (Rotation(64, 1),), (Rotation(64, 0, 2.0),))
    ]
    assert len({fingerprint(view) for view in views}) == 4, "the matrix is a buffer, the stretch a plain number"
    assert fingerprint(views[1]) == fingerprint(as_released(model, Chain(Rotation(64))))
    tables: list[Any] = [cached_first_states(view, tmp_path) for view in views]
    for view, table in zip(views, tables, strict=True):
        assert torch.equal(table, first_states(view))


def test_where_nothing_happens_on_release_the_model_is_itself(trained: Trained) -> None:
    model = trained.cut(1)
    assert as_released(model, Chain()) is model, "so that what was prepared before is found again"
