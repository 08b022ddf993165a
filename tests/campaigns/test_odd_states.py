"""40 odd --states: what invert.py cannot take, it refuses in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sweetspot.commands import invert
from tests.campaigns.counting import Tally, run_script, seeded

pytestmark = pytest.mark.slow
M, D = 60, 4


def sound() -> dict[str, Any]:
    """A gradient of a tiny network, as a client sends it."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in {"w": (M, D), "a": (M,), "grad_w": (M, D), "grad_a": (M,)}.items()}  # fmt: skip


def odd_tensors(tensor: Tensor) -> dict[str, Any]:
    """What may stand in the place of a tensor."""
    return {
        "sparse": tensor.to_sparse(),
        "meta": tensor.to("meta"),
        "quantised": torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        "complex": tensor.to(torch.complex64),
        "bool": tensor > 0,
        "half": tensor.half(),
        "NaN": tensor * float("nan"),
        "empty": tensor[:0],
        "another shape": tensor[:3],
        "a number": 5,
        "a text": "x",
        "None": None,
        "a list": [1.0, 2.0],
        "zeros": tensor * 0,
        "huge": tensor * 1e300,
    }


def write_odd(path: Path, number: int) -> str:
    """Write the n-th odd file, and say what is odd about it."""
    chance, states = seeded(f"odd states {number}"), sound()
    name = chance.choice([*states])
    kinds = odd_tensors(states[name])
    if number % 3 == 0:
        whole: dict[str, Any] = {"a list": [1, 2], "a tensor": states["w"], "a number": 5, "nothing": None, "{}": {}}
        whole |= {"sparse": states["w"].to_sparse(), "without": {k: v for k, v in states.items() if k != name}}
        what = chance.choice([*whole])
        torch.save(whole[what], path)
    elif number % 3 == 1:
        torch.save(states, path)
        content = path.read_bytes()
        path.write_bytes(content[: chance.randrange(len(content))])
        what = f"{path.stat().st_size} of {len(content)} bytes"
    else:
        what = chance.choice([*kinds])
        torch.save({**states, name: kinds[what]}, path)
    return what if number % 3 < 2 else f"{name}: {what}"


def test_odd_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("odd --states of invert.py gradient")
    for number in range(40):
        path = tmp_path / "states.pt"
        case = write_odd(path, number)
        argv = ["gradient", "--states", str(path), "--activation", "tanh", "--batch", "2", "--device", "cpu"]
        tally.count(case, run_script(invert.main, argv, capsys, tally))
    tally.conclude(capsys)
