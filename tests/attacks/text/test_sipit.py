"""SIPIT: the same tokens after the same number of steps as the policy written down plainly, without any cache."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sweetspot.attacks.text.sipit import Sipit
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.attacks.text.conftest import Trained

Leaked = Callable[..., list[Tensor]]


def start_token(h: Tensor, vocabulary: int) -> int:
    """Uniform at random, from the same source as the policy's."""
    generator = torch.Generator().manual_seed(zlib.crc32(h.numpy().tobytes(), 0))
    return int(torch.randint(vocabulary, (1,), generator=generator))


def transcription(
    model: SplitLanguageModel, states: Tensor, repeats: int | None = None
) -> tuple[list[int], list[int], list[bool]]:
    """The policy for one prompt, the whole prefix computed at every step, distances and bans as they are written."""
    embeddings = model.embeddings.weight.detach()
    count = len(embeddings)
    tokens: list[int] = []
    steps: list[int] = []
    verified: list[bool] = []
    for t, h in enumerate(states):
        every = 50 if t else 50 * (1 + count // 25_000)
        candidate = start_token(h, count)
        e = embeddings[candidate].clone()
        tried: list[int] = []
        losses: list[float] = []
        accepted = False
        for step in range(1, (repeats or count) + 1):
            e.requires_grad_(True)
            loss = (model.encoder(embeddings=torch.cat([embeddings[tokens], e[None]])[None])[0, -1] - h).square().mean()
            (gradient,) = torch.autograd.grad(loss, e)
            if gradient.norm() > 1:
                gradient = gradient / gradient.norm()
            with torch.no_grad():
                state = model.encoder(torch.tensor([[*tokens, candidate]]))[0, -1]
            tried.append(candidate)
            losses.append(float((state - h).square().mean()))
            accepted = torch.allclose(state, h, rtol=1e-5, atol=1e-5)
            if accepted:
                break
            e = e.detach() - 1.0 * gradient
            distances = (embeddings - e).norm(dim=1)
            distances[tried] = torch.inf
            candidate = int(distances.argmin())
            if step % every == 0:
                e = embeddings[candidate].clone()
        tokens.append(tried[-1] if accepted else tried[losses.index(min(losses))])
        steps.append(len(tried))
        verified.append(accepted)
    return tokens, steps, verified


def test_equals_a_plain_transcription(trained: Trained, leaked: Leaked) -> None:
    model, prompts = (
        trained.cut("last"),
        [prompt[:length] for prompt, length in zip(trained.prompts, (5, 3, 4), strict=False)],
    )
    states = leaked(model, prompts)
    ours = Sipit(model).invert(states)
    plain = [transcription(model, each) for each in states]
    assert ours.tokens == prompts
    assert (ours.tokens, ours.steps, ours.verified) == tuple(map(list, zip(*plain, strict=True)))
    assert max(map(max, ours.steps)) > 100  # the proxy was reset, more than once


def test_when_the_repeats_are_used_up_the_best_seen_is_called_unverified(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = leaked(model, [prompt[:3] for prompt in trained.prompts[:4]])
    ours = Sipit(model, repeats=4).invert(states)
    plain = [transcription(model, each, repeats=4) for each in states]
    assert (ours.tokens, ours.steps, ours.verified) == tuple(map(list, zip(*plain, strict=True)))
    assert not all(map(all, ours.verified))


def test_noise_leaves_the_whole_vocabulary_tried_and_the_nearest_state_chosen(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut(1), [trained.prompts[0][:2]]
    (states,) = leaked(model, prompts)
    recovery = Sipit(model).invert([states + 1e-2])
    assert recovery.tokens == prompts
    assert recovery.steps == [[300, 300]]
    assert recovery.verified == [[False, False]]


def test_rounding_as_large_as_a_large_models_is_allowed_for(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut(1), [trained.prompts[0][:2]]
    (states,) = leaked(model, prompts)
    states[:, 0] += 1e-5 * states.norm(dim=1)  # one coordinate is off by more than atol
    recovery = Sipit(model).invert([states])
    assert recovery.tokens == prompts
    assert recovery.verified == [[True, True]]
    assert Sipit(model, tolerance=0.0).invert([states]).verified == [[False, False]]


@pytest.mark.parametrize("cut", [1, "last", "final"])
def test_any_causal_model_any_cut(random_model: PreTrainedModel, leaked: Leaked, cut: int | str) -> None:
    model = SplitLanguageModel(random_model, cut)
    prompts = [[3, 199, 0, 7], [5, 5], [1]]
    recovery = Sipit(model).invert(leaked(model, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


def test_truth_is_recorded_and_decides_nothing(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut(1), [prompt[:3] for prompt in trained.prompts[:3]]
    states = leaked(model, prompts)
    without, lied_to = Sipit(model).invert(states), Sipit(model).invert(states, truth=[[1, 2, 3]] * 3)
    assert (without.tokens, without.steps) == (lied_to.tokens, lied_to.steps)
    told = Sipit(model).invert(states, truth=prompts)
    assert told.ranks is not None
    # the last repeat tries the candidate before it would move the proxy
    assert [[len(each) for each in prompt] for prompt in told.ranks] == [
        [s - 1 for s in prompt] for prompt in told.steps
    ]
