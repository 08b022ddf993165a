"""The text inverters, and what they prepare, with model and leaked states on a second device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import sweetspot.attacks.text.probe as probe
from sweetspot.attacks.text.channel import Channel, noise_unit
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.posterior import Posterior, bayes_given_prefix, blind_text, learned_behind_noise
from sweetspot.attacks.text.prefix import Prefix
from sweetspot.attacks.text.proxy import LOOK_EVERY, InnerLoop, descend
from sweetspot.attacks.text.recovery import Recovery, Trace
from sweetspot.attacks.text.released import ReleasedEncoder, as_released, release_noise
from sweetspot.attacks.text.single_commit import OPERATING_POINTS, STARTS, SingleCommit, scaled
from sweetspot.attacks.text.sipit import Sipit
from sweetspot.attacks.text.texts import Texts
from sweetspot.attacks.text.vocabulary import METRICS, Vocabulary
from sweetspot.lightning_modules.defences.bottlenecks import Bottleneck
from sweetspot.lightning_modules.defences.releases import Chain, Gaussian
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from tests.devices.second_device import SecondDevice

TOKENS, WIDTH = 40, 8
PROMPTS = [[3, 17, 5, 9], [8, 2, 30], [11]]
SEQUENCES = [[(7 * i + 3 * j) % TOKENS for j in range(6)] for i in range(12)]


@pytest.fixture
def second() -> Iterator[SecondDevice]:
    with SecondDevice() as device:
        yield device


def causal(kind: str = "gpt2") -> PreTrainedModel:
    """A language model of two blocks with random weights."""
    torch.manual_seed(0)
    model: PreTrainedModel
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2))
    else:
        llama = LlamaConfig(
            vocab_size=TOKENS, hidden_size=WIDTH, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=16,
        )  # fmt: skip
        model = LlamaForCausalLM(llama)
    model.eval()
    return model


def leaking(second: SecondDevice, kind: str = "gpt2", **released: Any) -> SplitLanguageModel:
    """A split model on the second device, as it is released."""
    model = SplitLanguageModel(causal(kind), 1).eval().to(second.device)
    return as_released(model, **released) if released else model


@torch.no_grad()
def states_of(model: SplitLanguageModel, second: SecondDevice) -> list[Tensor]:
    """What leaks of the prompts, (T, d) each."""
    return [model.encoder(torch.tensor([each], device=second.device))[0] for each in PROMPTS]


def recovered(inverter: Inverter, states: list[Tensor], is_exact: bool = True) -> Recovery:
    """What an inverter makes of the states."""
    found = inverter.invert(states, truth=PROMPTS)
    assert [len(each) for each in found.tokens] == [len(each) for each in PROMPTS]
    assert not is_exact or found.tokens == PROMPTS
    return found


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_hybrid(kind: str, second: SecondDevice, tmp_path: Path) -> None:
    model = leaking(second, kind)
    for folder in (None, tmp_path, tmp_path):  # trained, trained and kept, read
        inverter = Hybrid(model, **learned(model, SEQUENCES, folder, prepare="full"))
    recovered(inverter, states_of(model, second))


def test_hybrid_where_proposals_fail(second: SecondDevice) -> None:
    model = leaking(second)
    inverter = Hybrid(model, proposals=2, loop=InnerLoop(steps=12))  # nothing prepared: gradients, then all the rest
    assert any(any(steps) for steps in recovered(inverter, states_of(model, second)).steps)


def test_hybrid_behind_a_bottleneck(second: SecondDevice) -> None:
    squeezed = Bottleneck("6", (4, WIDTH)).to(second.device)
    model = leaking(second, release=Chain(), bottleneck=squeezed)
    recovered(Hybrid(model, **learned(model, SEQUENCES)), states_of(model, second))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("prepared", ["typical", "probe"])
def test_posterior(
    beam: int, prepared: str, second: SecondDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if prepared == "probe":
        monkeypatch.setattr("sweetspot.attacks.text.posterior.SMALL", 10)
    model = leaking(second, release=Chain(Gaussian(sigma=0.05, unit="rms")))
    noise, starts = release_noise(model), torch.tensor([3, 8, 11])
    found = learned_behind_noise(model, SEQUENCES, starts, noise, tmp_path)
    inverter = Posterior(model, noise=noise, beam=beam, **found)
    assert isinstance(model.encoder, ReleasedEncoder)
    with torch.no_grad():
        states = [model.encoder.drawn(torch.tensor([each], device=second.device))[0] for each in PROMPTS]
    recovery = recovered(inverter, states, is_exact=False)
    assert recovery.probability is not None
    truth = torch.tensor([each[:1] for each in PROMPTS], device=second.device)
    right = bayes_given_prefix([inverter], [torch.stack([each[:1] for each in states])], truth)
    assert right[0].device == second.device
    assert len(blind_text(model, starts, 3, beam=2)) == 3


@pytest.mark.parametrize("start", STARTS)
def test_single_commit(start: str, second: SecondDevice) -> None:
    model, metric = leaking(second), METRICS[STARTS.index(start) % len(METRICS)]
    inverter = SingleCommit(model, InnerLoop(steps=3), candidates=TOKENS, start=start, metric=metric)
    recovered(inverter, states_of(model, second))


def test_single_commit_with_the_scaled_loss(second: SecondDevice) -> None:
    model = leaking(second, "llama")
    point = scaled(OPERATING_POINTS["fast"], model, probe.state_spreads(model, SEQUENCES))
    recovered(SingleCommit(model, **{**point, "loop": InnerLoop(steps=3)}), states_of(model, second))


def test_sipit(second: SecondDevice) -> None:
    model = leaking(second)
    recovered(Sipit(model), states_of(model, second))


def test_channels(second: SecondDevice) -> None:
    model = leaking(second)
    unit, z = noise_unit(model, SEQUENCES), states_of(model, second)[0]
    for name in ("fp32", "fp16", "bf16", "int8", "0.1"):
        channel = Channel.named(name, unit)
        assert channel(z).device == second.device
        assert channel.spread(z) >= 0


def test_no_step_of_a_descent_waits(second: SecondDevice) -> None:
    """Behind prefixes of one length, and of several."""
    model = leaking(second)
    target = states_of(model, second)
    rows = torch.arange(2, device=second.device)
    same = Prefix(model, 2)
    same.commit(torch.tensor([3, 8], device=second.device))
    lengths = torch.tensor([len(each) for each in target], device=second.device)
    texts = Texts(
        model, torch.zeros(3, 4, dtype=torch.long).to(second.device), pad_sequence(target, True), lengths, 0.1, 8
    )
    texts.tokens[:2, :2] = torch.tensor([[3, 17], [8, 2]], device=second.device)
    texts.advance(rows)
    assert texts.behind(rows).lengths.tolist() != [0, 0]
    for of_several, which in ((False, rows), (True, rows), (True, rows[:1])):
        wanted, found = torch.stack([each[1] for each in target[:2]])[which], []
        for steps in (2, LOOK_EVERY - 1):
            prefix = texts.behind(rows) if of_several else same
            trace = Trace(Vocabulary(model.embeddings.weight), 2, None, on=True)
            with second.watched() as waits:
                descend(prefix, wanted, torch.zeros_like(wanted), which, InnerLoop(steps=steps), trace)
            found.append(Counter(waits))
        assert found[0] == found[1], found[1] - found[0]


@pytest.mark.parametrize("sampled", [4, 1024])
def test_no_step_of_a_probe_waits(sampled: int, second: SecondDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SAMPLED", sampled)
    monkeypatch.setattr(probe, "BATCH", 8)
    model, found = leaking(second), []
    for epochs in (1, 2):
        monkeypatch.setattr(probe, "EPOCHS", epochs)
        with second.watched() as waits:
            probe.train_probe(model, SEQUENCES, noise=0.1)
        found.append(Counter(waits))
    assert found[0] == found[1], found[1] - found[0]
