"""40 odd checkpoints, and as many for evaluate.py: refused in one line, or gone on from, never a traceback."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sweetspot.commands import evaluate
from sweetspot.commands import train as training
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train
from tests.campaigns.counting import Tally, run_script, seeded
from tests.weak_attacks import weaken

pytestmark = pytest.mark.slow
ODD_VALUES: list[Any] = [
    None, True, -1, 10**6, 0.5, float("nan"), "", "<b>", [], ["a"], {}, {"a": 1}, torch.zeros(0), torch.ones(3),
    torch.full((), float("nan")), torch.ones(2, dtype=torch.int8),
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in nested lists and dictionaries."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def spoil(path: Path, sound: bytes, chance: random.Random) -> str:
    """Write a checkpoint with one thing wrong, and say which."""
    path.write_bytes(sound)
    how = chance.choice(["truncated", "flipped", "without", "changed", "changed", "changed"])
    if how == "truncated":
        path.write_bytes(sound[: (size := chance.randrange(len(sound)))])
        return f"truncated to {size}"
    if how == "flipped":
        content = bytearray(sound)
        spots = [chance.randrange(len(sound)) for _ in range(20)]
        for spot in spots:
            content[spot] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        return f"bits flipped at {spots}"
    checkpoint = load_checkpoint(path)
    *names, last = chance.choice([*places(checkpoint)])
    section: Any = checkpoint
    for name in names:
        section = section[name]
    if how == "without":
        del section[last]
    else:
        section[last] = chance.choice(ODD_VALUES)
    torch.save(checkpoint, path)
    return f"{how} {[*names, last]}" + (f" = {section[last]!r}" if how == "changed" else "")


def test_odd_checkpoints(
    config: Callable[..., TrainConfig],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weaken(monkeypatch)
    chosen = config(epochs=1)
    run = Run(Path(chosen.out) / train(chosen)["name"])
    sound, finished = run.checkpoint.read_bytes(), run.results.read_bytes()
    resumed = ["--config", str(run.config), "--out", chosen.out]
    attacked = [str(run.folder), "--attacks", "whitebox/paper", "--samples", "2", "--device", "cpu"]
    chance = seeded("odd checkpoints")
    resuming, attacking = Tally("odd checkpoints, resumed"), Tally("odd checkpoints, attacked")
    for _ in range(40):
        case = spoil(run.checkpoint, sound, chance)
        run.results.write_bytes(finished)
        attacking.count(case, run_script(evaluate.main, attacked, capsys, attacking))
        run.results.unlink()
        resuming.count(case, run_script(training.main, resumed, capsys, resuming))
    attacking.conclude(capsys)
    resuming.conclude(capsys)
