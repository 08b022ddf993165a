"""The leaderboard: leaks read off a defence's frontier, entries as data, and the table that is made from them."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from sweetspot.commands.evaluate import main as evaluate_main
from sweetspot.commands.report import main
from sweetspot.commands.train import main as train_main
from sweetspot.reports.entries import Point, disagreements, entries_of, frontier, leak_at
from sweetspot.reports.gathering import gather
from sweetspot.reports.leaderboard import write_leaderboard
from sweetspot.runs.command_line import parse_train, train_parser
from sweetspot.runs.folder import Run
from tests.conftest import ROOT, refused_by

NOISE = {"name": "gaussian", "unit": "raw", "ramp": 0.25, "sigma": 1.0}
VANILLA: dict[str, Any] = {"name": "none", "lambda": 0.0, "beta": 0.0, "bottleneck": None, "release": []}
COST = {"client_macs": 300, "server_macs": 100, "client_parameters": 10, "server_parameters": 30, "server_gain": 0.015}
CERTIFICATE = {"nats": 1.2, "reid_bound": 0.2, "reid_bayes": 0.16, "gallery": 100, "unbiased_mse": 3.0, "queries": 1}


def compress(lam: float) -> dict[str, Any]:
    return {"name": "compress", "lambda": lam, "beta": 0.0, "bottleneck": "120-16", "release": [NOISE]}


def mixcon(lam: float, beta: float = 1e-9) -> dict[str, Any]:
    options = {"beta": beta, "epsilon": 1e-6, "family": "inverse", "normalise": True}
    return {"name": "mixcon", "lambda": lam, **options, "bottleneck": None, "release": []}


def figure(mean: float) -> dict[str, float]:
    return {"mean": mean, "std": 0.1, "worst": mean + 0.3, "worst_decile": mean + 0.2}


def made(
    folder: Path, defence: dict[str, Any], accuracy: float, leak: float | None, seed: int = 0, **changed: Any
) -> None:
    """A finished run: attacked by two attacks, of which the decoder gets all that leaks."""
    name = f"{defence['name']}-{defence['lambda']:g}-s{seed}-{changed.get('cut', 'pool2')}"
    options = {
        each: value for each, value in defence.items() if each not in ("name", "lambda", "bottleneck", "release")
    }
    options |= {each: value for part in defence["release"] for each, value in part.items() if each != "name"}
    if defence["name"] != "mixcon":
        options.pop("beta")

    def attack(leaked: float | None) -> dict[str, Any]:
        more = {} if leaked is None else {"leak": {"ssim": figure(leaked), "psim": figure(leaked)}}
        return {"ssim": figure(0.56 + 0.44 * (leaked or 0)), "samples": 100, **more}

    results = {
        "name": name,
        "data": {"name": "mnist", "source": "torchvision", "train": 57_000, "validation": 3000, "test": 10_000,
                 "shape": [1, 28, 28], "classes": 10},
        "model": {"name": "lenet", "cut": changed.get("cut", "pool2"), "head": "default"},
        "defence": defence,
        "utility": {"accuracy": accuracy},
        "separability": {"mean": 1.0},
        "attacks": {
            "whitebox/adaptive": {**attack(None if leak is None else leak / 2), "settings": {}},
            "decoder/adaptive": {**attack(leak), "settings": {"budget": "thorough"}},
        },
        "worst_case": {"attacks": ["decoder/adaptive", "whitebox/adaptive"], **attack(leak)},
        "config": {"seed": seed, "epochs": 20, "batch_size": 20, "lr": 0.01, "trainer": {}, "dataset": "mnist",
                   "network": "lenet", "cut": 2, "lambda": defence["lambda"], "defence": defence["name"],
                   "bottleneck": defence["bottleneck"], "release": [part["name"] for part in defence["release"]],
                   "budget": "normal", **options},
        "environment": {"versions": {}, "device": "cpu", "seconds": 1.0},
        "cost": COST, "certificate": CERTIFICATE if defence["release"] else None,
        "suite": {"name": "standard", "version": 1},
    }  # fmt: skip
    run = Run(folder / name)
    run.create()
    run.write_results(results | {key: value for key, value in changed.items() if key != "cut"})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Vanilla, compress at three strengths, MixCon that costs two points or more."""
    folder = tmp_path / "runs"
    made(folder, VANILLA, 0.990, 0.95)
    for lam, accuracy, leak in ((0.001, 0.985, 0.3), (0.01, 0.975, 0.1), (0.1, 0.95, 0.0)):
        made(folder, compress(lam), accuracy, leak)
    for lam, accuracy, leak in ((1.0, 0.970, 0.8), (10.0, 0.950, 0.6)):
        made(folder, mixcon(lam), accuracy, leak)
    return folder


