"""train(config): one run, its record, its folder; finished, forced, resumed, killed, on two processes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from sweetspot.attacks import Victim
from sweetspot.commands.train import main
from sweetspot.datamodules import TensorDataModule, load
from sweetspot.errors import UserError
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.lightning_modules.utility import measure_utility
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.config import TrainConfig
from sweetspot.training import train
from tests.conftest import ROOT

Make = Callable[..., TrainConfig]


def folder_of(results: dict[str, Any], config: TrainConfig) -> Path:
    return Path(config.out) / str(results["name"])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = load_checkpoint(folder / "last.ckpt")["state_dict"]
    return state


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# ---------------------------------------------------------------------- the record


def test_a_run_leaves_everything_that_reports_read(config: Make) -> None:
    chosen = config(lam=0.5, beta=1e-3, epochs=3)
    results = train(chosen)
    folder = folder_of(results, chosen)
    assert folder.name.startswith("images-lenet-mixcon-l0.5-b0.001-s0-")
    assert json.loads((folder / "results.json").read_text()) == results
    assert {"config.yaml", "last.ckpt", "results.json", "training.png", "logs"} <= {p.name for p in folder.iterdir()}
    assert results["data"]["name"] == "images"
    assert (results["data"]["train"], results["data"]["validation"], results["data"]["test"]) == (57, 3, 30)
    assert results["model"] == {"name": "lenet", "cut": "pool2", "head": "default"}
    assert (results["defence"]["name"], results["defence"]["lambda"], results["defence"]["beta"]) == (
        "mixcon",
        0.5,
        1e-3,
    )
    assert 0 <= results["utility"]["accuracy"] <= 1
    assert 0 <= results["separability"]["min"] <= results["separability"]["mean"] <= results["separability"]["max"] <= 2
    assert results["attacks"] == results["worst_case"] == {}
    assert {"versions", "device", "seed", "seconds"} == set(results["environment"])
    assert [epoch["epoch"] for epoch in results["training"]["history"]] == [0, 1, 2]
    rows = list(csv.DictReader((folder / "logs" / "csv" / "version_0" / "metrics.csv").open()))
    assert {"train/loss", "train/mixcon", "val/accuracy"} <= set(rows[0])
    assert list((folder / "logs" / "tensorboard").rglob("events.out.tfevents.*"))


def test_it_learns(config: Make) -> None:
    results = train(config(lam=0.1, beta=1e-2, epochs=12, lr=0.1))
    history = results["training"]["history"]
    assert results["utility"]["accuracy"] > 0.9
    assert history[-1]["train/loss"] < history[0]["train/loss"] / 2


@pytest.mark.parametrize(("defence", "lam"), [("unicon", 1.0), ("none", 0.0), ("mixcon", 0.0)])
def test_the_other_defences_run(config: Make, defence: str, lam: float) -> None:
    results = train(config(defence=defence, lam=lam))
    assert results["defence"]["name"] == ("unicon" if defence == "unicon" else "none")
    assert results["defence"]["beta"] == 0


def test_a_checkpoint_gives_what_training_reported(config: Make) -> None:
    chosen = config(lam=1.0, epochs=3)
    results = train(chosen)
    checkpoint = load_checkpoint(folder_of(results, chosen) / "last.ckpt")
    module = SplitModule(**checkpoint["hyper_parameters"])
    module.load_state_dict(checkpoint["state_dict"])
    data = TensorDataModule(load(chosen.dataset, Path(".")), chosen.batch_size)
    assert measure_utility(module, data).accuracy == results["utility"]["accuracy"]
    victim = Victim.from_checkpoint(folder_of(results, chosen) / "last.ckpt")
    assert victim.encoder(torch.zeros(2, *victim.shape)).shape == (2, 16, 5, 5)
    assert not any(parameter.requires_grad for parameter in victim.encoder.parameters())


def test_the_recorded_config_is_the_same_run_again(config: Make, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = config(lam=0.5, trainer={"accelerator": "cpu", "gradient_clip_val": 1.0})
    folder = folder_of(train(chosen), chosen)
    assert yaml.safe_load((folder / "config.yaml").read_text())["lambda"] == 0.5
    capsys.readouterr()
    assert main(["--config", str(folder / "config.yaml")]) == 0
    assert f"already done: {folder}" in capsys.readouterr().out


# ---------------------------------------------------------------------- names


def test_names_tell_runs_apart_by_what_changes_a_result(config: Make) -> None:
    def name(**fields: Any) -> str:
        return config(**fields).run_name("mnist", "torchvision")

    assert name(lam=1.0) == name(lam=1.0, out="elsewhere", data_root="/data", force=True)
    different: list[dict[str, Any]] = [
        {"lam": 2.0},
        {"beta": 1e-3},
        {"seed": 1},
        {"cut": 1},
        {"lr": 0.1},
        {"epochs": 3},
        {"defence": "unicon"},
    ]
    assert len({name(lam=1.0), *(name(**{"lam": 1.0, **fields}) for fields in different)}) == len(different) + 1
    assert name(lam=0.0, beta=1e-2) == name(lam=0.0, beta=1e-5) == name(defence="none", lam=3.0), "there is one vanilla"
    chosen = config()
    assert chosen.run_name("mnist", "torchvision (on disk)") == chosen.run_name("mnist", "torchvision (downloaded)")
    assert chosen.run_name("a", "a.npz, sha256 1") != chosen.run_name("a", "a.npz, sha256 2")
    assert chosen.run_name("a", "a.npz, sha256 1") == chosen.run_name("a", "copy/a.npz, sha256 1")
    assert name(lam=1) == name(lam=1.0)
    assert name(trainer={"devices": "1", "precision": "32-true"}) == name(trainer={"devices": 1}) == name(trainer={})
    assert name(trainer={"devices": "2"}) == name(trainer={"devices": 2}) != name(trainer={})
    assert name(trainer={"precision": "bf16-mixed"}) != name(trainer={}) == name(trainer={"accelerator": "cpu"})


# ---------------------------------------------------------------------- again, forced, resumed


def test_a_finished_run_is_found_and_force_redoes_it(config: Make, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = config()
    folder = folder_of(train(chosen), chosen)
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    train(chosen)
    assert "already done" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == stamps
    before = weights(folder)
    train(config(force=True))
    assert equal(before, weights(folder)), "the same seed gives the same weights"
    assert (folder.parent / ".previous" / folder.name / "results.json").is_file()


def test_the_same_seed_gives_the_same_weights_bit_for_bit(config: Make, tmp_path: Path) -> None:
    runs = []
    for number, seed in enumerate((7, 7, 8)):
        chosen = config(seed=seed, lam=1.0, out=str(tmp_path / str(number)))
        runs.append(weights(folder_of(train(chosen), chosen)))
    assert equal(runs[0], runs[1])
    assert not equal(runs[0], runs[2])


def test_a_stopped_run_resumes_and_ends_where_an_unbroken_one_ends(
    config: Make, tmp_path: Path, power_cut: Callable[[TrainConfig, int], None]
) -> None:
    options: dict[str, Any] = {"epochs": 4, "lam": 1.0, "momentum": 0.9, "milestones": [2]}
    unbroken = config(**options, out=str(tmp_path / "unbroken"))
    expected = train(unbroken)
    broken = config(**options, out=str(tmp_path / "broken"))
    power_cut(broken, 2)
    folder = next((tmp_path / "broken").glob("images-*"))
    assert not (folder / "results.json").exists()
    results = train(broken)
    assert equal(weights(folder), weights(folder_of(expected, unbroken)))
    assert results["training"]["history"] == expected["training"]["history"]
    assert results["utility"] == expected["utility"]


def test_ctrl_c_keeps_the_last_epoch(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    step = SplitModule.training_step

    def ctrl_c(self: SplitModule, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch == 1:
            raise KeyboardInterrupt
        return step(self, batch, batch_idx)

    chosen = config(epochs=3)
    with monkeypatch.context() as patched:
        patched.setattr(SplitModule, "training_step", ctrl_c)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            train(chosen)
    (folder,) = Path(chosen.out).glob("images-*")
    assert load_checkpoint(folder / "last.ckpt")["epoch"] == 0
    assert len(train(chosen)["training"]["history"]) == 3


def arguments_of(out: Path, data: Path, *more: Any) -> list[str]:
    """What `train.py` is given for a few seconds of five epochs."""
    arguments = ["--dataset", data, "--epochs", 5, "--batch-size", 6, "--lambda", 1, "--out", out]
    return [str(each) for each in (*arguments, "--attacks", "none", *more)]


def start(out: Path, data: Path, *more: Any) -> subprocess.Popen[str]:
    """`train.py` on its own, in a process that can be stopped."""
    return subprocess.Popen(
        [sys.executable, "train.py", *arguments_of(out, data, *more)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore Ctrl-C
    )


def stop_in_epoch_3(process: subprocess.Popen[str], how: signal.Signals) -> str:
    """Send a signal in the middle of epoch 3, and wait; what was printed after it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 2/5"):
            break
    time.sleep(0.05)
    process.send_signal(how)
    return process.communicate(timeout=60)[0]


