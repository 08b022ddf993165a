"""The command line as a user meets it: help, flags over files, and one line with exit code 2 for what is wrong."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

import sweetspot.datamodules.torchvision_sets as torchvision_sets
from sweetspot.commands import evaluate, report, sweep
from sweetspot.commands.train import main
from sweetspot.lightning_modules.networks import NETWORKS
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.registry import load_file
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.command_line import parse_train, train_parser
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from tests.conftest import ROOT, refused_by
from tests.documents import commands, files, users_files, write_files

Command = Callable[..., subprocess.CompletedProcess[str]]


def parse(*argv: str) -> TrainConfig:
    return parse_train(train_parser("python train.py", "", ""), argv)


# ---------------------------------------------------------------------- flags and files


def test_flags_win_over_files_and_files_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("lambda: 5\nbatch_size: 64\ntrainer:\n  precision: bf16-mixed\n")
    config = parse("--batch-size", "32", "--conf", str(file))
    assert (config.lam, config.batch_size, config.defence_options()["beta"]) == (5.0, 32, 1e-4)
    assert config.trainer["precision"] == "bf16-mixed"


def test_trainer_flags_reach_lightning() -> None:
    config = parse("--trainer.devices", "4", "--trainer.gradient_clip_val", "0.5")
    assert str(config.trainer["devices"]) == "4"
    assert config.trainer["gradient_clip_val"] == 0.5


@pytest.mark.parametrize(("given", "expected"), [("2", 2), ("conv1", "conv1")])
def test_a_cut_is_a_number_or_a_name(given: str, expected: int | str) -> None:
    assert parse("--cut", given).cut == expected


EXPERIMENTS = sorted((ROOT / "configs").glob("*.yaml"))
PAPER: dict[str, dict[str, Any]] = {
    "mnist": {"dataset": "mnist", "network": "lenet", "cut": 2, "lr": 0.01, "epochs": 20, "momentum": 0.0},
    "fashion_mnist": {"dataset": "fashion-mnist", "network": "lenet", "cut": 2, "lr": 0.01, "epochs": 20},
    "svhn": {"dataset": "svhn", "network": "lenet", "cut": 2, "lr": 0.01, "epochs": 20, "lam": 0.5, "beta": 1e-4},
    "cifar10_vgg16": {"network": "vgg16-bn", "cut": 2, "lr": 0.1, "momentum": 0.1, "weight_decay": 5e-4}
    | {"batch_size": 300, "epochs": 300, "milestones": [150, 250], "lam": 1.0, "beta": 1e-8},
    "gpt2": {"network": "gpt2", "dataset": "pydoc", "cut": 6, "optimiser": "adam", "lr": 5e-5},
    "gpt2_tiny": {"network": "gpt2-tiny", "dataset": "pydoc", "cut": 2, "optimiser": "adam"},
    "smollm2": {"network": "smollm2", "dataset": "pydoc", "cut": 8, "optimiser": "adam", "batch_size": 4},
    "synthetic": {"network": "mlp", "cut": 2, "lr": 0.1, "epochs": 20, "lam": 0.1, "beta": 0.01},
}


def test_every_experiment_has_its_settings_checked() -> None:
    assert {file.stem for file in EXPERIMENTS} == set(PAPER)


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_an_experiment_has_the_papers_settings_and_only_what_differs_from_the_defaults(file: Path) -> None:
    config = parse("--config", str(file))
    assert {name: config.flags()[name] for name in PAPER[file.stem]} == PAPER[file.stem]
    for name, value in yaml.safe_load(file.read_text()).items():
        assert value != TrainConfig().flags()[{"lambda": "lam"}.get(name, name)], f"{name} repeats the default"


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_an_experiment_runs(file: Path, npz: Callable[..., Path], gpt2_folder: Path, tmp_path: Path) -> None:
    sizes = dict.fromkeys(("synthetic", "gpt2_tiny", "gpt2", "smollm2"))
    size = (sizes | dict.fromkeys(("mnist", "fashion_mnist"), (28, 28))).get(file.stem, (32, 32, 3))
    data = "synthetic" if file.stem == "synthetic" else "pydoc"
    if size:
        x = np.random.default_rng(0).integers(0, 255, (60, *size), dtype=np.uint8)
        data = str(npz(x_train=x, x_test=x[:30]))
    arguments = ["--config", str(file), "--dataset", data, "--batch-size", "12", "--out", str(tmp_path / "runs")]
    arguments += ["--network", str(gpt2_folder)] if file.stem in ("gpt2", "smollm2") else []
    assert main([*arguments, "--trainer.fast_dev_run", "true", "--trainer.accelerator", "cpu"]) == 0


def test_print_config_shows_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--lambda", "3", "--config", "configs/synthetic.yaml", "--print_config"])
    assert not ended.value.code
    config = yaml.safe_load(capsys.readouterr().out)
    assert (config["lambda"], config["network"]) == (3.0, "mlp"), "a flag wins over a file, wherever it stands"


def help_of(script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> str:
    """What --help prints."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        script(["--help"])
    assert not ended.value.code
    return capsys.readouterr().out


