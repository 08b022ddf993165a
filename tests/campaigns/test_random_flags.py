"""300 random combinations of flags: each trains, or is refused in one line."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from sweetspot.commands import evaluate, report, sweep, train
from tests.campaigns.counting import Tally, run_script, seeded
from tests.weak_attacks import weaken

pytestmark = pytest.mark.slow
NUMBERS = ["0", "1", "2", "3", "-1", "1e-4", "0.5", "1e9", "1e400", "nan", "inf", "x", "", "²", "1,5", "0x10", "[1]"]
TRAINING = {
    **dict.fromkeys(("--lambda", "--beta", "--epsilon", "--lr", "--momentum", "--weight-decay"), NUMBERS),
    **{flag: [*NUMBERS, "12", "30"] for flag in ("--batch-size", "--limit-train", "--limit-test", "--seed")},
    "--validation-fraction": NUMBERS,
    "--milestones": [*NUMBERS, "1 2"],
    "--defence": ["mixcon", "unicon", "none", "hope", ""],
    "--family": ["inverse", "log", "inverse-square", "cubic"],
    "--normalise": ["true", "false", "maybe"],
    "--network": ["lenet", "mlp", "vgg16", "resnet", "", "/", "."],
    "--cut": ["1", "2", "9", "conv1", "fc3", "", "-1"],
    "--head": ["default", "deeper", "none"],
    "--optimiser": ["sgd", "adam", "adamw"],
    "--attacks": ["none", "whitebox/paper", "decoder", "text", "nope", "none whitebox"],
    "--samples": ["1", "3", "0", "999999999999999999999", "x"],
    "--budget": ["fast", "endless"],
    "--recipe": ["paper", "adaptive", "secret"],
    "--device": ["cpu", "auto", "warp", "cuda:99", "meta"],
    "--attack-seed": NUMBERS,
    "--force": [""],
    "--bacth-size": ["3"],
    "--config": ["configs/synthetic.yaml", "missing.yaml", ".", "/dev/null"],
    "--trainer.max_steps": ["1", "-1", "0", "x"],
    "--trainer.max_time": ["3", "00:00:00:30", "x", "00:00:00:00"],
    "--trainer.precision": ["32-true", "bf16-mixed", "16-true", "5"],
    "--trainer.gradient_clip_val": NUMBERS,
    "--trainer.accumulate_grad_batches": ["1", "2", "0", "x"],
    "--trainer.limit_train_batches": ["0", "1", "0.5", "-1", "2.5"],
    "--trainer.limit_val_batches": ["0", "1", "0.5", "-1"],
    "--trainer.val_check_interval": ["1", "0.5", "1000", "x"],
    "--trainer.check_val_every_n_epoch": ["1", "2", "0"],
    "--trainer.overfit_batches": ["0", "1", "5"],
    "--trainer.devices": ["1", "0", "-1", "auto", "x"],
    "--trainer.fast_dev_run": ["true", "1", "x"],
    "--trainer.strategy": ["auto", "ddp_spawn", "nope"],
    "--trainer.nonsense": ["1"],
}  # fmt: skip


def drawn(pool: dict[str, list[str]], most: int, chance: random.Random) -> list[str]:
    """A few flags with a value each."""
    argv: list[str] = []
    for flag in chance.sample([*pool], chance.randint(1, most)):
        argv += [flag, *chance.choice(pool[flag]).split()] if chance.random() < 0.9 else [flag]
    return argv


def test_random_flags_of_train(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch)
    common = ["--dataset", str(npz()), "--epochs", "1", "--batch-size", "12", "--out", str(tmp_path / "runs")]
    common += ["--attacks", "none", "--trainer.accelerator", "cpu"]
    chance, tally = seeded("flags of train.py"), Tally("random flags of train.py")
    for _ in range(200):
        argv = [*common, *drawn(TRAINING, 3, chance)]
        tally.count(" ".join(argv[11:]), run_script(train.main, argv, capsys, tally))
    tally.conclude(capsys)


def test_random_flags_of_the_other_scripts(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch)
    runs, data = tmp_path / "runs", npz()
    common = ["--dataset", str(data), "--epochs", "1", "--batch-size", "12", "--out", str(runs), "--attacks", "none"]
    assert train.main([*common, "--trainer.accelerator", "cpu"]) == 0
    (run,) = runs.glob("images-*")
    shared = ("--attacks", "--samples", "--budget", "--recipe", "--device", "--attack-seed")
    attacking = {flag: [each for each in TRAINING[flag] if each != "decoder"] for flag in shared}
    attacking |= {"--prompts": NUMBERS, "--policy": ["sipit", "x"], "--channels": ["fp16", "-1"], "--nope": ["1"]}
    attacking |= {"--dataset": ["mnist-5k", "nope.npz", str(data)], "--data-root": ["nowhere"]}
    reporting = {"--max-drop": NUMBERS, "--metric": ["ssim", "psim", "x", ""], "--title": ["", "<b>", "\udcff"]}
    reporting |= {"--out": ["a.html", "a.xyz", "/dev/null", "/proc/a.html", "n" * 300 + ".html", "\udcff.html", ""]}
    sweeping = {"--lambda": NUMBERS, "--beta": NUMBERS, "--seed": NUMBERS, "--search": NUMBERS, "--parallel": NUMBERS}
    sweeping |= {"--max-drop": NUMBERS, "--metric": ["ssim", "em"], "--cpus-per-run": NUMBERS, "--lamda": ["1"]}
    monkeypatch.chdir(tmp_path)
    scripts = {
        "evaluate.py": (evaluate.main, [str(run), "--attacks", "whitebox/paper", "--samples", "2"], attacking),
        "report.py": (report.main, [str(runs)], reporting),
        "sweep.py": (sweep.main, [*common, "--dry-run"], sweeping),
    }
    chance, tally = seeded("flags of the others"), Tally("random flags of evaluate.py, report.py and sweep.py")
    for number in range(100):
        name = ["evaluate.py", "report.py", "sweep.py"][number % 3]
        script, fixed, pool = scripts[name]
        argv = [*fixed, *drawn(pool, 3, chance)]
        tally.count(f"{name} {argv[len(fixed) :]}", run_script(script, argv, capsys, tally))
    tally.conclude(capsys)