def by_defence(folder: Path) -> dict[str, dict[str, Any]]:
    return {entry["defence"]: entry for entry in entries_of(gather([folder]).runs)[0]}


def test_leaks_are_read_off_the_frontier_between_its_points(runs: Path) -> None:
    entry = by_defence(runs)["compress + bottleneck 120-16 + gaussian"]
    # half of the way from (−0.5, .3) to (−1.5, .1), and three fifths of that from (−1.5, .1) to (−4, 0)
    assert entry["leak_at"] == {"-1": pytest.approx(0.2), "-3": pytest.approx(0.04)}
    assert (entry["accuracy"], entry["vanilla"], entry["leak"]) == (0.985, 0.99, 0.3)
    assert [point["strength"] for point in entry["frontier"]] == [
        f"compress({lam}) + bottleneck 120-16 + gaussian(1)" for lam in ("1e-3", "0.01", "0.1")
    ]
    assert entry["error"]["leak_at"]["-1"] == pytest.approx(2 * 0.1 / math.sqrt(100))


def test_a_defence_that_costs_more_has_no_leak_there(runs: Path) -> None:
    entries = by_defence(runs)
    assert entries["mixcon"]["leak_at"] == {"-1": None, "-3": pytest.approx(0.7)}
    assert entries["mixcon"]["accuracy"] == 0.97  # its figures are those of the most accurate one
    assert entries["vanilla"]["leak_at"] == {"-1": 0.95, "-3": 0.95}


def test_beaten_points_are_not_on_the_frontier() -> None:
    points = [Point((), 0.9, drop, leak, 0.1) for drop, leak in ((0.02, 0.5), (0.0, 0.6), (0.01, 0.7), (0.03, 0.5))]
    assert [point.drop for point in frontier(points)] == [0.0, 0.02]
    between = leak_at(frontier(points), 0.01)
    assert between is not None
    assert between == pytest.approx((0.55, 0.1))
    assert leak_at(frontier(points), 0.1) == (0.5, 0.1)  # nothing is guessed beyond the last point
    assert leak_at(frontier(points), -0.01) is None


def test_an_entry_says_what_it_is_what_it_costs_and_how_to_make_it_again(runs: Path) -> None:
    entry = by_defence(runs)["compress + bottleneck 120-16 + gaussian"]
    assert (entry["dataset"], entry["network"], entry["cut"], entry["metric"]) == ("mnist", "lenet", "pool2", "ssim")
    assert entry["options"]["release"] == [NOISE]
    assert entry["client_share"] == {"macs": 0.75, "parameters": 0.25}
    assert (entry["server_gain"], entry["suite"], entry["seeds"]) == (0.015, ["standard 1"], [0])
    assert (entry["certificate"]["nats"], entry["certificate"]["gallery"]) == (1.2, 100)
    assert entry["attacks"]["whitebox/adaptive"]["leak"]["ssim"] == {"mean": 0.15, "worst": 0.45}
    assert entry["worst_case"]["ssim"]["mean"] == pytest.approx(0.692)
    assert by_defence(runs)["vanilla"]["certificate"] is None
    assert by_defence(runs)["mixcon"]["options"]["beta"] == 1e-9


@pytest.mark.parametrize("kind", ["compress + bottleneck 120-16 + gaussian", "mixcon", "vanilla"])
def test_the_command_of_an_entry_asks_for_the_same_run(runs: Path, kind: str) -> None:
    entry = by_defence(runs)[kind]
    *_, train, attack = (shlex.split(command) for command in entry["commands"])
    assert "--lambda" in entry["commands"][0] or kind == "vanilla", "vanilla is trained first"
    assert train[:2] == ["python", "train.py"]
    config = parse_train(train_parser("python train.py", "", "", train[2:]), train[2:])
    assert {name: value for name, value in config.defence_record().items() if name != "name"} == entry["options"]
    assert (config.dataset, config.seed, config.epochs) == ("mnist", 0, 20)
    assert attack[:2] == ["python", "evaluate.py"]
    assert attack[3:] == ["--samples", "100", "--attacks", "standard", "--budget", "thorough"]