def test_help_shows_examples_and_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(main, capsys)
    assert "python train.py --lambda 1 --beta 1e-4" in shown
    for flag in [
        "--lambda",
        "--beta",
        "--defence",
        "--dataset",
        "--network",
        "--cut",
        "--epochs",
        "--batch-size",
        "--lr",
        "--seed",
        "--data-root",
        "--limit-train",
        "--limit-test",
        "--out",
        "--config",
        "--print_config",
        "--force",
        "--attacks",
        "--samples",
        "--help-trainer",
    ]:
        assert flag in shown, flag


GROUPS = ["data", "network", "defence", "training", "attacks", "text", "run"]


def grouped_help(script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What --help says under each of its headings, in order."""
    parts = re.split(r"^(\S[^\n]*):\n", help_of(script, capsys), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        ("train", ["options", *GROUPS]),
        ("sweep", ["options", "sweep", *GROUPS]),
        ("evaluate", ["positional arguments", "options", "data", "attacks", "text", "run"]),
    ],
)
def test_help_is_grouped_and_ends_in_examples(
    name: str, headings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    groups = grouped_help({"train": main, "sweep": sweep.main, "evaluate": evaluate.main}[name], capsys)
    assert [*groups][: len(headings)] == headings
    assert [*groups][-1] == "examples"
    assert f"python {name}.py" in groups["examples"]
    assert "--attacks" in groups["attacks"]
    assert "--prompts" in groups["text"]
    assert "--device" in groups["run"]
    if name == "evaluate":
        return
    for flag in ("--lambda", "--bottleneck", "--release", "--sigma", "--beta", "--clusters"):
        assert flag in groups["defence"]
    assert "--limit-train" in groups["data"]
    assert "--cut" in groups["network"]
    assert "trainer" not in groups, "Lightning's own have a help of their own"
    assert not [name for name in ("options", *GROUPS) if "--trainer." in groups[name].replace("--trainer.* ", "")]


def test_help_shows_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    groups = {name: " ".join(text.split()) for name, text in grouped_help(main, capsys).items()}
    assert "passes over the training set (default: 20)" in groups["training"]
    assert "(default: lenet)" in groups["network"]
    assert "the standard deviation of the noise (default: 0.5)" in groups["defence"]
    assert "(default: standard)" in groups["attacks"]
    assert "None" not in "".join(groups[name] for name in GROUPS)


# ---------------------------------------------------------------------- wrong input: one line, exit code 2


def refused(capsys: pytest.CaptureFixture[str], says: str, *argv: str) -> None:
    refused_by(main, capsys, says, *argv)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--lambda", "-1"], "--lambda must be a number of at least 0; got -1"),
        (["--lambda", "nan"], "--lambda must be a finite number; got nan"),
        (["--lambda", "much"], "--lambda must be a finite number; got much"),
        (["--batch-size", "7.5"], "--batch-size must be a whole number; got 7.5"),
        (["--beta", "-1"], "--beta must be at least 0; got -1"),
        (["--beta", "inf"], "--beta must be a finite number; got inf"),
        (["--dataset", "nope"], "dataset must be one of"),
        (["--network", "resnet"], "network must be one of lenet, mlp, vgg16, vgg16-bn; got resnet"),
        (["--cut", "99"], "cut must be a block from 1 to 4"),
        (["--defence", "hope"], "there is no defence hope"),
        (["--family", "cubic"], "--family must be one of"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--batch-size", "1"], "--batch-size must be at least 2"),
        (["--lr", "-0.1"], "--lr must be"),
        (["--limit-train", "3"], "--limit-train must be at least 10"),
        (["--epsilon", "0"], "--epsilon"),
        (["--validation-fraction", "1"], "--validation-fraction"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--trainer.nonsense", "1"], "there is no flag --trainer.nonsense"),
        (["--config", "missing.yaml"], "--config missing.yaml is not there"),
        (["--config", "{lambda: 1}"], "--config {lambda: 1} is not there"),
        (["--config", "configs"], "--config configs is no regular file"),
        (["--dataset", "synthetic"], "--network mlp"),
        (["--network", "mlp"], "takes vectors"),
        (["--head", "wider"], "head must be default"),
        (["--seed", "4294967296"], "--seed must be at least 0 and below 2³²"),
        (["--cut", "²"], "cut must be a block"),
        (["--limit-test", "1"], "--limit-test must be at least 2"),
        (["--limit_train", "30"], "there is no flag --limit_train (did you mean --limit-train?)"),
        (["--bacth-size=20"], "there is no flag --bacth-size (did you mean --batch-size?)"),
        (["--trainer.max_stepz", "3"], "(did you mean --trainer.max_steps?)"),
        (["--trainer.max_epochs", "3"], "--trainer.max_epochs is set by sweetspot itself, by --epochs"),
        (["extra"], "extra belongs to no flag"),
        (["--trainer.max_time", "3"], "--trainer.max_time must be days:hours:minutes:seconds"),
        (["--trainer.max_steps", "x"], "--trainer.max_steps must be a whole number; got x"),
        (["--seed", "\udcff"], "is no text in UTF-8"),
        (["--defence", "none", "--lambda", "5"], "--lambda 5 weighs a penalty, and --defence none has none"),
        (["--lambda=1", "--defence", "none"], "--lambda 1 weighs a penalty"),  # also where it is the default
        (["--attacks", "text"], "--network lenet is a run on images or vectors, not on text"),
        (["--defence", "unicon", "--batch-size", "9"], "--batch-size must be at least 11: unicon with 10 classes"),
        (["--trainer.accelerator", "warp"], "--trainer.*"),
        (["--trainer.strategy", "ddp_spawn"], "use ddp"),
        (["--trainer.precision", "16-true"], "use 16-mixed"),
        (["--trainer.val_check_interval", "1000000"], "val_check_interval"),  # found out when it fits
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], says: str
) -> None:
    standard = [] if "--dataset" in argv else ["--dataset", "mnist-5k"]
    refused(capsys, says, *standard, *argv, "--out", str(tmp_path / "runs"))
    made = [path for path in tmp_path.rglob("*") if ".locks" not in path.parts and path != tmp_path / "runs"]
    assert not made, "nothing is made for a run that cannot be"
    assert not (tmp_path / "runs").exists() or "val_check_interval" in says


def test_a_refused_force_leaves_the_finished_run_where_it_is(
    capsys: pytest.CaptureFixture[str], config: Callable[..., TrainConfig], run_of: Callable[[TrainConfig], Run]
) -> None:
    chosen = config(lam=0.0)
    folder = run_of(chosen).folder
    wrong = ["--defence", "none", "--force", "--trainer.strategy", "ddp_spawn"]
    refused(capsys, "use ddp", *resume(chosen), *wrong)
    assert (folder / "results.json").is_file()


def test_a_weight_from_a_file_without_a_defence_is_said(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("lambda: 0.5\nbatch_size: 12\n")
    common = ["--dataset", str(npz()), "--trainer.fast_dev_run", "true", "--trainer.accelerator", "cpu"]
    assert main([*common, "--config", str(file), "--defence", "none"]) == 0
    assert "lambda 0.5 of the --config file does nothing" in capsys.readouterr().out
    for usual in (["--defence", "none", "--batch-size", "12"], ["--config", str(file), "--lambda", "0"]):
        assert main([*common, *usual]) == 0
        assert "does nothing" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "more", "says"),
    [
        ({"x_train": np.zeros((60, 28, 28), np.uint8)}, [], "warning: all 57 training inputs are the same"),
        ({}, ["--batch-size", "999999999"], "warning: --batch-size 999,999,999 is more than the 57 training examples"),
    ],
)
def test_data_that_teach_nothing_are_warned_of(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], tmp_path: Path, data: Any, more: list[str], says: str
) -> None:
    arguments = ["--dataset", str(npz(**data)), "--out", str(tmp_path / "runs"), "--trainer.accelerator", "cpu"]
    arguments += ["--epochs", "1", "--lambda", "0", "--attacks", "none"]
    assert main([*arguments, "--batch-size", "12"]) == 0
    assert ("warning" in capsys.readouterr().err) == bool(data)
    assert main([*arguments, *more, "--force"]) == 0
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == 1
    assert warned[0].startswith(says)


def test_mnist_without_data_or_network_never_falls_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchvision_sets, "reachable", lambda url: False)
    refused(capsys, "--data-root", "--dataset", "mnist", "--data-root", str(tmp_path), "--out", str(tmp_path / "runs"))
    assert not list(tmp_path.iterdir())


def test_the_data_root_comes_from_the_flag_else_the_environment_else_data(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse().root == Path("data")
    monkeypatch.setenv("SWEETSPOT_DATA", "/somewhere")
    assert parse().root == Path("/somewhere")
    assert parse("--data-root", "here").root == Path("here")


def test_a_wrong_npz_is_one_line(capsys: pytest.CaptureFixture[str], npz: Callable[..., Path]) -> None:
    refused(capsys, "the array x_test is missing", "--dataset", str(npz(x_test=None)))


def test_an_unwritable_out_is_one_line(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], tmp_path: Path
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("precious")
    refused(capsys, "cannot be written", "--dataset", str(npz()), "--out", str(occupied / "runs"))
    assert occupied.read_text() == "precious"
    if os.geteuid() != 0:  # root may write anywhere
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        refused(capsys, "cannot be written", "--dataset", str(npz()), "--out", str(locked))


BY_NAME = "must hold flags by name"
BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("seed: null", "--seed must be int; got None"),
        ("epochs: null", "--epochs must be int; got None"),
        ("network: null", "--network must be str; got None"),
        ("milestones: null", "milestones in odd.yaml must be a list"),
        ("trainer: null", "trainer must hold arguments of Lightning's Trainer by name; got None"),
        ("trainer: 5", "trainer must hold arguments of Lightning's Trainer by name; got 5"),
        ("trainer: [1]", "trainer must hold arguments of Lightning's Trainer by name; got [1]"),
        ("epochs: true", "--epochs must be a whole number; got True (in odd.yaml)"),
        ("force: maybe", "--force must be bool; got 'maybe'"),
        ("lambda: [1]", "--lambda must be a finite number; got [1] (in odd.yaml)"),
        ("nonsense: 1", "there is no nonsense for --config odd.yaml to set"),
        ("batch-size: 5", "there is no batch-size for --config odd.yaml to set (did you mean batch_size?)"),
        ("trainer: {max_step: 5}", "(did you mean trainer.max_steps?)"),
        ("trainer: {max_epochs: 5}", "sweetspot sets it, by epochs"),
        ("1: 2", "there is no 1 for --config odd.yaml to set"),
        ("{", "--config odd.yaml, line 1: expected the node content"),
        ("- 1", BY_NAME),
        ("", BY_NAME),
        ("# nothing", BY_NAME),
        (BOMB, "--config odd.yaml, line 2: an alias (*name) is not taken"),
        ("[" * 2000, "--config odd.yaml, line 1: it is nested more than 20 deep"),
        ("lambda: " + "[" * 2000 + "]" * 2000, "nested more than 20 deep"),
        ("epochs: 1\nlambda: 1\nlambda: 5", "--config odd.yaml, line 3: lambda stands there twice"),
        ("trainer: {max_steps: 1, max_steps: 2}", "line 1: max_steps stands there twice"),
        ("lambda: 1 # " + "x" * 1_000_000, "--config odd.yaml holds more than 1 MB"),
        (bytes(range(256)), "--config odd.yaml is no text in UTF-8"),
        (b"lambda: \x07", "--config odd.yaml is no YAML"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_odd_config_file_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | bytes,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    for given in (["--config", "odd.yaml"], ["--config=odd.yaml"]):
        refused(capsys, says, *given, "--dataset", "mnist-5k", "--out", "runs")
    assert not Path("runs").exists()


def test_a_pipe_as_config_file_is_refused_and_not_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    refused(capsys, "is no regular file", "--config", str(tmp_path / "pipe.yaml"))


@pytest.mark.parametrize(
    ("script", "wrong", "right"),
    [
        (evaluate.main, "--sampels", "--samples"),
        (report.main, "--metrc", "--metric"),
        (sweep.main, "--lamda", "--lambda"),
    ],
    ids=["evaluate", "report", "sweep"],
)
def test_every_script_says_which_flag_was_perhaps_meant(
    script: Callable[[list[str]], int], wrong: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [] if script is sweep.main else ["here"]
    refused_by(script, capsys, f"there is no flag {wrong} (did you mean {right}?)", *runs, wrong, "3")


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork"])
def test_spawned_processes_are_refused(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], strategy: str
) -> None:
    refused(
        capsys, "use ddp", "--dataset", str(npz()), "--trainer.fast_dev_run", "true", "--trainer.strategy", strategy
    )


# ---------------------------------------------------------------------- checkpoints that are not sound


class Malicious:
    """A pickle that would make a file when loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


@pytest.fixture
def unfinished(config: Callable[..., TrainConfig], run_of: Callable[[TrainConfig], Run]) -> tuple[TrainConfig, Path]:
    """A run with a checkpoint but without results: the next command would resume it."""
    chosen = config()
    run = run_of(chosen)
    run.results.unlink()
    return chosen, run.folder


def resume(chosen: TrainConfig) -> list[str]:
    arguments = [
        "--dataset",
        str(chosen.dataset),
        "--epochs",
        str(chosen.epochs),
        "--batch-size",
        str(chosen.batch_size),
    ]
    return [*arguments, "--out", chosen.out, "--trainer.accelerator", "cpu", "--attacks", "none"]


def test_a_truncated_checkpoint_is_one_line(
    capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path]
) -> None:
    chosen, folder = unfinished
    for size in (0, 100, 5000):
        damaged = (folder / "last.ckpt").read_bytes()[:size]
        (folder / "last.ckpt").write_bytes(damaged)
        refused(capsys, "is truncated or damaged; remove it", *resume(chosen))
        assert (folder / "last.ckpt").read_bytes() == damaged, "it is the user's to remove"


