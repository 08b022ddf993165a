"""Defences of a split language model: noise with one unit for every prompt, rare tokens, a client that stays frozen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sweetspot.commands.train import main
from sweetspot.errors import UserError
from sweetspot.lightning_modules.causal_lm import gpt2_tiny
from sweetspot.lightning_modules.defences.penalties import Compress, Place
from sweetspot.lightning_modules.defences.releases import Gaussian
from sweetspot.lightning_modules.networks.language import SplitLanguageModel, language_model, state_sizes
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.utility import utility_of
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import build_language, train
from tests.conftest import refused_by

NOISE: dict[str, Any] = {"lam": 0, "release": ["gaussian"], "sigma": 1.0}


def checkpoint_of(config: TrainConfig) -> Path:
    """Where a trained run's weights lie."""
    return Run(Path(config.out) / str(train(config)["name"])).checkpoint


# ---------------------------------------------------------------------- noise


def test_the_unit_of_noise_is_each_positions_own() -> None:
    torch.manual_seed(0)
    states = torch.randn(2, 9, 16)
    states[:, 0] *= 100  # as in models of Llama's kind
    release = Gaussian(sigma=1.0)
    sent = release.expected(states)
    assert torch.allclose(sent.square().mean(dim=2), torch.ones(2, 9)), "the first position is no larger than others"
    one = release.expected(states[:1, :5])
    assert torch.equal(one, sent[:1, :5]), "a prompt alone, of any length, is sent as in a batch"
    added = release(states) - sent
    assert added.std(dim=(0, 2)) == pytest.approx(torch.ones(9), abs=0.4)