def test_seeds_are_compared_in_pairs_and_their_spread_is_the_error(tmp_path: Path) -> None:
    for seed, (vanilla, accuracy, leak) in enumerate(((0.99, 0.985, 0.1), (0.97, 0.965, 0.3))):
        made(tmp_path, VANILLA, vanilla, 0.9, seed)
        made(tmp_path, compress(0.01), accuracy, leak, seed)
    made(tmp_path, VANILLA, 0.90, 0.9, seed=7)  # a seed that only vanilla has must not count
    entry = by_defence(tmp_path)["compress + bottleneck 120-16 + gaussian"]
    assert entry["frontier"][0]["drop"] == pytest.approx(0.005)
    assert entry["seeds"] == [0, 1]
    assert entry["error"]["leak"] == pytest.approx(2 * 0.1)


def test_every_cut_has_an_entry_of_its_own_against_one_vanilla(runs: Path) -> None:
    made(runs, compress(0.01), 0.985, 0.2, cut="relu3")
    entries, left_out = entries_of(gather([runs]).runs)
    assert sorted(each["cut"] for each in entries if each["defence"].startswith("compress")) == ["pool2", "relu3"]
    assert len({each["name"] for each in entries}) == 4
    assert left_out == []


def test_the_table_is_sorted_by_the_leak_at_one_point(runs: Path, tmp_path: Path) -> None:
    board = write_leaderboard(gather([runs]).runs, tmp_path / "board.md")
    rows = [line.split(" | ") for line in board.markdown.read_text().splitlines() if line.startswith("| ")][2:]
    assert [row[0].removeprefix("| ") for row in rows] == [
        "compress + bottleneck 120-16 + gaussian",
        "vanilla",
        "mixcon",
    ]
    assert [row[2] for row in rows] == ["0.20 ± 0.02", "0.95 ± 0.02", "–"]
    assert len({len(row) for row in rows}) == 1
    assert "decoder/adaptive 0.30" in rows[0][7]
    assert rows[0][8] == "0.16 (≤ 0.20)"