@pytest.mark.parametrize("zipped", [True, False], ids=["torch's format", "a bare pickle"])
def test_a_malicious_checkpoint_does_not_run(
    capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path], tmp_path: Path, zipped: bool
) -> None:
    chosen, folder = unfinished
    target = tmp_path / "executed"
    content = {"state_dict": {}, "epoch": Malicious(target)}
    if zipped:
        torch.save(content, folder / "last.ckpt")
    else:
        (folder / "last.ckpt").write_bytes(pickle.dumps(content))
    refused(capsys, "refused", *resume(chosen))
    assert not target.exists()


@pytest.mark.parametrize("without", ["epoch", "history", "pytorch-lightning_version", "loops"])
def test_a_checkpoint_that_lacks_a_part_is_one_line(
    capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path], without: str
) -> None:
    chosen, folder = unfinished
    checkpoint = load_checkpoint(folder / "last.ckpt")
    del checkpoint[without]
    torch.save(checkpoint, folder / "last.ckpt")
    refused(capsys, "is not one of sweetspot's", *resume(chosen))


def test_a_checkpoint_of_another_network_is_one_line(
    capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path]
) -> None:
    chosen, folder = unfinished
    checkpoint = load_checkpoint(folder / "last.ckpt")
    checkpoint["state_dict"]["network.head.fc3.bias"] = torch.zeros(5)
    torch.save(checkpoint, folder / "last.ckpt")
    refused(capsys, "holds another network", *resume(chosen))


