"""On a real GPU: training, attacks equal to the CPU's, no waiting in a step, mixed precision, half a GPU, two GPUs.

Without one all of it is skipped; `test_training.py` and its neighbours then pretend one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sweetspot.attacks.decoder.attack as decoder
import sweetspot.attacks.refined as refined
from sweetspot.attacks import ATTACKS, whitebox
from sweetspot.attacks.descent import Descent
from sweetspot.attacks.gradients.federated import Gradient
from sweetspot.attacks.gradients.reconstruct import reconstruct
from sweetspot.attacks.leaky import Leak
from sweetspot.attacks.text.hybrid import Hybrid, learned
from sweetspot.attacks.text.single_commit import SingleCommit
from sweetspot.attacks.text.sipit import Sipit
from sweetspot.attacks.threat_model import AttackerData, LabelOnly, Victim
from sweetspot.commands.sweep import main as sweep
from sweetspot.datamodules.tensors import scaled
from sweetspot.lightning_modules.causal_lm import gpt2_tiny
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.metrics.scoring import Scorer
from sweetspot.runs.config import TrainConfig
from sweetspot.training import train
from tests.attacks.gradients.conftest import played
from tests.devices.training import DEFENCES, EVERY_PAIR, Steps, built, data_for

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Products in full precision, as on the CPU."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """A block in which whatever makes the host wait for the GPU is an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize(("network", "defence"), EVERY_PAIR)
def test_a_step_does_not_wait(network: str, defence: str, tmp_path: Path) -> None:
    steps = Steps(built(network, tmp_path, **DEFENCES[defence]), GPU)
    steps.take(0)  # kernels are loaded, and optimisers make what they keep
    with no_waiting():
        loss = steps.take(1)
    assert loss.isfinite()