def test_entries_of_other_runs_stay_and_those_of_the_same_defence_are_replaced(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "board.md"
    write_leaderboard(gather([runs]).runs, out)
    before = sorted((tmp_path / "board").glob("*.json"))
    others = tmp_path / "others"
    made(others, VANILLA, 0.990, 0.94)
    made(others, {**compress(0.01), "bottleneck": "16"}, 0.985, 0.25)
    write_leaderboard(gather([others]).runs, out)
    after = sorted((tmp_path / "board").glob("*.json"))
    assert len(after) == len(before) + 1  # vanilla is the same entry, with a new figure
    text = out.read_text()
    assert "0.94 ± 0.02" in text
    assert "0.95 ± 0.02" not in text
    assert "bottleneck 16" in text
    assert "bottleneck 120-16" in text


def test_a_leaderboard_grows_strength_by_strength_as_if_all_had_been_there_at_once(runs: Path, tmp_path: Path) -> None:
    whole, grown = tmp_path / "whole.md", tmp_path / "grown.md"
    write_leaderboard(gather([runs]).runs, whole)
    found = gather([runs]).runs
    for name in ("none-0", "compress-0.1", "compress-0.001", "compress-0.01", "mixcon"):
        write_leaderboard([run for run in found if run.name.startswith(f"{name}-")], grown)
    write_leaderboard([run for run in found if run.name.startswith("mixcon-10-")], grown)
    write_leaderboard([run for run in found if run.name.startswith("mixcon-1-")], grown)
    assert grown.read_text() == whole.read_text()
    entries = [
        {each.name: json.loads(each.read_text()) for each in tmp_path.glob(f"{n}/*")} for n in ("whole", "grown")
    ]
    assert entries[0] == entries[1]


def test_what_runs_may_say_since_later_gives_an_entry_another_name_only_where_it_is_said(tmp_path: Path) -> None:
    made(tmp_path, VANILLA, 0.990, 0.95)
    (run,) = gather([tmp_path]).runs
    names = [entries_of([run])[0][0]["name"]]
    for schedule in ("constant", "cosine"):
        run.results["config"]["schedule"] = schedule
        names.append(entries_of([run])[0][0]["name"])
    assert names[0] == names[1] != names[2]


def test_strengths_that_other_attacks_were_tried_on_do_not_join(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "board.md"
    write_leaderboard(gather([runs]).runs, out)
    others = tmp_path / "others"
    leaked: dict[str, Any] = {"ssim": figure(0.6), "leak": {"ssim": figure(0.25)}, "samples": 100, "settings": {}}
    worst = {"attacks": ["decoder/adaptive"], **leaked}
    made(others, compress(0.02), 0.985, 0.25, attacks={"decoder/adaptive": leaked}, worst_case=worst)
    write_leaderboard(gather([others]).runs, out)
    (file,) = (tmp_path / "board").glob("*compress*.json")
    assert [point["leak"] for point in json.loads(file.read_text())["frontier"]] == [0.25]


def test_a_stored_entry_is_held_to_its_stated_error(runs: Path) -> None:
    stored = by_defence(runs)["compress + bottleneck 120-16 + gaussian"]
    assert disagreements(stored, stored) == []
    near = {**stored, "leak": stored["leak"] + 0.9 * stored["error"]["leak"]}
    assert disagreements(stored, near) == []
    off = {**stored, "accuracy": stored["accuracy"] - 0.01, "leak_at": {"-1": None, "-3": stored["leak_at"]["-3"]}}
    lines = disagreements(stored, off)
    assert len(lines) == 2
    assert "accuracy is 0.975" in lines[0]
    assert "leak at -1 is None" in lines[1]


def test_the_command_writes_the_table_and_its_entries(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "docs.md"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "broken.json").write_text('{"name": "x"')
    (tmp_path / "docs" / "other.json").write_text('{"name": "x"}')
    made(runs, mixcon(100.0), 0.9, None)
    assert main([str(runs), "--leaderboard", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"leaderboard  {out}, 3 entries" in said
    assert "the leak of 1 run on mnist with lenet was not measured" in said
    assert "broken.json cannot be read" in said
    assert "other.json is no entry" in said
    entries = [json.loads(file.read_text()) for file in (tmp_path / "docs").glob("mnist-lenet-pool2-*.json")]
    assert len(entries) == 3


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    made(runs, VANILLA, 0.99, None)
    refused_by(main, capsys, "--leaderboard must end in .md", str(runs), "--leaderboard", str(tmp_path / "a.txt"))
    refused_by(main, capsys, "its folder is not there", str(runs), "--leaderboard", str(tmp_path / "no" / "a.md"))
    (tmp_path / "a").write_text("")
    refused_by(main, capsys, "which is no folder", str(runs), "--leaderboard", str(tmp_path / "a.md"))
    assert not (runs / "report.html").exists()
    refused_by(main, capsys, "was not measured", str(runs), "--leaderboard", str(tmp_path / "b.md"))
    made(tmp_path / "defended", compress(0.1), 0.9, 0.1)
    refused_by(main, capsys, "no vanilla run", str(tmp_path / "defended"), "--leaderboard", str(tmp_path / "b.md"))
    assert not (tmp_path / "b").exists()


@pytest.mark.slow
def test_a_stored_entry_comes_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = (ROOT / "docs" / "leaderboard").glob("mnist-5k-*.json")
    stored = json.loads(file.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sweetspot.evaluations.images.perceptual_or_none", lambda _: None)  # SSIM is enough
    for command in stored["commands"]:
        _, script, *argv = shlex.split(command)
        assert {"train.py": train_main, "evaluate.py": evaluate_main}[script](argv) == 0
    (found,) = entries_of(gather([Path("checkpoints")]).runs)[0]
    assert disagreements(stored, found) == []
    assert disagreements({**stored, "leak": stored["leak"] + 0.1}, found), "an entry that is off is found out"