def without(checkpoint: dict[str, Any], *path: Any) -> None:
    """Take the last of these names out of a checkpoint."""
    *names, last = path
    for name in names:
        checkpoint = checkpoint[name]
    del checkpoint[last]


ODD_CHECKPOINTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "state_dict: None": lambda held: held.update(state_dict=None),
    "state_dict of texts": lambda held: held.update(state_dict=dict.fromkeys(held["state_dict"], "x")),
    "epoch: a text": lambda held: held.update(epoch="abc"),
    "epoch: true": lambda held: held.update(epoch=True),
    "epoch: negative": lambda held: held.update(epoch=-3),
    "global_step: None": lambda held: held.update(global_step=None),
    "loops without fit_loop": lambda held: without(held, "loops", "fit_loop"),
    "loops: a text": lambda held: held.update(loops="<b>"),
    "fit_loop without its state": lambda held: held["loops"].update(fit_loop={}),
    "optimizer_states: None": lambda held: held.update(optimizer_states=None),
    "optimizer_states: empty": lambda held: held.update(optimizer_states=[]),
    "optimizer_states of texts": lambda held: held.update(optimizer_states=["x"]),
    "optimizer_states without groups": lambda held: without(held, "optimizer_states", 0, "param_groups"),
    "optimizer_states of fewer weights": lambda held: held["optimizer_states"][0].update(param_groups=[{"params": []}]),
    "no optimizer_states": lambda held: without(held, "optimizer_states"),
    "lr_schedulers: a number": lambda held: held.update(lr_schedulers=5),
    "callbacks: a text": lambda held: held.update(callbacks="x"),
    "history: a text": lambda held: held.update(history="<b>"),
    "history of texts": lambda held: held.update(history=["<b>"]),
    "history without epochs": lambda held: held.update(history=[{"train/loss": 1.0}]),
    "version: a number": lambda held: held.update({"pytorch-lightning_version": 5}),
    "version: a word": lambda held: held.update({"pytorch-lightning_version": "new"}),
}