def test_a_model_with_real_weights_gets_the_size_of_its_states_back() -> None:
    model = SplitLanguageModel(gpt2_tiny(60, layers=3, width=16, heads=2, context=32), cut=1)
    ids = torch.randint(60, (4, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = model.encoder(ids)
        first, others = state_sizes(model, ids)
        assert first == pytest.approx(states[:, 0].square().mean().sqrt().item(), rel=1e-5)
        assert others == pytest.approx(states[:, 1:].square().mean().sqrt().item(), rel=1e-5)
        size = torch.tensor([3.0] + [0.2] * 8)[None, :, None]
        model.head.sizes = [3.0, 0.2]
        given_back = model.head(states)
        model.head.sizes = None
        assert torch.equal(given_back, model.head(states * size))


def test_sizes_are_part_of_a_run_with_real_weights(
    gpt2_folder: Path, text_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    fields = {"network": str(gpt2_folder), "epochs": 1, "out": str(tmp_path), "train": "head"}
    config = text_config(**fields, **NOISE)
    sizes: Any = build_language(config)[1].network.head.sizes
    assert all(0 < each < 10 for each in sizes)
    assert load_module(checkpoint_of(config)).network.head.sizes == sizes, "a checkpoint brings them along"
    for other in (text_config(**fields, lam=0), text_config(**NOISE)):  # states as they are; a model from scratch
        assert build_language(other)[1].network.head.sizes is None


@pytest.mark.parametrize("sizes", [[1.0], [1.0, float("nan")], [1.0, -1.0], ["1", "2"], 3])
def test_a_checkpoint_with_odd_sizes_is_damaged(sizes: Any) -> None:
    config = gpt2_tiny(60, layers=1, width=16, heads=2, context=32).config.to_dict()
    assert language_model(config, 1, [3.0, 0.2]).head.sizes == [3.0, 0.2]
    with pytest.raises(UserError, match="states of no size: it is damaged"):
        language_model(config, 1, sizes)


def test_every_batch_of_the_test_set_has_noise_of_its_own() -> None:
    x = torch.zeros(128, 3, dtype=torch.long)
    data: Any = SimpleNamespace(test=(x, x))

    def encode(ids: Tensor) -> Tensor:
        return torch.randn(*ids.shape, 4)

    def found(seed: int) -> Tensor:
        return utility_of(encode, lambda z: z, data, seed, torch.device("cpu"), at_once=8).representations

    drawn = found(0)
    assert len(drawn.unique(dim=0)) == len(drawn)
    assert torch.equal(drawn, found(0))


@pytest.mark.parametrize("every", [1, 3])
def test_noise_grows_by_the_batch_whatever_is_accumulated(
    every: int, text_config: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shares, step = [], SplitModule.training_step

    def training_step(self: SplitModule, batch: Any, batch_idx: int) -> Any:
        shares.append(self.defence.release.releases()[0].share)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SplitModule, "training_step", training_step)
    options = {"accelerator": "cpu", "accumulate_grad_batches": every}
    train(text_config(**NOISE, epochs=3, out=str(tmp_path), trainer=options))
    count = len(shares) // 3
    assert shares == pytest.approx([min(1.0, step / count) for step in range(3 * count)]), (
        "whole after a third of the training"
    )


def test_a_cosine_ends_at_nothing_and_goes_on_where_it_was(
    text_config: Callable[..., TrainConfig],
    power_cut: Callable[[TrainConfig, int], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    rates, step = [], SplitModule.training_step

    def training_step(self: SplitModule, batch: Any, batch_idx: int) -> Any:
        rates.append(self.optimizers().param_groups[0]["lr"])  # type: ignore[union-attr]
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SplitModule, "training_step", training_step)
    short: dict[str, Any] = {"lam": 0, "schedule": "cosine", "limit_train": 40, "epochs": 4}
    whole, broken = (text_config(**short, out=str(tmp_path / name)) for name in ("whole", "broken"))
    ours = load_module(checkpoint_of(whole)).state_dict()
    assert rates[0] == max(rates) == 2e-3, "the first of 20 steps is all of the warm-up"
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 2e-3 / 50
    power_cut(broken, 2)
    theirs = load_module(checkpoint_of(broken)).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_two_schedules_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    says = "--schedule cosine and --milestones are two schedules of one learning rate"
    refused_by(main, capsys, says, "--schedule", "cosine", "--milestones", "3")


# ---------------------------------------------------------------------- penalties


def test_the_centre_of_a_rare_token_is_the_mean_of_its_first_batches() -> None:
    penalty = Compress()
    penalty.put(Place((64,), (2, 4), 5000, 1.0, is_text=True))
    torch.manual_seed(0)
    batches = [torch.randn(3, 4) for _ in range(3)]
    tokens = torch.tensor([4999, 4999, 7])
    for number, z in enumerate(batches):
        penalty.penalty(z, tokens if number < 2 else tokens - 1, z)
    two = torch.stack(batches[:2])
    assert torch.allclose(penalty.centres[4999], two[:, :2].mean(dim=(0, 1)), atol=1e-6)
    assert torch.allclose(penalty.centres[7], two[:, 2].mean(dim=0), atol=1e-6)
    assert penalty.seen.nonzero().flatten().tolist() == [6, 7, 4998, 4999]
    assert not penalty.centres[penalty.seen == 0].any(), "classes that are in no batch stay where they are"


@pytest.mark.parametrize("squeezed", [None, "8"])
@pytest.mark.parametrize("defence", ["compress", "vib", "mixcon", "unicon"])
def test_penalties_join_noise_and_bottlenecks_of_text(
    defence: str, squeezed: str | None, text_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    fields = {
        "defence": defence,
        "lam": 1e-3,
        "bottleneck": squeezed,
        "limit_train": 16,
        "epochs": 1,
        "out": str(tmp_path),
    }
    results = train(text_config(**{**NOISE, **fields}))
    assert results["utility"]["perplexity"] > 1
    module = load_module(Run(tmp_path / str(results["name"])).checkpoint)
    low, high = module.penalty_range.tolist()
    assert low < high
    assert module.encode(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, 8 if squeezed else 128)


@pytest.mark.parametrize("defence", ["nopeek", "adversary", "cem"])
def test_penalties_that_need_images_refuse_text(defence: str, capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    says = f"--defence {defence} looks at images or vectors; a language model's inputs are tokens"
    noise = ["--release", "gaussian", "--sigma", "1"]
    refused_by(main, capsys, says, "--network", "gpt2-tiny", "--dataset", str(corpus), "--defence", defence, *noise)


def test_a_bottleneck_wider_than_the_model_is_refused(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    says = "--bottleneck 129 is wider than the states it would squeeze, which have 128 numbers"
    text = ["--network", "gpt2-tiny", "--dataset", str(corpus), "--vocabulary", "300", "--out", str(tmp_path)]
    refused_by(main, capsys, says, *text, "--bottleneck", "129")


# ---------------------------------------------------------------------- the server's part alone


HEAD: dict[str, Any] = {**NOISE, "train": "head", "bottleneck": "8", "limit_train": 32}


def test_training_the_head_leaves_the_client_as_it_is(text_config: Callable[..., TrainConfig], tmp_path: Path) -> None:
    config = text_config(**HEAD, out=str(tmp_path))
    before: Any = build_language(config)[1]
    after: Any = load_module(checkpoint_of(config))
    for (name, old), new in zip(
        before.network.encoder.named_parameters(), after.network.encoder.parameters(), strict=True
    ):
        assert torch.equal(old, new), name
    assert torch.equal(before.network.head.lm_head.weight, after.network.head.lm_head.weight), "it is the embeddings"
    assert not torch.equal(*(each.network.head.base.h[0].mlp.c_fc.weight for each in (before, after)))
    for part in ("squeeze", "widen"):
        assert not torch.equal(*(getattr(each.defence.bottleneck, part)[0].weight for each in (before, after)))


def test_the_optimiser_of_a_head_keeps_nothing_of_the_client(
    text_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = text_config(**HEAD, out=str(tmp_path))
    kept = torch.load(checkpoint_of(config), weights_only=True)["optimizer_states"][0]["state"]
    module = build_language(config)[1]
    trained = [each for each in module.parameters() if each.requires_grad]
    assert sum(each["exp_avg"].numel() for each in kept.values()) == sum(each.numel() for each in trained)
    assert sum(each.numel() for each in trained) < sum(each.numel() for each in module.network.parameters()) / 2


def test_training_the_head_goes_on_where_it_was_stopped(
    text_config: Callable[..., TrainConfig], power_cut: Callable[[TrainConfig, int], None], tmp_path: Path
) -> None:
    whole, broken = (text_config(**HEAD, out=str(tmp_path / name)) for name in ("whole", "broken"))
    power_cut(broken, 1)
    ours, theirs = (load_module(checkpoint_of(config)).state_dict() for config in (whole, broken))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--network", "lenet"], "--train head is for language models, and lenet is none: leave it out"),
        (["--network", "gpt2-tiny"], "--train head leaves the client as it is: add a --bottleneck"),
    ],
)
def test_a_client_that_must_change_is_not_frozen(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_by(main, capsys, says, *arguments, "--train", "head")
