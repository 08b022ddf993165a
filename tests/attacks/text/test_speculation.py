"""Guessing whole texts at once: what comes out is what a walk without guesses gives, however bad the guesses are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sweetspot.attacks.text import preparation
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.inverter import StepwiseInverter
from sweetspot.attacks.text.preparation import LEAST_OWN, OWN_PER_TOKEN, Plan, share_of
from sweetspot.attacks.text.probe import train_opening_probe, train_probe
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.texts import Texts
from sweetspot.attacks.text.verification import TOLERANCE
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.attacks.text.conftest import Trained

Leaked = Callable[..., list[Tensor]]
RAGGED = (3, 8, 1, 5, 7)


class Walking(Hybrid):
    """Hybrid without guesses: position by position, as the other policies go."""

    walk = StepwiseInverter.walk


@pytest.mark.parametrize("cut", [0, 1, "last"])
def test_guessing_gives_what_the_walk_gives(trained: Trained, leaked: Leaked, cut: int | str) -> None:
    model = trained.cut(cut)
    prompts = [prompt[:length] for prompt, length in zip(trained.prompts, RAGGED, strict=False)]
    states, prepared = leaked(model, prompts), learned(model, trained.text[:100])
    guessed, walked = (kind(model, **prepared).invert(states) for kind in (Hybrid, Walking))
    assert guessed.tokens == walked.tokens == prompts
    assert guessed.verified == walked.verified
    assert guessed.verified_share == 1.0
    for ours, theirs in zip(guessed.residual, walked.residual, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert sum(map(sum, guessed.tried)) < sum(map(sum, walked.tried))


@pytest.mark.parametrize("guess", ["always wrong", "wrong here and there"])
def test_bad_guesses_cost_time_and_nothing_else(
    trained: Trained, leaked: Leaked, guess: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained.cut("last")
    prompts = [prompt[:length] for prompt, length in zip(trained.prompts, RAGGED, strict=False)]
    hybrid = Hybrid(model, **learned(model, trained.text[:100]))

    def bad(padded: Tensor) -> Tensor:
        truth = torch.nn.utils.rnn.pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True)
        wrong = torch.ones_like(truth, dtype=torch.bool)
        if guess == "wrong here and there":
            wrong = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0)) < 0.3
        return torch.where(wrong, (truth + 1) % 300, truth)

    monkeypatch.setattr(hybrid, "guesses", bad)
    recovery = hybrid.invert(leaked(model, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


def test_a_single_pass_recovers_what_is_guessed_right(
    trained: Trained, leaked: Leaked, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompts = trained.cut("last"), trained.prompts
    hybrid = Hybrid(model)
    fed: list[int] = []
    monkeypatch.setattr(hybrid, "guesses", lambda padded: torch.tensor(prompts))
    states = leaked(model, prompts)
    feed = Texts.feed

    def counted(self: Texts, rows: Tensor) -> None:
        fed.append(len(rows))
        feed(self, rows)

    monkeypatch.setattr(Texts, "feed", counted)
    assert hybrid.invert(states).tokens == prompts
    assert fed == [len(prompts)]


def test_keys_and_values_of_wrong_guesses_are_replaced(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut("last"), torch.tensor(trained.prompts[:2])
    states = torch.stack(leaked(model, prompts.tolist()))
    wrong = prompts.clone()
    wrong[0, 2], wrong[1, 5] = (prompts[0, 2] + 1) % 300, (prompts[1, 5] + 1) % 300
    texts = Texts(model, wrong, states, torch.tensor([8, 8]), TOLERANCE, at_once=1024)
    texts.advance(texts.open)
    assert texts.known.tolist() == [2, 5]
    assert texts.stuck.tolist() == [0, 1]
    behind = texts.behind(texts.stuck)
    rivals = torch.stack([prompts[[0, 1], [2, 5]], wrong[[0, 1], [2, 5]]], dim=1)
    expected = torch.stack([states[0, 2], states[1, 5]])
    assert torch.allclose(behind.states_of_rivals(rivals, torch.arange(2))[:, 0], expected, atol=1e-4)
    with_vectors = behind.states_of_embeddings(model.embeddings(rivals[:, 1]))
    assert torch.allclose(with_vectors, behind.states_of(rivals[:, 1]), atol=1e-4)
    texts.commit(texts.stuck, rivals[:, 0], torch.zeros(2))
    while len(texts.open):
        texts.advance(texts.open)
        assert len(texts.stuck) == 0
    assert torch.equal(texts.tokens, prompts)


def test_long_texts_are_guessed_a_window_at_a_time(
    trained: Trained, leaked: Leaked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.attacks.text.texts.AHEAD", 3)
    model = trained.cut("last")
    prompts = [[token for prompt in trained.prompts[:4] for token in prompt][:30], trained.prompts[5]]
    recovery = Hybrid(model, **learned(model, trained.text[:100]), at_once=7).invert(leaked(model, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


def test_ctrl_c_keeps_what_is_verified(trained: Trained, leaked: Leaked, monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = trained.cut("last"), trained.prompts[:2]
    hybrid = Hybrid(model)
    guesses = torch.tensor(prompts)
    guesses[0, 3] = (guesses[0, 3] + 1) % 300
    monkeypatch.setattr(hybrid, "guesses", lambda padded: guesses)

    def interrupted(position: object, trace: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(hybrid, "recover", interrupted)
    assert hybrid.invert(leaked(model, prompts)).tokens == [prompts[0][:3], prompts[1]]


def test_a_large_vocabulary_needs_no_table(large_vocabulary: SplitLanguageModel, leaked: Leaked) -> None:
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(20_000, (300, 16), generator=generator).tolist()
    prompts = [[19_999, 3, 777, 12_345], [5, 10_000]]
    prepared = learned(large_vocabulary, text, lengths=[4, 2])
    assert set(prepared) == {"probe", "opening"}
    recovery = Hybrid(large_vocabulary, **prepared).invert(leaked(large_vocabulary, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0
    assert max(map(max, recovery.tried)) < 2000  # a tenth of the vocabulary


def test_nothing_prepared_is_exact_too(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut("last"), trained.prompts[:3]
    assert learned(model, trained.text, prepare="none") == {}
    recovery = Hybrid(model, loop=InnerLoop(steps=20)).invert(leaked(model, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


def test_the_preparation_follows_the_job(large_vocabulary: SplitLanguageModel, trained: Trained) -> None:
    text = [[1] * 10] * 2000  # 20,000 tokens
    few, more, any_number = (Plan.of(large_vocabulary, text, lengths) for lengths in ([10], [100, 100], None))
    assert [sum(map(len, plan.sequences)) for plan in (few, more)] == [LEAST_OWN, 200 * OWN_PER_TOKEN]
    assert (few.table, few.opening) == (False, True)
    assert (any_number.sequences, any_number.table, any_number.opening) == (text, False, True)
    assert Plan.of(large_vocabulary, text, [10], "full") == Plan(text, False, True, 10, 20_000)
    assert Plan.of(trained.cut(1), text, [10]).table  # 300 states are no matter
    with pytest.raises(UserError, match="--prepare must be one of auto, full, none; got much"):
        Plan.of(large_vocabulary, text, [10], "much")


def test_a_share_of_text_is_taken_from_all_over_it() -> None:
    assert share_of([[0], [1], [2], [3], [4], [5]], 3) == [[0], [2], [4]]
    assert share_of([[0], [1]], 5) == [[0], [1]]


def test_what_is_prepared_is_said_with_a_way_out(
    large_vocabulary: SplitLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "seconds_per_token", lambda model, sequences: 0.01)
    plan = Plan.of(large_vocabulary, [[1] * 10] * 2000, [9])
    assert plan.said(large_vocabulary) == (
        "preparing for 9 tokens to recover: a probe on 4,000 tokens of own text and the first positions of 4,096 "
        "tokens, about 1 min 48 s, once per model and layer; --prepare none does without, and tries more"
    )
    monkeypatch.setattr(preparation, "seconds_per_token", lambda model, sequences: 1e-5)
    assert plan.said(large_vocabulary) is None


def test_what_is_there_already_is_taken_for_a_small_job(trained: Trained, tmp_path: Path) -> None:
    model, text = trained.cut(1), trained.text
    assert sum(map(len, text)) > LEAST_OWN
    full = learned(model, text, tmp_path)
    held = set(tmp_path.iterdir())
    small = learned(model, text, tmp_path, lengths=[3])
    assert set(tmp_path.iterdir()) == held
    assert torch.equal(small["probe"].linear.weight, full["probe"].linear.weight)


def test_the_opening_probe_names_tokens_that_it_never_saw(
    large_vocabulary: SplitLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = torch.randperm(20_000, generator=torch.Generator().manual_seed(0))[:4096]
    others = torch.tensor(sorted(set(range(200)) - set(seen.tolist())))
    hybrid = Hybrid(large_vocabulary, opening=train_opening_probe(large_vocabulary))
    with torch.no_grad():
        states = large_vocabulary.encoder(others[:, None])[:, 0]
    first = hybrid.scores(states, None).argmax(dim=1)
    assert (first == others).float().mean() > 0.9  # by chance 1 of 20,000


def test_sampled_training_ranks_as_the_whole_vocabulary_does(
    trained: Trained, leaked: Leaked, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained.cut("last")
    states = torch.cat([each[1:] for each in leaked(model, trained.prompts)])
    tokens = torch.tensor([prompt[1:] for prompt in trained.prompts]).flatten()
    directions = Hybrid(model).directions

    def hits() -> float:
        scores = train_probe(model, trained.text)(states, directions)
        return float((scores.topk(4, dim=1).indices == tokens[:, None]).any(dim=1).float().mean())

    whole = hits()
    monkeypatch.setattr("sweetspot.attacks.text.probe.SAMPLED", 50)
    assert hits() > whole - 0.1