@pytest.mark.parametrize("what", ODD_CHECKPOINTS)
def test_a_checkpoint_with_an_odd_part_is_one_line_whose_advice_works(
    what: str, capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path]
) -> None:
    chosen, folder = unfinished
    checkpoint = load_checkpoint(folder / "last.ckpt")
    checkpoint["epoch"] = 0
    checkpoint["loops"] = {**checkpoint["loops"]}
    ODD_CHECKPOINTS[what](checkpoint)
    torch.save(checkpoint, folder / "last.ckpt")
    refused(capsys, "remove it, and the same command starts the run anew", *resume(chosen))
    (folder / "last.ckpt").unlink()
    assert main(resume(chosen)) == 0


def test_a_folder_in_the_place_of_a_checkpoint_is_one_line(
    capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path]
) -> None:
    chosen, folder = unfinished
    (folder / "last.ckpt").unlink()
    (folder / "last.ckpt").mkdir()
    refused(capsys, "last.ckpt is no file; remove it", *resume(chosen))


def test_a_checkpoint_of_something_else_is_one_line(
    capsys: pytest.CaptureFixture[str], unfinished: tuple[TrainConfig, Path]
) -> None:
    chosen, folder = unfinished
    torch.save([1, 2, 3], folder / "last.ckpt")
    refused(capsys, "is not one of sweetspot's", *resume(chosen))


