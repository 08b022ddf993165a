"""150 odd results.json: report.py skips and names what it cannot show, evaluate.py refuses it in one line."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweetspot.commands import evaluate, report
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train
from tests.campaigns.counting import Tally, run_script, seeded
from tests.weak_attacks import weaken

pytestmark = pytest.mark.slow
ODD_VALUES: list[Any] = [
    None, True, -1, 0, 5, 10**400, 1e308, 0.5, "", "x", "<b>", "\ud800", [], [[]], ["a", "b"], [1, 2], [None], {},
    {"mean": "a"}, {"a": 1}, {"mean": 1.0, "std": None, "worst": 2.0},
]  # fmt: skip
TEXTS = ["", "{", "[]", "null", "5", '"x"', '{"name": NaN}', '{"name": 1e400}', "[" * 5000, "\udcff", "{}", '{"a": 1}']


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in nested lists and dictionaries; of a long list to its first values."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def spoiled(results: dict[str, Any], chance: random.Random) -> tuple[str, dict[str, Any]]:
    """The results with one value replaced or taken out, and where."""
    odd = copy.deepcopy(results)
    *path, last = chance.choice([*places(results)])
    section: Any = odd
    for name in path:
        section = section[name]
    if chance.random() < 0.2:
        del section[last]
        return f"without {[*path, last]}", odd
    section[last] = chance.choice(ODD_VALUES)
    return f"{[*path, last]} = {str(section[last])[:30]!r}", odd


@pytest.mark.parametrize("kind", ["images", "text"])
def test_odd_results(
    kind: str,
    config: Callable[..., TrainConfig],
    text_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weaken(monkeypatch)
    chosen = config(attacks=["whitebox/paper"], samples=4)
    good = Run(Path(chosen.out) / train(chosen)["name"])
    odd = Run(Path(shutil.copytree(good.folder if kind == "images" else text_run, tmp_path / "odd" / "odd-run")))
    images, text = ["--attacks", "whitebox/paper", "--samples", "4"], ["--prompts", "2", "--channels", "fp16"]
    asked = [str(odd.folder), *(images if kind == "images" else text), "--device", "cpu"]
    assert evaluate.main(asked) == 0
    results = odd.read_results() | {"name": "odd-run"}
    chance, tally = seeded(f"odd {kind}"), Tally(f"odd results.json of {kind}")
    cases = [(repr(text[:20]), text.encode("utf-8", "surrogateescape")) for text in TEXTS]
    while len(cases) < 75:
        case, changed = spoiled(results, chance)
        cases.append((case, json.dumps(changed).encode()))
    for case, content in cases:
        odd.results.write_bytes(content)
        paths = [str(good.folder), str(odd.folder), "--out", str(tmp_path / "report.html")]
        tally.count(f"report.py, {case}", run_script(report.main, paths, capsys, tally))
        tally.count(f"evaluate.py, {case}", run_script(evaluate.main, asked, capsys, tally))
    tally.conclude(capsys)