@pytest.mark.slow  # in a process of its own; tests/test_command_line.py sends the same signals to itself
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_say_that_nothing_is_lost(
    how: signal.Signals, code: int, npz: Callable[..., Path], tmp_path: Path
) -> None:
    process = start(tmp_path / "runs", npz(count=3000))
    assert "the same command goes on from there" in stop_in_epoch_3(process, how)
    assert process.returncode == code


def test_kill_9_in_the_middle_of_epoch_3_and_the_same_command_again(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = npz(count=1500)
    stop_in_epoch_3(start(tmp_path / "killed", data), signal.SIGKILL)
    (folder,) = (tmp_path / "killed").glob("images-*")
    assert not (folder / "results.json").exists()
    for out in ("killed", "unbroken"):
        assert main(arguments_of(tmp_path / out, data)) == 0
        output = capsys.readouterr().out
        assert "accuracy   distance" in output, output
        assert ("resuming after epoch 2 of 5" in output) == (out == "killed")
    assert equal(weights(folder), weights(tmp_path / "unbroken" / folder.name))
    assert not [path for path in folder.iterdir() if ".tmp" in path.name]


def test_two_processes_never_work_in_one_folder(config: Make) -> None:
    chosen = config()
    folder = folder_of(train(chosen), chosen)
    (folder / "results.json").unlink()
    lock = folder.parent / ".locks" / f"{folder.name}.lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import filelock, time; lock = filelock.FileLock({str(lock)!r}); lock.acquire(); "
            "print('held', flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(UserError, match="another process is working on"):
            train(chosen)
    finally:
        holder.kill()
        holder.wait()


def test_fast_dev_run_saves_nothing(config: Make) -> None:
    chosen = config(trainer={"accelerator": "cpu", "fast_dev_run": True})
    assert train(chosen)["utility"]["accuracy"] >= 0
    assert not Path(chosen.out).exists()


# ---------------------------------------------------------------------- what must not pass in silence


def test_a_penalty_that_never_moves_fails_the_run(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sweetspot.lightning_modules.defences.penalties.MixCon.penalty", lambda self, z, y, x: z.flatten()[0] * 0 + 0.25
    )
    chosen = config(lam=1.0)
    with pytest.raises(UserError, match=r"the mixcon penalty never moved: it was 0\.25"):
        train(chosen)
    assert not list(Path(chosen.out).rglob("results.json"))


def test_a_loss_that_is_no_number_stops_the_run(config: Make) -> None:
    with pytest.raises(UserError, match="the cross-entropy is no longer a finite number in epoch 1"):
        train(config(lr=1e20, epochs=5))


def test_a_penalty_without_a_path_to_the_cut_layer_fails_the_run(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sweetspot.lightning_modules.defences.penalties.MixCon.penalty",
        lambda self, z, y, x: z.detach().square().mean(),
    )
    with pytest.raises(UserError, match="does not depend on the cut layer"):
        train(config(lam=1.0))


def test_a_network_that_breaks_in_its_last_step_is_no_result(config: Make) -> None:
    """The loss of a step is taken before its update, so only the validation, or the test, can see it."""
    for fraction in (0.05, 0.0):
        chosen = config(lr=1e38, lam=0.0, epochs=1, batch_size=60, validation_fraction=fraction)
        for _ in range(2):
            with pytest.raises(UserError, match="finite"):
                train(chosen)


def test_nothing_trained_is_no_result(config: Make) -> None:
    with pytest.raises(UserError, match="not a single step"):
        train(config(trainer={"accelerator": "cpu", "limit_train_batches": 0}))


def test_unicon_needs_a_class_twice_and_gets_it_in_every_batch(config: Make, npz: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="--batch-size must be at least 4: unicon with 3 classes"):
        train(config(defence="unicon", batch_size=3))
    # 57 examples: a last batch of 3 would hold every class once
    history = train(config(defence="unicon", batch_size=6, epochs=1))["training"]["history"]
    assert history[0]["train/unicon"] > 0


def test_a_batch_that_mixcon_cannot_pair_whole_is_said(config: Make, capsys: pytest.CaptureFixture[str]) -> None:
    train(config(lam=1.0, batch_size=7, epochs=1))
    assert "1 of 7 examples of a batch enter no pair; --batch-size 9 pairs all" in capsys.readouterr().err
    train(config(lam=1.0, batch_size=9, epochs=1))
    assert "no pair" not in capsys.readouterr().err
    train(config(lam=0.0, batch_size=7, epochs=1))
    assert "no pair" not in capsys.readouterr().err
    assert TrainConfig().batch_size % 10 == 0, "the default pairs all of ten classes"


def test_networks_train_in_training_mode(
    config: Make, npz: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout and batch normalisation must be on, although the representations before training were looked at."""
    x = np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), dtype=np.uint8)
    y = np.arange(24) % 3
    modes, means = [], []
    step = SplitModule.training_step

    def spy(self: SplitModule, batch: Any, batch_idx: int) -> Any:
        modes.append(all(layer.training for layer in self.network.modules()))
        means.append(self.network.get_submodule("encoder.norm1_1").running_mean.sum().item())  # type: ignore[operator]
        return step(self, batch, batch_idx)

    monkeypatch.setattr(SplitModule, "training_step", spy)
    data = npz("colour.npz", x_train=x, x_test=x, y_train=y, y_test=y)
    train(config(dataset=str(data), network="vgg16-bn", batch_size=12, epochs=1, validation_fraction=0))
    assert modes == [True, True]
    assert means[0] != means[1]


def test_only_what_was_measured_in_an_epoch_stands_in_its_history(config: Make) -> None:
    chosen = config(epochs=3, trainer={"accelerator": "cpu", "check_val_every_n_epoch": 2})
    history = train(chosen)["training"]["history"]
    assert ["val/loss" in epoch for epoch in history] == [False, True, False]


# ---------------------------------------------------------------------- several devices


def on_devices(count: int, data: Path, out: Path, *more: Any) -> str:
    """`train.py` on so many CPU processes, three epochs over gloo; what it printed."""
    arguments = [
        "--dataset",
        data,
        "--epochs",
        3,
        "--batch-size",
        24,
        "--out",
        out,
        "--trainer.accelerator",
        "cpu",
        "--attacks",
        "none",
        *more,
    ]
    arguments += ["--trainer.devices", count, "--trainer.strategy", "ddp"]
    done = subprocess.run(
        [sys.executable, "train.py", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no distributed package")
def test_two_devices_without_a_penalty_equal_one(config: Make, npz: Callable[..., Path], tmp_path: Path) -> None:
    """The batch size is the whole batch, so the averaged gradients, and the weights, are those of one device."""
    data = npz("digits.npz", count=120)
    output = on_devices(2, data, tmp_path / "two", "--lambda", 0, "--validation-fraction", 0)
    (folder,) = (tmp_path / "two").glob("digits-*")
    results = json.loads((folder / "results.json").read_text())
    assert (len(results["training"]["history"]), results["training"]["devices"]) == (3, 2)
    assert output.count("data     digits") == 1, "only the first process speaks"
    alone = config(dataset=str(data), epochs=3, batch_size=24, lam=0.0, validation_fraction=0.0)
    one, two = weights(folder_of(train(alone), alone)), weights(folder)
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no distributed package")
@pytest.mark.slow  # two commands, each of them two processes
def test_two_processes_train_one_model_and_find_it_done(npz: Callable[..., Path], tmp_path: Path) -> None:
    """Both ranks get balanced halves of every batch, and one of them speaks and writes the run."""
    data, penalty = npz(count=120), ["--lambda", 1, "--beta", 1e-2, "--lr", 0.1]
    output = on_devices(2, data, tmp_path, *penalty)
    (folder,) = tmp_path.glob("images-*")
    history = json.loads((folder / "results.json").read_text())["training"]["history"]
    assert history[-1]["train/mixcon"] < history[0]["train/mixcon"]
    assert output.count("data     images") == 1, "only the first process speaks"
    assert "already done" in on_devices(2, data, tmp_path, *penalty)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this build of torch has no distributed package")
@pytest.mark.slow  # three commands, each of them two processes
def test_two_processes_go_on_where_they_were_stopped_and_attack_what_they_trained(
    npz: Callable[..., Path], tmp_path: Path
) -> None:
    """A run of two processes that is killed ends as an unbroken one, and its first process alone attacks it."""
    data = npz(count=3000)
    on_two = ["--batch-size", 24, "--trainer.accelerator", "cpu", "--trainer.devices", 2, "--trainer.strategy", "ddp"]
    process = start(tmp_path / "killed", data, *on_two)
    stop_in_epoch_3(process, signal.SIGKILL)  # the second process ends when it misses the first
    (folder,) = (tmp_path / "killed").glob("images-*")
    assert not (folder / "results.json").exists()
    attacked = ["--attacks", "whitebox/paper", "--samples", 4]
    for out in ("killed", "unbroken"):
        again = start(tmp_path / out, data, *on_two, *attacked)
        output, _ = again.communicate(timeout=300)
        assert again.returncode == 0, output
        assert ("resuming after epoch" in output) == (out == "killed")
        assert output.count("whitebox/paper: SSIM") == 1, "one process attacks"
    unbroken = tmp_path / "unbroken" / folder.name
    assert equal(weights(folder), weights(unbroken))
    killed, whole = (json.loads((each / "results.json").read_text()) for each in (folder, unbroken))
    assert killed["training"]["history"] == whole["training"]["history"]
    assert killed["attacks"].keys() == {"prototype", "label", "gallery", "whitebox/paper"}
    assert killed["attacks"]["whitebox/paper"]["scores"] == whole["attacks"]["whitebox/paper"]["scores"]