@pytest.mark.parametrize("written", ["attacks: whitebox", "attacks: {a: 1}", "recipe: paper"])
def test_one_name_where_several_belong_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, written: str
) -> None:
    (tmp_path / "mine.yaml").write_text(written)
    refused(capsys, "must be a list, such as", "--config", str(tmp_path / "mine.yaml"))


def test_a_device_that_is_not_there_is_found_out_before_training(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], tmp_path: Path
) -> None:
    refused(capsys, "--device warp", "--dataset", str(npz()), "--out", str(tmp_path / "runs"), "--device", "warp")
    assert not (tmp_path / "runs").exists()


def test_a_reader_who_leaves_early_sees_no_traceback() -> None:
    shell = f"{sys.executable} train.py --lambda 1 --print_config | head -1"
    ended = subprocess.run(["bash", "-c", f"set -o pipefail; {shell}"], cwd=ROOT, capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.returncode in (0, 141)


def test_the_shell_sees_one_line_and_exit_code_2(command: Command) -> None:
    wrong = command("train.py", "--lambda", "-1")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_lightnings_own_complaint_is_one_line(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], tmp_path: Path
) -> None:
    wrong = ["--trainer.accelerator", "warp"]
    refused(capsys, "--trainer.*", "--dataset", str(npz()), "--out", str(tmp_path / "runs"), *wrong)


# ---------------------------------------------------------------------- disks, folders and signals


