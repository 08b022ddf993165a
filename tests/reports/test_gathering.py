"""What lies in a folder of runs, and what is said about what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweetspot.errors import UserError
from sweetspot.reports.gathering import gather
from sweetspot.runs.folder import Run
from tests.reports.settings import found_run


def put(folder: Path, lam: float = 1.0) -> Run:
    """A finished run in a folder of its own."""
    run = Run(folder)
    run.create()
    run.write_results(found_run(lam, 1e-2, 0.98, 0.2).results)
    return run


def test_runs_are_found_at_any_depth_once_and_hidden_ones_are_not(tmp_path: Path) -> None:
    put(tmp_path / "a" / "one")
    put(tmp_path / "two", lam=2.0)
    put(tmp_path / ".previous" / "old")
    found = gather([tmp_path, tmp_path / "two", tmp_path / "a" / "one" / "results.json"])
    assert sorted(run.name for run in found.runs) == ["one", "two"]


def test_a_broken_run_is_named_and_the_others_are_taken(tmp_path: Path) -> None:
    put(tmp_path / "good", lam=2.0)
    put(tmp_path / "cut").results.write_text('{"name": "cut", "da')
    strange = put(tmp_path / "strange")
    results = json.loads(strange.results.read_text())
    del results["defence"]["lambda"]
    strange.write_results(results)
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert len(found.skipped) == 2
    assert "cut/results.json cannot be read" in found.skipped[0]
    assert "strange/results.json cannot be read (no defence.lambda in it)" in found.skipped[1]


def test_failed_and_unfinished_runs_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path / "good")
    for name in ("failed", "begun"):
        Run(tmp_path / name).create()
        Run(tmp_path / name).write_config({"lambda": 1})
    failure = {"name": "failed", "error": "no luck", "defence": {"name": "mixcon"}, "config": {}}
    Run(tmp_path / "failed").write_failure(failure)
    found = gather([tmp_path])
    assert (found.failed, found.unfinished) == ([failure], ["begun"])


def test_batches_out_of_gradients_are_found_and_other_json_is_not(tmp_path: Path) -> None:
    put(tmp_path / "good")
    (tmp_path / "batch.json").write_text(json.dumps({"network": {}, "recovered": {}, "verdict": "exact", "data": {}}))
    (tmp_path / "shopping.json").write_text("[1, 2]")
    assert [each.file.name for each in gather([tmp_path]).gradients] == ["batch.json"]


def test_a_folder_without_runs_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no finished run; train\.py and sweep\.py make them"):
        gather([tmp_path])
    with pytest.raises(UserError, match="there is no folder"):
        gather([tmp_path / "nowhere"])
    put(tmp_path / "cut").results.write_text("{")
    with pytest.raises(UserError, match="holds no finished run that can be read"):
        gather([tmp_path])


def test_a_copy_is_no_other_seed(tmp_path: Path) -> None:
    put(tmp_path / "runs" / "one")
    put(tmp_path / "backup" / "one")
    found = gather([tmp_path])
    assert len(found.runs) == 1
    assert "holds the same run as" in found.skipped[0]


def test_a_run_that_was_lost_in_an_attack_counts_as_failed_too(tmp_path: Path) -> None:
    run = put(tmp_path / "one")
    failure = {"name": "one", "error": "no luck", "defence": {"name": "mixcon"}, "config": {}}
    run.write_failure(failure)
    found = gather([tmp_path])
    assert (len(found.runs), found.failed) == (1, [failure])


ODD: dict[str, tuple[tuple[str, ...], Any]] = {
    "utility.accuracy": (("utility", "accuracy"), None),
    "data.shape": (("data", "shape"), ["a"]),
    "worst_case.ssim": (("worst_case", "ssim"), {}),
    "worst_case.attacks": (("worst_case", "attacks"), 3),
    "attacks.whitebox/adaptive.ssim": (("attacks", "whitebox/adaptive", "ssim", "std"), None),
    "attacks.whitebox/adaptive.seconds": (("attacks", "whitebox/adaptive", "seconds"), "long"),
    "attacks.whitebox/adaptive.inputs": (("attacks", "whitebox/adaptive", "inputs"), [[0]]),
    "attacks.whitebox/adaptive.scores.ssim": (("attacks", "whitebox/adaptive", "scores"), {"ssim": 1}),
    "attacks.whitebox/adaptive.scores.psnr": (("attacks", "whitebox/adaptive", "scores", "psnr"), ["a"] * 8),
    "attacks.whitebox/adaptive.scores.mse": (("attacks", "whitebox/adaptive", "scores", "mse"), [0.5]),
    "data.test": (("data", "test"), "x"),
    "config.seed": (("config", "seed"), True),
    "attacks.whitebox/adaptive.recovered": (("attacks", "whitebox/adaptive", "recovered"), ["text"]),
    "attacks.whitebox/adaptive.channels.fp16": (("attacks", "whitebox/adaptive", "channels"), {"fp16": {}}),
    "attacks.whitebox/adaptive": (("attacks", "whitebox/adaptive"), []),
}


def test_a_worst_case_over_an_attack_that_is_not_there_is_named_and_skipped(tmp_path: Path) -> None:
    put(tmp_path / "good", lam=2.0)
    odd = put(tmp_path / "odd")
    results = json.loads(odd.results.read_text())
    results["worst_case"]["attacks"].append("whitebox/gone")
    odd.write_results(results)
    (line,) = gather([tmp_path]).skipped
    assert line.startswith(f"{odd.results} cannot be read (its worst_case.attacks is not")


@pytest.mark.parametrize("what", ODD)
def test_a_run_with_one_odd_value_is_named_and_skipped(what: str, tmp_path: Path) -> None:
    put(tmp_path / "good", lam=2.0)
    odd = put(tmp_path / "odd")
    results = json.loads(odd.results.read_text())
    (*path, last), value = ODD[what]
    section = results
    for name in path:
        section = section[name]
    section[last] = value
    odd.write_results(results)
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    (line,) = found.skipped
    assert line.startswith(
        (f"{odd.results} cannot be read (no {what} in", f"{odd.results} cannot be read (its {what} is")
    )


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400])
def test_a_run_with_a_number_that_no_float_holds_is_named_and_skipped(number: str, tmp_path: Path) -> None:
    put(tmp_path / "good", lam=2.0)
    odd = put(tmp_path / "odd")
    text = odd.results.read_text()
    results = json.loads(text)
    odd.results.write_text(text.replace(f'"accuracy": {results["utility"]["accuracy"]}', f'"accuracy": {number}'))
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert str(odd.results) in found.skipped[0]


@pytest.mark.parametrize("text", ['{"name": NaN}', "[" * 100_000, "\udcff", '{"name": 1'])
def test_what_is_no_json_of_ours_is_skipped(text: str, tmp_path: Path) -> None:
    put(tmp_path / "good", lam=2.0)
    odd = put(tmp_path / "odd")
    odd.results.write_bytes(text.encode("utf-8", "surrogateescape"))
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert f"{odd.results} cannot be read" in found.skipped[0]
