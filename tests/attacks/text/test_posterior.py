"""Posterior: equal to brute force over all texts, the same alone and among others, and honest about its doubts."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.distributions import Laplace, Normal
from transformers import GPT2Config, GPT2LMHeadModel

from sweetspot.attacks.text import posterior
from sweetspot.attacks.text.hybrid import learned
from sweetspot.attacks.text.posterior import (
    SMOOTHING,
    Beams,
    Posterior,
    bayes_given_prefix,
    blind_text,
    learned_behind_noise,
)
from sweetspot.attacks.text.probe import first_states
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.typical import Typical, typical_states
from sweetspot.errors import UserError
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.attacks.text.conftest import Trained

Leaked = Callable[..., list[Tensor]]
TOKENS = 7  # of a vocabulary whose texts can all be tried


def of_a_few_tokens(seed: int) -> SplitLanguageModel:
    """A model with a prior that is far from flat."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=TOKENS, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.wte.weight.mul_(20)
    return SplitLanguageModel(model, 1).eval()


@pytest.fixture(scope="module")
def tiny() -> SplitLanguageModel:
    return of_a_few_tokens(0)


def noisy(states: list[Tensor], noise: float, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [state + noise * torch.randn(state.shape, generator=generator) for state in states]


@dataclass
class Exact:
    """The posterior over all texts of one prompt, by a plain loop."""

    text: list[int]
    confidence: float
    marginals: list[float]


def distribution(noise: float, power: float) -> Normal | Laplace:
    """Noise of this standard deviation on one entry."""
    return Laplace(0.0, noise / math.sqrt(2)) if power == 1 else Normal(0.0, noise)


@functools.cache
def alone(model: SplitLanguageModel, text: tuple[int, ...]) -> tuple[Tensor, float]:
    """The states of one text, and the log-probability of all its tokens but the first."""
    with torch.no_grad():
        z = model.encoder(torch.tensor([text]))[0]
        following = model.head(z[None])[0].double().log_softmax(dim=1)
    return z, sum(float(following[t - 1, text[t]]) for t in range(1, len(text)))


def every_text(
    model: SplitLanguageModel,
    state: Tensor,
    noise: float,
    first: list[float],
    power: float = 2.0,
    expecting: SplitLanguageModel | None = None,
) -> Exact:
    """What trying every text there is comes to, one after the other."""
    logs = {}
    for text in itertools.product(range(TOKENS), repeat=len(state)):
        z, log = alone(model, text)[0], alone(expecting or model, text)[1]
        log += math.log(first[text[0]])
        logs[text] = log + float(distribution(noise, power).log_prob((z - state).double()).sum())
    most = max(logs.values())
    whole = sum(math.exp(each - most) for each in logs.values())
    shares = {text: math.exp(each - most) / whole for text, each in logs.items()}
    best = max(shares, key=lambda text: shares[text])
    marginals = [sum(share for text, share in shares.items() if text[t] == best[t]) for t in range(len(best))]
    return Exact(list(best), shares[best], marginals)


@pytest.mark.parametrize("noise", [0.5, 2.0, 8.0])
@pytest.mark.parametrize(
    ("with_table", "power", "other"), [(False, 2.0, False), (True, 2.0, False), (False, 1.0, False), (True, 2.0, True)]
)
def test_a_wide_beam_equals_trying_every_text(
    tiny: SplitLanguageModel,
    leaked: Leaked,
    noise: float,
    with_table: bool,
    power: float,
    other: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(posterior, "NEGLIGIBLE", math.inf)
    monkeypatch.setattr(posterior, "MISSED", -1.0)
    prompts = [[1, 5, 2], [6, 6, 0], [3, 4], [0, 1, 2]]
    states, counts = noisy(leaked(tiny, prompts), noise), torch.tensor([3.0, 0.0, 1.0, 0.0, 0.0, 9.0, 2.0])
    table = first_states(tiny) if with_table else None
    expecting = of_a_few_tokens(1) if other else None
    inverter = Posterior(tiny, noise, power, expecting, table=table, first=counts, beam=TOKENS**3, at_once=50)
    found = inverter.invert(states)
    first = [(count + SMOOTHING) / (15.0 + SMOOTHING * TOKENS) for count in counts.tolist()]
    for row, state in enumerate(states):
        exact = every_text(tiny, state, noise, first, power, expecting)
        assert found.tokens[row] == exact.text
        assert found.confidence is not None
        assert found.probability is not None
        assert found.confidence[row] == pytest.approx(exact.confidence, abs=1e-4)
        assert found.probability[row] == pytest.approx(exact.marginals, abs=1e-4)


def test_what_a_narrow_beam_drops_counts_against_what_it_keeps(tiny: SplitLanguageModel, leaked: Leaked) -> None:
    states = noisy(leaked(tiny, [[1, 5, 2], [6, 6, 0], [0, 1, 2]]), 8.0)
    for state in states:
        exact = every_text(tiny, state, 8.0, [1 / TOKENS] * TOKENS)
        greedy = Posterior(tiny, 8.0, beam=1).invert([state])
        assert greedy.confidence is not None
        assert greedy.confidence[0] < 2 * exact.confidence, "one text is left, which does not make it sure"


def same(together: Recovery, alone: list[Recovery]) -> None:
    assert together.tokens == [each.tokens[0] for each in alone]
    for one, other in zip(together.probability or [], alone, strict=True):
        assert one == pytest.approx((other.probability or [])[0], abs=1e-4)
    assert together.confidence == pytest.approx([(each.confidence or [])[0] for each in alone], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_prompts_of_any_length_together_equal_one_at_a_time(
    trained: Trained, leaked: Leaked, beam: int, noise: float
) -> None:
    model = trained.cut("last")
    prompts = [prompt[:length] for prompt, length in zip(trained.prompts, (3, 8, 1, 5, 8), strict=False)]
    states = noisy(leaked(model, prompts), noise)
    inverter = Posterior(model, noise, **learned(model, trained.text[:200], noise=noise), beam=beam)
    together = inverter.invert(states)
    assert [len(tokens) for tokens in together.tokens] == [3, 8, 1, 5, 8]
    same(together, [inverter.invert([each]) for each in states])


def test_the_best_behind_the_true_prefix_equals_a_plain_loop(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut("last"), trained.prompts[:3]
    states = torch.stack(noisy(leaked(model, prompts), 2.0))
    inverter = Posterior(model, 2.0)
    expected = []
    for prompt, state in zip(prompts, states, strict=True):
        row = []
        for t in range(len(prompt)):
            with torch.no_grad():
                z = model.encoder(torch.tensor([[*prompt[:t], token] for token in range(300)]))
                prior = torch.zeros(300) if t == 0 else model.head(z[:1, :t])[0, -1].log_softmax(dim=0)
            row.append(int((prior - (z[:, t] - state[t]).square().sum(dim=1) / 8).argmax()) == prompt[t])
        expected.append(row)
    (found,) = bayes_given_prefix([inverter], [states], torch.tensor(prompts))
    assert found.tolist() == expected
    assert 0 < found.float().mean() < 1


def test_nobody_behind_the_true_prefix_beats_the_whole_vocabulary(trained: Trained, leaked: Leaked) -> None:
    model, noise = trained.cut("last"), 2.0
    prompts = trained.text[:60]
    states, truth = torch.stack(noisy(leaked(model, prompts), noise)), torch.tensor(prompts)
    few, nearest = Posterior(model, noise, candidates=20, beam=1), Posterior(model, noise)
    (best,) = bayes_given_prefix([nearest], [states], truth)
    right = []
    for t in range(truth.shape[1]):  # an attack that is told the text before each position
        beams = Beams(model, len(truth), states.device)
        for before in range(t):
            beams.advance(torch.ones(len(truth), dtype=torch.bool))
            beams.go_on(beams.prompt, truth[:, before], beams.score, beams.greedy)
        beams.advance(torch.ones(len(truth), dtype=torch.bool))
        few.extend(beams, states[:, t])
        right.append(beams.tokens[:, -1] == truth[:, t])
    told, greedy = torch.stack(right, dim=1).float().mean(), few.invert(states).tokens
    alone = (torch.tensor(greedy) == truth).float().mean()
    spread = 3 * (0.25 / truth.numel()) ** 0.5
    assert best.float().mean() >= told - spread
    assert best.float().mean() > alone


def test_several_noises_at_once_equal_one_at_a_time(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut(1), trained.prompts[:4]
    states = leaked(model, prompts)
    inverters = [Posterior(model, noise) for noise in (0.5, 3.0)]
    seen = [torch.stack(noisy(states, noise)) for noise in (0.5, 3.0)]
    together = bayes_given_prefix(inverters, seen, torch.tensor(prompts))
    for found, inverter, z in zip(together, inverters, seen, strict=True):
        assert torch.equal(found, bayes_given_prefix([inverter], [z], torch.tensor(prompts))[0])
    assert together[0].sum() > together[1].sum()


def test_a_guess_is_the_most_probable_text(tiny: SplitLanguageModel) -> None:
    guess = blind_text(tiny, torch.tensor([4, 2, 4, 1]), length=3, beam=TOKENS**2)
    scores = {}
    for rest in itertools.product(range(TOKENS), repeat=2):
        with torch.no_grad():
            following = tiny(torch.tensor([[4, *rest]]))[0].log_softmax(dim=1)
        scores[rest] = float(following[0, rest[0]] + following[1, rest[1]])
    assert guess == [4, *max(scores, key=lambda rest: scores[rest])]


def test_typical_states_name_tokens_through_noise(trained: Trained, leaked: Leaked) -> None:
    model, noise = trained.cut("last"), 0.5
    typical = Typical(typical_states(model, trained.text))
    states = torch.cat([each[1:] for each in noisy(leaked(model, trained.prompts), noise)])
    tokens = torch.tensor([token for prompt in trained.prompts for token in prompt[1:]])
    likelihood = typical.log_likelihood(states, noise)
    spread = typical.covariance.double() + noise**2 * torch.eye(64, dtype=torch.float64)
    apart = (states[:, None] - typical.mean).double()  # the same density by its formula, (N, V, k)
    plain = -0.5 * torch.einsum("nvk,kl,nvl->nv", apart, torch.linalg.inv(spread), apart)
    gap = likelihood - plain
    assert torch.allclose(gap - gap.mean(dim=1, keepdim=True), torch.zeros_like(gap), atol=1e-2)
    hit = (likelihood.topk(16, dim=1).indices == tokens[:, None]).any(dim=1).float().mean()
    assert hit > 0.8  # by chance 16 of 300


def score_of(model: SplitLanguageModel, tokens: list[int], state: Tensor, noise: float) -> float:
    """log p(text, states) up to a constant."""
    with torch.no_grad():
        z = model.encoder(torch.tensor([tokens]))[0]
        following = model.head(z[None])[0].log_softmax(dim=1)
    prior = sum(float(following[t - 1, tokens[t]]) for t in range(1, len(tokens)))
    return prior - float((z - state).square().sum()) / (2 * noise**2)


def test_a_beam_finds_texts_that_are_no_worse_and_some_that_are_better(trained: Trained, leaked: Leaked) -> None:
    model, noise = trained.cut("last"), 2.5
    states = noisy(leaked(model, trained.prompts), noise)
    prepared = learned(model, trained.text[:200], noise=noise)
    wide, greedy = (Posterior(model, noise, **prepared, beam=beam).invert(states) for beam in (8, 1))
    scores = [
        [score_of(model, tokens, state, noise) for tokens, state in zip(each.tokens, states, strict=True)]
        for each in (wide, greedy)
    ]
    assert all(ours >= theirs - 1e-3 for ours, theirs in zip(*scores, strict=True))
    assert sum(scores[0]) > sum(scores[1]) + 1


def test_ctrl_c_keeps_what_is_done(trained: Trained, leaked: Leaked, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained.cut("last")
    prompts = [trained.prompts[0], trained.prompts[1][:2], trained.prompts[2]]
    states, advance = noisy(leaked(model, prompts), 0.1), Beams.advance
    inverter = Posterior(model, 0.1, table=first_states(model))
    whole = inverter.invert(states)

    def stopped(beams: Beams, going: Tensor) -> None:
        if beams.length == 4:
            raise KeyboardInterrupt
        advance(beams, going)

    monkeypatch.setattr(Beams, "advance", stopped)
    half = inverter.invert(states)
    assert half.tokens == [tokens[:4] for tokens in whole.tokens]
    assert [len(each) for each in half.probability or []] == [4, 2, 4]
    assert len(half.confidence or []) == 3


def test_little_noise_is_survived_and_called_unverified(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = noisy(leaked(model, trained.prompts), 0.02)
    recovery = Posterior(model, 0.02, **learned(model, trained.text, noise=0.02)).invert(states)
    assert recovery.tokens == trained.prompts  # the margin is far wider than this noise
    assert recovery.verified_share == 0.0
    assert min(recovery.confidence or [0.0]) > 0.99
    tried = sum(map(sum, recovery.tried)) / sum(map(len, recovery.tried))
    assert tried < 100  # known noise ends a search that would try all 300


def test_a_large_vocabulary_is_read_behind_noise_by_probes_of_its_own(
    large_vocabulary: SplitLanguageModel, leaked: Leaked
) -> None:
    model, noise = large_vocabulary, 0.01
    text = torch.randint(20_000, (300, 16), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [[19_999, 3, 777, 12_345], [5, 10_000]]
    prepared = learned_behind_noise(model, text, torch.tensor([1]), noise, lengths=[4, 2])
    assert set(prepared) == {"probe", "opening", "first"}
    inverter, states = Posterior(model, noise, **prepared), noisy(leaked(model, prompts), noise)
    for position, probe in ((0, prepared["opening"]), (1, prepared["probe"])):
        proposed = inverter.proposed(states[0], position)
        assert isinstance(proposed, Tensor)
        assert torch.equal(proposed, probe(states[0], inverter.directions))
    assert inverter.invert(states).tokens == prompts


def test_a_drowned_state_still_gives_a_text(trained: Trained) -> None:
    model = trained.cut("last")
    torch.manual_seed(0)
    recovery = Posterior(model, 0.1, candidates=40, beam=1).invert(10 * torch.randn(2, 5, 64))
    assert [len(tokens) for tokens in recovery.tokens] == [5, 5]
    assert recovery.verified_share == 0.0
    assert max(map(max, recovery.tried)) == 40


@pytest.mark.parametrize(
    ("options", "says"),
    [({"beam": 0}, "--beam must be at least 1; got 0"), ({"noise": 0.0}, "needs known noise")],
)
def test_wrong_settings_are_refused(tiny: SplitLanguageModel, options: dict[str, float], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Posterior(tiny, **{"noise": 1.0, **options})  # type: ignore[arg-type]