def test_a_dataset_whose_name_is_too_long_for_a_run_is_one_line(
    capsys: pytest.CaptureFixture[str], npz: Callable[..., Path], tmp_path: Path
) -> None:
    data = npz("d" * 250 + ".npz")
    refused(capsys, "is too long for a folder; rename the dataset", "--dataset", str(data), "--out", str(tmp_path))


@pytest.mark.parametrize("when", ["on_train_epoch_start", "on_train_end"])
def test_a_folder_that_goes_away_while_it_is_trained_is_one_line(
    when: str, capsys: pytest.CaptureFixture[str], config: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = config()
    monkeypatch.setattr(SplitModule, when, lambda self: shutil.rmtree(chosen.out))
    capsys.readouterr()
    assert main(resume(chosen)) == 2
    assert "not there any more" in (said := capsys.readouterr().err) or "was removed" in said
    assert said.count("\n") == 1, said


@pytest.mark.parametrize(
    ("how", "code", "says"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "stopped")]
)
def test_a_signal_ends_a_command_with_its_code_and_a_line_that_it_goes_on(
    how: signal.Signals,
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    unfinished: tuple[TrainConfig, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen, folder = unfinished
    before = signal.getsignal(signal.SIGTERM)
    step = SplitModule.training_step
    (folder / "last.ckpt").unlink()

    def stopped(self: SplitModule, *arguments: Any) -> Any:
        if self.current_epoch == 1:
            signal.raise_signal(how)
        return step(self, *arguments)

    of_pytest = signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning leaves Ctrl-C switched off
    try:
        with monkeypatch.context() as patched:
            patched.setattr(SplitModule, "training_step", stopped)
            capsys.readouterr()
            assert main(resume(chosen)) == code
    finally:
        signal.signal(signal.SIGINT, of_pytest)
    assert capsys.readouterr().err == f"{says}; what was finished is kept, and the same command goes on from there\n"
    assert signal.getsignal(signal.SIGTERM) is before
    assert main(resume(chosen)) == 0
    assert "resuming after epoch 1 of 2" in capsys.readouterr().out


# ---------------------------------------------------------------------- the documents


@pytest.mark.parametrize("argv", commands("train"), ids=" ".join)
def test_a_command_of_the_documents_runs(
    argv: list[str], npz: Callable[..., Path], gpt2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written, but for one batch, on one CPU, and on small data or a small model where it would need a download."""
    colour = "cifar10" in " ".join(argv) or "torchvision:resnet18" in argv
    if users_files(argv):
        write_files(tmp_path)
        monkeypatch.chdir(tmp_path)
    if "--weights" in argv:
        model = load_file(str(tmp_path / "my_model.py")).build((1, 28, 28), 3)
        save_file(model.state_dict(), tmp_path / argv[argv.index("--weights") + 1])
    x = np.random.default_rng(0).integers(0, 255, (60, 32, 32, 3) if colour else (60, 28, 28), dtype=np.uint8)
    real_weights = {"configs/gpt2.yaml", "configs/smollm2.yaml"} & set(argv)
    brings_its_own = real_weights or {"configs/synthetic.yaml", "configs/gpt2_tiny.yaml"} & set(argv)
    data = [] if brings_its_own else ["--dataset", str(npz(x_train=x, x_test=x[:30]))]
    data += ["--network", str(gpt2_folder)] if real_weights else []
    small = ["--batch-size", "12", "--trainer.devices", "1", "--trainer.accelerator", "cpu"]
    assert main([*argv, *data, *small, "--trainer.fast_dev_run", "true", "--out", str(tmp_path / "runs")]) == 0


def test_a_network_that_the_documents_add_trains_at_every_cut(npz: Callable[..., Path], tmp_path: Path) -> None:
    """Copied from the page, beside the penalty that it adds."""
    write_files(tmp_path)
    arguments = ["--dataset", str(npz()), "--epochs", "1", "--batch-size", "12", "--out", str(tmp_path / "runs")]
    arguments += ["--attacks", "none", "--defence", f"{tmp_path / 'my_defences.py'}:Shrink", "--power", "3"]
    try:
        exec(files()["lightning_modules/networks/tiny.py"], {})
        for cut in ("1", "2", "flatten"):
            assert main([*arguments, "--network", "tiny", "--cut", cut]) == 0
    finally:
        NETWORKS.pop("tiny", None)
