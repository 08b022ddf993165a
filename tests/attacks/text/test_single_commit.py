"""Single commit: equal to a plain transcription, batched equal to alone, and options that do what they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.probe import first_states, state_spreads
from sweetspot.attacks.text.proxy import InnerLoop, loss_and_gradient
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.released import as_released
from sweetspot.attacks.text.single_commit import (
    BASELINE,
    FAST,
    HIGH_ACCURACY,
    OPERATING_POINTS,
    SCALED_STEP,
    SingleCommit,
    scaled,
)
from sweetspot.attacks.text.verification import TOLERANCE
from sweetspot.attacks.text.vocabulary import Vocabulary
from sweetspot.errors import UserError
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.attacks.text.conftest import Rotation, Trained

Leaked = Callable[..., list[Tensor]]
LOOP = InnerLoop(steps=50, lr_floor=1e-3, weight_decay=0.01, loss_threshold=1e-2)


def transcription(
    model: SplitLanguageModel, states: Tensor, loop: InnerLoop, candidates: int
) -> tuple[list[int], list[int]]:
    """The paper's algorithm with torch's own optimiser: one prompt, no cache, candidates one by one."""
    embeddings = model.embeddings.weight.detach()
    committed: list[int] = []
    steps: list[int] = []
    for h in states:
        prefix = embeddings[committed]
        e = torch.zeros(model.width, requires_grad=True)
        optimiser = torch.optim.AdamW([e], lr=loop.lr, weight_decay=loop.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, loop.steps, eta_min=loop.lr_floor)
        taken = 0
        for _ in range(loop.steps):
            loss = F.mse_loss(model.encoder(embeddings=torch.cat([prefix, e[None]])[None])[0, -1], h)
            if loss < loop.loss_threshold * h.square().mean():
                break
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([e], loop.clip or torch.inf)
            optimiser.step()
            schedule.step()
            taken += 1
        order = torch.cdist(e.detach()[None], embeddings)[0].argsort()[:candidates].tolist()
        chosen = order[0]
        for token in order:
            with torch.no_grad():
                state = model.encoder(torch.tensor([[*committed, token]]))[0, -1]
            if (state - h).norm() <= TOLERANCE * h.norm():
                chosen = token
                break
        committed.append(chosen)
        steps.append(taken)
    return committed, steps


@pytest.mark.parametrize("candidates", [1, 20])
def test_equals_a_plain_transcription(trained: Trained, leaked: Leaked, candidates: int) -> None:
    model, prompts = trained.cut("last"), [prompt[:4] for prompt in trained.prompts[:3]]
    states = leaked(model, prompts)
    ours = SingleCommit(model, LOOP, candidates).invert(states)
    plain = [transcription(model, each, LOOP, candidates) for each in states]
    assert ours.tokens == [tokens for tokens, _ in plain]
    assert ours.steps == [steps for _, steps in plain]
    assert any(0 < steps < LOOP.steps for prompt in ours.steps for steps in prompt)  # the threshold was at work


@pytest.mark.parametrize("start", ["random", "zeros", "gaussian", "mean"])
def test_all_at_once_equals_one_at_a_time_whatever_their_lengths(trained: Trained, leaked: Leaked, start: str) -> None:
    model = trained.cut(1)
    prompts = [prompt[:length] for prompt, length in zip(trained.prompts, (3, 6, 1, 6, 4), strict=False)]
    states = leaked(model, prompts)
    inverter = SingleCommit(model, InnerLoop(steps=30, loss_threshold=1e-2), 3, start=start)
    together, alone = inverter.invert(states), [inverter.invert([each]) for each in states]
    assert [len(tokens) for tokens in together.tokens] == [3, 6, 1, 6, 4]
    assert together.tokens == [each.tokens[0] for each in alone]
    assert together.steps == [each.steps[0] for each in alone]
    assert together.verified == [each.verified[0] for each in alone]


def test_a_small_batch_of_candidates_at_once_changes_nothing(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = leaked(model, trained.prompts[:4])
    wide = SingleCommit(model, InnerLoop(steps=10), 100).invert(states)
    narrow = SingleCommit(model, InnerLoop(steps=10), 100, at_once=3).invert(states)
    assert narrow.tokens == wide.tokens
    assert narrow.verified == wide.verified


def test_more_candidates_find_more(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = leaked(model, trained.prompts)
    shares = [SingleCommit(model, InnerLoop(steps=10), count).invert(states).verified_share for count in (1, 30, 300)]
    assert shares[0] < shares[1] < shares[2] == 1.0


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot", "centred"])
@pytest.mark.parametrize("cut", [1, "last", "final"])
def test_every_metric_and_cut_recovers_a_random_model(
    random_model: PreTrainedModel, leaked: Leaked, cut: int | str, metric: str
) -> None:
    model = SplitLanguageModel(random_model, cut)
    prompts = [[3, 199, 0, 7], [5, 5]]
    # not from zeros: an RMS norm is so steep there that Adam needs long to forget its first gradient
    inverter = SingleCommit(model, InnerLoop(steps=40), 60, start="mean", metric=metric)
    recovery = inverter.invert(leaked(model, prompts))
    assert recovery.tokens == prompts
    assert recovery.verified_share == 1.0


def decisions(recovery: Recovery) -> tuple[list[list[int]], list[list[bool]], list[list[int]]]:
    return recovery.tokens, recovery.verified, recovery.steps


def test_truth_is_recorded_and_decides_nothing(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut("last"), trained.prompts[:3]
    states = leaked(model, prompts)
    inverter = SingleCommit(model, InnerLoop(steps=25), 2)
    without, told = inverter.invert(states), inverter.invert(states, truth=prompts)
    lied_to = inverter.invert(states, truth=[[1] * len(prompt) for prompt in prompts])
    assert decisions(without) == decisions(told) == decisions(lied_to)
    assert without.ranks is None
    assert told.ranks is not None
    assert [len(each) for prompt in told.ranks for each in prompt] == [25] * sum(map(len, prompts))
    nearest = [ranks[-1] == 0 for prompt in told.ranks for ranks in prompt]
    assert any(nearest)


def test_loss_curves_fall_and_are_off_by_a_flag(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = leaked(model, trained.prompts[:2])
    seen = SingleCommit(model, InnerLoop(steps=30), 5).invert(states)
    assert seen.curves is not None
    assert all(curve[-1] < curve[0] for prompt in seen.curves for curve in prompt)
    blind = SingleCommit(model, InnerLoop(steps=30), 5, observe=False).invert(states, truth=trained.prompts[:2])
    assert blind.curves is None
    assert blind.ranks is None
    assert decisions(blind) == decisions(seen)


def test_a_curve_ends_where_its_proxy_stopped(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    states = leaked(model, trained.prompts[:4])
    recovery = SingleCommit(model, LOOP, 5).invert(states)
    assert recovery.curves is not None
    for steps, curve, h in zip(recovery.steps[0], recovery.curves[0], states[0], strict=True):
        assert len(curve) == min(steps + 1, LOOP.steps)  # the loss that ended it is in it
        assert (curve[:-1] >= LOOP.loss_threshold * h.square().mean()).all()


def test_the_operating_points_are_the_papers() -> None:
    points = [(point["loop"].steps, point["candidates"]) for point in (FAST, BASELINE, HIGH_ACCURACY)]
    assert points == [(600, 100), (1000, 2000), (2000, 10_000)]


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (torch.zeros(1, 4, 63), r"must be \(positions, 64\) for this model; got \(4, 63\)"),
        (torch.zeros(4, 64), r"must be \(positions, 64\) for this model; got \(64,\)"),
        (torch.full((1, 2, 64), torch.nan), "hold NaN or infinite values"),
        (torch.zeros(1, 0, 64), "prompt 0 is empty"),
        ([], "no hidden states were given"),
        (torch.zeros(1, 33, 64), "33 positions; the model's context ends at 32"),
    ],
)
def test_states_that_cannot_be_the_models_are_refused(trained: Trained, states: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        SingleCommit(trained.cut("last")).invert(states)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "best"}, "one of random, zeros, gaussian, mean; got best"),
        ({"metric": "l1"}, "one of l2, cosine, dot, centred; got l1"),
        ({"candidates": 0}, "at least 1 candidate; got 0"),
    ],
)
def test_options_that_do_not_exist_are_refused(trained: Trained, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SingleCommit(trained.cut("last"), **options)  # type: ignore[arg-type]


def test_ctrl_c_keeps_what_is_done(trained: Trained, leaked: Leaked, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained.cut("last")
    inverter = SingleCommit(model, InnerLoop(steps=5), 300)
    recover = inverter.recover

    def interrupted(position: object, trace: object) -> object:
        if position.prefix.length == 2:  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        return recover(position, trace)  # type: ignore[arg-type]

    monkeypatch.setattr(inverter, "recover", interrupted)
    recovery = inverter.invert(leaked(model, trained.prompts[:2]))
    assert recovery.tokens == [prompt[:2] for prompt in trained.prompts[:2]]


def test_time_is_split_and_adds_up(trained: Trained, leaked: Leaked) -> None:
    model = trained.cut("last")
    recovery = SingleCommit(model, InnerLoop(steps=5), 10).invert(leaked(model, trained.prompts[:2]))
    split = recovery.seconds_per_token
    assert {"propose", "verify", "gradient", "other", "total"} == set(split)
    assert split["gradient"] > 0
    assert split["total"] == pytest.approx(sum(recovery.seconds.values()) / 16)
    assert recovery.cumulative_loss[0][-1] == pytest.approx(sum(recovery.discrete_loss[0]))


def test_the_scaled_loss_is_the_mse_of_differences_by_their_spread(trained: Trained, leaked: Leaked) -> None:
    model, prompts = trained.cut("last"), trained.prompts[:3]
    target = torch.stack([each[1] for each in leaked(model, prompts)])
    spread = state_spreads(model, trained.text)[1]
    prefix = Prefix(model, 3)
    prefix.commit(torch.tensor([prompt[0] for prompt in prompts]))
    proxies = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    losses, gradient = loss_and_gradient(prefix, proxies, target, torch.arange(3), spread)
    for row, prompt in enumerate(prompts):
        e = proxies[row].clone().requires_grad_(True)
        state = model.encoder(embeddings=torch.stack([model.embeddings.weight[prompt[0]], e])[None])[0, 1]
        expected = sum(((state[j] - target[row, j]) / spread[j]) ** 2 for j in range(64)) / 64
        expected.backward()
        assert torch.allclose(losses[row], expected.detach(), rtol=1e-4)
        assert e.grad is not None
        assert torch.allclose(gradient[row], e.grad, rtol=1e-3, atol=1e-5)


def test_spreads_are_of_first_positions_and_of_others(trained: Trained) -> None:
    model, text = trained.cut("last"), trained.text[:20]
    first, others = state_spreads(model, text)
    with torch.no_grad():
        seen = model.encoder(torch.tensor(text))[:, 1:].flatten(0, 1).std(dim=0)
    assert torch.allclose(others, seen + 1e-3 * seen.mean(), rtol=1e-4)
    drawn = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:256]
    alone = first_states(model)[drawn].std(dim=0)
    assert torch.allclose(first, alone + 1e-3 * alone.mean(), rtol=1e-4)
    with pytest.raises(UserError, match="the scaled loss needs token sequences of at least 2 tokens"):
        state_spreads(model, [[1]])


def test_a_huge_coordinate_drowns_the_papers_loss_and_not_the_scaled_one(trained: Trained, leaked: Leaked) -> None:
    """One coordinate, a thousand times as wide as the others, as real models have them."""
    stretch = torch.ones(64)
    stretch[0] = 1000.0
    release = Rotation(64)
    release.matrix = torch.diag(stretch)
    model, prompts = as_released(trained.cut("last"), Chain(release)), trained.prompts[:4]
    states = leaked(model, prompts)
    loop = InnerLoop(steps=100, clip=None)
    plain = SingleCommit(model, loop, 10).invert(states)
    scaled = SingleCommit(model, loop, 10, spread=state_spreads(model, trained.text)).invert(states)
    assert scaled.verified_share > plain.verified_share + 0.2


def test_centred_is_the_cosine_without_the_mean_embedding(trained: Trained) -> None:
    embeddings = trained.cut("last").embeddings.weight.detach()
    vectors = torch.randn(3, embeddings.shape[1], generator=torch.Generator().manual_seed(0))
    ours = Vocabulary(embeddings).unlikeness(vectors, "centred")
    mean = embeddings.mean(dim=0)
    cosine = F.cosine_similarity((vectors - mean)[:, None], (embeddings - mean)[None], dim=2)
    lengths = torch.linalg.vector_norm(vectors - mean, dim=1, keepdim=True)
    torch.testing.assert_close(-ours / lengths, cosine, rtol=1e-4, atol=1e-5)


def test_the_scaled_point_begins_at_the_mean_and_steps_by_the_embeddings_size(trained: Trained) -> None:
    model = trained.cut("last")
    point = scaled(OPERATING_POINTS["fast"], model, torch.ones(2, model.width))
    size = float(model.embeddings.weight.square().mean().sqrt())
    assert (point["start"], point["metric"], point["candidates"]) == ("mean", "centred", 100)
    assert point["loop"].steps == 600
    assert point["loop"].lr == pytest.approx(SCALED_STEP * size)