@pytest.mark.parametrize("defence", ["none", "mixcon", "unicon", "nopeek"])
def test_a_step_is_the_cpus(defence: str, tmp_path: Path) -> None:
    losses = []
    for device in ("cpu", GPU):
        torch.manual_seed(0)
        steps = Steps(built("lenet", tmp_path, **DEFENCES[defence]), device)
        losses.append([steps.take(number).item() for number in range(2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("network", "defence"), EVERY_PAIR)
def test_a_step_in_mixed_precision(network: str, defence: str, precision: torch.dtype, tmp_path: Path) -> None:
    steps = Steps(built(network, tmp_path, **DEFENCES[defence]), GPU)
    assert steps.take(0, precision).isfinite()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("defence", ["mixcon", "adversary"])
def test_a_run(precision: str, defence: str, config: Callable[..., TrainConfig]) -> None:
    trainer = {"accelerator": "gpu", "devices": 1, "precision": precision}
    results = train(config(trainer=trainer, defence=defence, attacks=["prototype"], samples=4, device="cuda"))
    assert results["utility"]["accuracy"] > 0.5
    assert "prototype" in results["attacks"]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device at most")
def test_two_devices(config: Callable[..., TrainConfig], command: Callable[..., Any]) -> None:
    made = config()
    done = command(
        "train.py", "--dataset", made.dataset, "--out", made.out, "--epochs", 1, "--batch-size", 12,
        "--attacks", "none", "--defence", "adversary", "--against", "l1",
        "--trainer.accelerator", "gpu", "--trainer.devices", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_shares_of_a_gpu_in_a_sweep(config: Callable[..., TrainConfig], capsys: pytest.CaptureFixture[str]) -> None:
    made = config()
    flags = [
        "--dataset",
        str(made.dataset),
        "--out",
        made.out,
        "--epochs",
        "1",
        "--batch-size",
        "12",
        "--attacks",
        "none",
    ]
    assert sweep([*flags, "--lambdas", "0", "1", "--betas", "1e-4", "--gpus-per-run", "0.5"]) == 0, capsys.readouterr()


# ---------------------------------------------------------------------- attacks


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks of a few steps: many would carry rounding far."""
    monkeypatch.setattr(whitebox, "PAPER_STEPS", 5)
    for steps in (whitebox.STEPS, decoder.STEPS, refined.STEPS):
        monkeypatch.setitem(steps, "fast", 5)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("whitebox", {"recipe": "paper"}),
        ("whitebox", {"recipe": "no-data"}),
        ("whitebox", {"recipe": "adaptive"}),
        ("decoder", {"recipe": "adaptive"}),
        ("decoder", {"recipe": "paper", "decoder_epochs": 1}),
        ("label", {}),
        ("refined", {}),
        ("positions", {}),
        ("prototype", {}),
    ],
)
def test_an_attack_is_the_cpus(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    release = [{"name": "topk", "keep": 0.5}] if name == "positions" else []
    found: list[Tensor] = []
    for device in (torch.device("cpu"), GPU):
        torch.manual_seed(0)
        module = built("lenet", tmp_path, release=release)
        data = AttackerData.of(data_for(module, 64))
        victim = Victim.from_module(module).to(device)
        attack = ATTACKS[name](budget="fast", **given)
        with torch.no_grad():
            z = victim.released(scaled(data.x[:3]).to(device))
        attack.prepare(victim, data)
        if isinstance(attack, LabelOnly):
            attack.tell(data.y[:3].to(device))
        result = attack.reconstruct(victim, z)
        assert result.x.device.type == device.type
        found.append(result.x.cpu())
    assert torch.allclose(found[0], found[1], atol=2e-2), (found[0] - found[1]).abs().max()


def test_a_descents_step_does_not_wait(tmp_path: Path) -> None:
    victim = Victim.from_module(built("lenet", tmp_path)).to(GPU)
    x = torch.rand(3, 1, 28, 28, device=GPU)
    z = victim.released(x).flatten(1)
    group = whitebox.ADAPTIVE[:4]
    starts = torch.rand(len(group), *x.shape, device=GPU)
    leak = Leak()
    descent = Descent(victim.misfit, z, group, starts, torch.ones_like(z[0]), victim.bounds, leak)
    descent.descend(1, 10)
    with no_waiting():
        descent.descend(2, 10)


def test_scores_are_the_cpus() -> None:
    x, recovered = torch.rand(4, 1, 28, 28), torch.rand(4, 1, 28, 28)
    scores = [Scorer(x.to(d), torch.zeros(4).to(d), x.to(d)).score(recovered.to(d)) for d in (torch.device("cpu"), GPU)]
    for name, here in scores[0].items():
        assert torch.allclose(here, scores[1][name].cpu(), atol=1e-4), name


@pytest.mark.parametrize("policy", ["hybrid", "single-commit", "sipit"])
def test_a_text_comes_back(policy: str) -> None:
    prompts = [[3, 17, 5, 9], [8, 2, 30], [11]]
    sequences = [[(7 * i + 3 * j) % 40 for j in range(6)] for i in range(12)]
    model = SplitLanguageModel(gpt2_tiny(40, layers=2, width=8, heads=2, context=16), 1).eval().to(GPU)
    with torch.no_grad():
        states = [model.encoder(torch.tensor([each], device=GPU))[0] for each in prompts]
    made = {
        "hybrid": lambda: Hybrid(model, **learned(model, sequences)),
        "single-commit": lambda: SingleCommit(model, candidates=40),
        "sipit": lambda: Sipit(model),
    }
    assert made[policy]().invert(states).tokens == prompts


@pytest.mark.parametrize("which", ["square-cubic", "tanh", "relu", "softplus"])
def test_a_gradients_batch_comes_back(which: str) -> None:
    play = played(which, batch=2, dim=6, width=200)
    weights = type(play.weights)(play.weights.w.to(GPU), play.weights.a.to(GPU), play.weights.bias)
    found = reconstruct(Gradient(play.gradient.a.to(GPU), play.gradient.w.to(GPU)), weights, play.activation, batch=2)
    assert found.verdict == "exact"
    assert found.x.device.type == "cuda"
