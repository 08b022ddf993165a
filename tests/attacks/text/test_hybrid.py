"""Hybrid: exact on noise-free states at any cut, honest about noise, and what it prepares survives on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sweetspot.attacks.text import probe as probe_module
from sweetspot.attacks.text.hybrid import Hybrid
from sweetspot.attacks.text.probe import (
    cached_first_states,
    cached_probe,
    directions_of,
    fingerprint,
    first_states,
    states_and_tokens,
    train_probe,
)
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.attacks.text.conftest import Trained

Leaked = Callable[..., list[Tensor]]


@pytest.mark.parametrize("cut", [0, 1, "last", "final"])
def test_exact_and_verified_at_every_cut(trained: Trained, leaked: Leaked, cut: int | str) -> None:
    model = trained.cut(cut)
    recovery = Hybrid.prepared(model, trained.text).invert(leaked(model, trained.prompts))
    assert recovery.tokens == trained.prompts
    assert recovery.verified_share == 1.0
    assert max(map(max, recovery.residual)) < 1e-5


@pytest.mark.parametrize("cut", [1, "last", "final"])
def test_any_causal_model(random_model: PreTrainedModel, leaked: Leaked, cut: int | str) -> None:
    model = SplitLanguageModel(random_model, cut)
    prompts = [[3, 199, 0, 7], [5, 5], list(range(16))]
    recovery = Hybrid(model, table=first_states(model)).invert(leaked(model, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


@pytest.mark.parametrize("steps", [0, 40])
def test_what_proposals_miss_gradients_or_the_rest_of_the_vocabulary_find(
    trained: Trained, leaked: Leaked, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.attacks.text.hybrid.NEAREST", 5)
    model = trained.cut("last")
    recovery = Hybrid(model, proposals=1, loop=InnerLoop(steps=steps)).invert(leaked(model, trained.prompts[:4]))
    assert recovery.tokens == trained.prompts[:4]
    assert recovery.verified_share == 1.0
    assert max(map(max, recovery.steps)) == steps
    assert max(map(max, recovery.tried)) > 6  # neither the proposal nor the proxy found every token


def test_all_at_once_equals_one_at_a_time(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    prompts = [prompt[:length] for prompt, length in zip(trained.prompts, (3, 8, 1, 5), strict=False)]
    states = leaked(model, prompts)
    hybrid = Hybrid.prepared(model, trained.text, proposals=2, loop=InnerLoop(steps=20))
    together, alone = hybrid.invert(states), [hybrid.invert([each]) for each in states]
    assert together.tokens == [each.tokens[0] for each in alone] == prompts
    assert together.steps == [each.steps[0] for each in alone]


def test_the_prior_ranks_the_next_token_as_the_model_does(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut(1), [trained.prompts[0], trained.prompts[1][:4]]
    hybrid = Hybrid(model)
    hybrid.look_over(leaked(model, prompts))
    assert hybrid.foreseen is not None
    for row, prompt in enumerate(prompts):  # the second is padded, which must not be seen
        with torch.no_grad():
            expected = trained.model(torch.tensor([prompt])).logits[0]
        assert torch.allclose(model.head.lm_head(hybrid.foreseen[row, : len(prompt)]), expected, atol=1e-4)


def test_unknown_noise_is_survived_and_called_unverified(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    torch.manual_seed(0)
    noisy = [state + 0.02 * torch.randn_like(state) for state in leaked(model, trained.prompts)]
    recovery = Hybrid.prepared(model, trained.text).invert(noisy)
    assert recovery.tokens == trained.prompts  # the margin is far wider than this noise
    assert recovery.verified_share == 0.0


def test_a_drowned_state_still_gives_a_text(trained: Trained) -> None:
    model = trained.cut("last")
    torch.manual_seed(0)
    recovery = Hybrid.prepared(model, trained.text, candidates=40).invert(10 * torch.randn(2, 5, 64))
    assert [len(tokens) for tokens in recovery.tokens] == [5, 5]
    assert recovery.verified_share == 0.0
    assert max(map(max, recovery.tried)) == 40


def test_the_smallest_loss_wins_among_all_that_were_tried(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    torch.manual_seed(0)
    noisy = [state + torch.randn_like(state) for state in leaked(model, [[token] for token in range(0, 300, 30)])]
    recovery = Hybrid(model, table=first_states(model)).invert(noisy)
    nearest = torch.cdist(torch.cat(noisy), first_states(model)).argmin(dim=1)
    assert [tokens[0] for tokens in recovery.tokens] == nearest.tolist()


def test_the_truth_decides_nothing(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut("last"), trained.prompts[:3]
    states = leaked(model, prompts)
    hybrid = Hybrid(model, proposals=2, loop=InnerLoop(steps=15))
    without, lied_to = hybrid.invert(states), hybrid.invert(states, truth=[[1] * 8] * 3)
    assert (without.tokens, without.steps, without.tried) == (lied_to.tokens, lied_to.steps, lied_to.tried)
    assert lied_to.ranks is not None
    assert max(len(each) for prompt in lied_to.ranks for each in prompt) == 15


def test_the_probe_learns_to_name_tokens(trained: Trained) -> None:
    model = trained.cut("last")
    probe = train_probe(model, trained.text)
    states, tokens = states_and_tokens(model, [torch.tensor(prompt) for prompt in trained.prompts])
    scores = probe(states, directions_of(Hybrid(model).vocabulary))
    hit = (scores.topk(16, dim=1).indices == tokens[:, None]).any(dim=1).float().mean()
    assert hit > 0.8  # by chance 16 of 300


def test_what_is_prepared_is_read_back_and_never_for_another_model(trained: Trained, tmp_path: Path) -> None:
    model, other = trained.cut("last"), trained.cut(1)
    made = cached_probe(model, trained.text[:50], tmp_path), cached_first_states(model, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    read = cached_probe(model, trained.text[:50], tmp_path), cached_first_states(model, tmp_path)
    assert torch.equal(made[0].linear.weight, read[0].linear.weight)
    assert torch.equal(made[0].spread, read[0].spread)
    assert torch.equal(made[1], read[1])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert fingerprint(model) != fingerprint(other)
    cached_first_states(other, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_broken_cache_is_made_again_and_runs_nothing(trained: Trained, tmp_path: Path) -> None:
    model = trained.cut(1)
    table = cached_first_states(model, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path / "ran") + b"'\ntR.")
    assert torch.equal(cached_first_states(model, tmp_path), table)
    assert not (tmp_path / "ran").exists()


def test_the_same_seed_trains_the_same_probe(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "EPOCHS", 1)
    model = trained.cut(1)
    one, same, other = (train_probe(model, trained.text[:40], seed) for seed in (1, 1, 2))
    assert torch.equal(one.linear.weight, same.linear.weight)
    assert not torch.equal(one.linear.weight, other.linear.weight)


def test_a_probe_without_text_is_refused(trained: Trained) -> None:
    with pytest.raises(UserError, match="at least 2 tokens"):
        train_probe(trained.cut(1), [[1], []])
