"""What the tests share: tiny datasets, one-second configs, and the command lines as a user runs them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from sweetspot.datamodules.tokens import train_bpe
from sweetspot.lightning_modules.causal_lm import gpt2_tiny
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train
from tests.documents import ROOT as ROOT  # for tests of every kind

os.environ.pop("SWEETSPOT_DATA", None)  # no test may lean on data that happen to lie on this machine


def refused_by(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], says: str, *argv: str) -> None:
    """Assert that a script ends with exit code 2 and one line that says why."""
    capsys.readouterr()
    assert main(list(argv)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert says in lines[0], lines[0]


@pytest.fixture
def npz(tmp_path: Path) -> Callable[..., Path]:
    """`npz(**arrays)` writes a small learnable image set, with any of its four arrays replaced (None: left out)."""

    def write(name: str = "images.npz", classes: int = 3, count: int = 60, **replaced: Any) -> Path:
        rng = np.random.default_rng(0)
        arrays: dict[str, Any] = {}
        for split, size in (("train", count), ("test", count // 2)):
            y = np.arange(size) % classes
            x = rng.integers(0, 60, (size, 28, 28), dtype=np.uint8)
            x[np.arange(size), 4 + 6 * y, :] = 255  # a bright row tells the class
            arrays[f"x_{split}"], arrays[f"y_{split}"] = x, y
        arrays = {key: value for key, value in {**arrays, **replaced}.items() if value is not None}
        path = tmp_path / name
        np.savez(path, **arrays)
        return path

    return write


@pytest.fixture
def config(npz: Callable[..., Path], tmp_path: Path) -> Callable[..., TrainConfig]:
    """`config(**fields)` is a run of a second on the small image set."""

    def make(**fields: Any) -> TrainConfig:
        defaults: dict[str, Any] = {
            "dataset": str(npz()),
            "epochs": 2,
            "batch_size": 12,
            "out": str(tmp_path / "runs"),
            "trainer": {"accelerator": "cpu"},
            "attacks": ["none"],
        }
        return TrainConfig.of(**{**defaults, **fields})

    return make


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[TrainConfig], Run]:
    """`run_of(config)` is a finished run on an .npz that nobody has attacked; the same one is trained once, and copied.

    A copy is what training would have left: its files name the config's own folder and data.
    """
    trained: dict[str, tuple[TrainConfig, str]] = {}

    def run(config: TrainConfig) -> Run:
        assert config.attacks == ["none"], "whoever attacks attacks a copy"
        data = Path(str(config.dataset))
        fields = {**config.flags(), "out": "", "dataset": hashlib.sha256(data.read_bytes()).hexdigest()}
        known = f"{data.name} {sorted(fields.items())}"
        if known not in trained:
            kept = dataclasses.replace(config, out=str(tmp_path_factory.mktemp("trained")))
            trained[known] = kept, str(train(kept)["name"])
        kept, name = trained[known]
        made = Run(Path(shutil.copytree(Path(kept.out) / name, Path(config.out) / name)))
        for file in (made.config, made.results):
            text = file.read_text(encoding="utf-8").replace(kept.out, config.out)
            file.write_text(text.replace(str(kept.dataset), str(config.dataset)), encoding="utf-8")
        return made

    return run


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[TrainConfig, int], None]:
    """`power_cut(config, epoch)` trains until the third batch of an epoch (from 0), and stops there."""

    def stop(config: TrainConfig, epoch: int) -> None:
        step = SplitModule.training_step

        def training_step(self: SplitModule, batch: Any, batch_idx: int) -> Any:
            if self.current_epoch == epoch and batch_idx == 2:
                raise RuntimeError("power cut")
            return step(self, batch, batch_idx)

        with monkeypatch.context() as patched:
            patched.setattr(SplitModule, "training_step", training_step)
            with pytest.raises(RuntimeError, match="power cut"):
                train(config)

    return stop


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`command("train.py", …)` runs a script as a user does, offline, from the repository's folder."""

    def run(script: str, *arguments: Any, timeout: float = 300, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(tmp_path), "COLUMNS": "120"}
        return subprocess.run(
            [sys.executable, script, *map(str, arguments)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of a few hundred sentences that a tiny language model learns in seconds."""
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    subjects, verbs = ("The value", "A name", "Every number", "One line"), ("is", "was", "becomes", "returns")
    lines = [f"{s} {v} a {o} of {n}." for s in subjects for v in verbs for o in ("list", "set") for n in range(12)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="session")
def gpt2_folder(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of 9 small blocks in a folder of the hub's layout, as `hf download gpt2 --local-dir DIR` leaves one."""
    path = tmp_path_factory.mktemp("hub") / "gpt2"
    tokenizer = train_bpe(corpus.read_text().splitlines(), vocabulary=300)
    gpt2_tiny(300, layers=9, width=32, heads=2, context=128).save_pretrained(path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, eos_token="<|endoftext|>").save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def text_config(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TrainConfig]:
    """`text_config(**fields)` is a text run of a few seconds."""
    out = str(tmp_path_factory.mktemp("text_runs"))

    def config(**fields: Any) -> TrainConfig:
        defaults: dict[str, Any] = {"network": "gpt2-tiny", "dataset": str(corpus), "optimiser": "adam", "lr": 2e-3}
        defaults |= {"epochs": 2, "batch_size": 8, "length": 16, "vocabulary": 300, "out": out, "lam": 0.1}
        return TrainConfig.of(**{**defaults, "trainer": {"accelerator": "cpu"}, "attacks": ["none"], **fields})

    return config


@pytest.fixture(scope="session")
def text_run(text_config: Callable[..., TrainConfig]) -> Path:
    """The folder of a finished text run that nobody has attacked; whoever attacks it takes a copy."""
    return Path(text_config().out) / str(train(text_config())["name"])
