"""Sweeps as a user runs them, on a real Ray: finished cells stay, kills lose nothing, a failure stops nobody."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml

from sweetspot.commands.sweep import main
from sweetspot.lightning_modules.defences import PENALTIES, RELEASES
from sweetspot.runs.config import TrainConfig
from sweetspot.sweeps.config import SweepConfig
from sweetspot.sweeps.engine import connected
from sweetspot.training import train
from tests.conftest import ROOT, refused_by
from tests.documents import commands, users_files, write_files

pytestmark = pytest.mark.xdist_group("ray")  # one cluster of a machine at a time
Command = Callable[..., subprocess.CompletedProcess[str]]
PATIENCE = 240.0  # seconds for a busy machine
ALONE = ("--parallel", "1")  # one cell after the other: each process of a cell takes seconds to begin
TIMES = {"environment", "seconds", "preparation", "seconds_per_token"}  # what two equal runs differ in


def flags(npz: Path, out: Path, *more: str) -> list[str]:
    """A grid of cells that take a second each."""
    common = ["--dataset", str(npz), "--epochs", "2", "--batch-size", "12", "--out", str(out), "--attacks", "none"]
    return [*common, "--trainer.accelerator", "cpu", *more]


def results_in(out: Path) -> dict[str, Any]:
    """Every run's results without their times, by name."""
    found = {file.parent.name: json.loads(file.read_text()) for file in sorted(out.glob("*/results.json"))}
    return {name: timeless(results) for name, results in found.items()}


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: timeless(each) for key, each in value.items() if key not in TIMES and key not in ("out", "resumed")
        }
    return [timeless(each) for each in value] if isinstance(value, list) else value


def files_in(out: Path) -> dict[str, int]:
    """When each file of each run was written."""
    files = (file for file in out.glob("*/*") if file.is_file())
    return {str(file.relative_to(out)): file.stat().st_mtime_ns for file in files}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`started(*flags)` begins a sweep in the background; it and all its processes end with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        log = (tmp_path / f"sweep-{len(processes)}.log").open("w")
        command = [sys.executable, "sweep.py", *arguments]
        processes.append(
            subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        )
        return processes[-1]

    yield start
    for process in processes:
        kill_family(process.pid)


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """One Ray for all sweeps of this process, begun as on the second node of a job: a cell is alone all the same."""
    with pytest.MonkeyPatch.context() as patched, contextlib.ExitStack() as stack:
        patched.setenv("SLURM_PROCID", "1")
        stack.enter_context(connected(SweepConfig()))
        patched.undo()
        yield


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has begun no Ray."""
    monkeypatch.setattr("sweetspot.sweeps.sweep.is_connected", lambda: False)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many threads as a cell has: sums of other parts round otherwise in their last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def kill_family(pid: int) -> None:
    """Kill -9 a process and all that it started."""
    try:
        family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue


def until(condition: Callable[[], Any]) -> Any:
    """What a condition gives as soon as it is true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("waited too long")


# ---------------------------------------------------------------------- a grid


@pytest.mark.usefixtures("one_thread", "ray")
def test_a_grid_is_made_by_the_function_of_train_and_grows_by_a_row(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = npz(), tmp_path / "runs"
    assert main(flags(data, out, "--lambda", "1", "--beta", "1e-2", "1e-4")) == 0
    assert "3 of 3" in capsys.readouterr().out
    assert (out / "report.html").is_file()
    for run in out.glob("*-s0-*"):
        assert "epoch 2/2" in (run / "log.txt").read_text()
    same: dict[str, Any] = {"dataset": str(data), "epochs": 2, "batch_size": 12, "lam": 1.0, "beta": 1e-4}
    same |= {"attacks": ["none"], "trainer": {"accelerator": "cpu"}}
    alone = TrainConfig.of(**same, out=str(tmp_path / "alone"))
    name = train(alone)["name"]
    assert results_in(tmp_path / "alone")[name] == results_in(out)[name]  # the same run to the last bit

    before = files_in(out)
    assert main(flags(data, out, "--lambda", "0", "1", "10", "--beta", "1e-2", "1e-4", *ALONE)) == 0
    after = files_in(out)
    assert {file: after[file] for file in before} == before  # finished cells are not touched
    assert len(results_in(out)) == 5


@pytest.mark.usefixtures("ray")
def test_a_failing_cell_is_written_down_and_the_others_are_made(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = npz(), tmp_path / "runs"
    wanted = flags(data, out, "--lambda", "1", "--beta", "1e-2", "--seed", "0", "1", *ALONE)
    assert main([*wanted, "--dry-run"]) == 0
    listed = capsys.readouterr().out
    bad = next(line.split()[-1] for line in listed.splitlines() if "-l1-" in line)
    (out / bad).mkdir(parents=True)
    (out / bad / "last.ckpt").write_bytes(b"no checkpoint")
    assert main(wanted) == 1
    said = capsys.readouterr().err
    assert "1 of 4 cells failed (MixCon(1, 0.01), seed" in said
    assert "damaged" in said
    assert "damaged" in json.loads((out / bad / "failed.json").read_text())["error"]
    assert len(results_in(out)) == 3
    assert main([*wanted, "--dry-run"]) == 0
    assert "4 cells: 3 are there, 1 would run" in capsys.readouterr().out


# ---------------------------------------------------------------------- kills


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_kills_of_a_sweep_and_of_a_worker_lose_nothing(
    npz: Callable[..., Path], tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    data, out = npz(), tmp_path / "runs"
    grid = flags(data, out, "--lambda", "1", "10", "--beta", "1e-2", "1e-4", "--epochs", "60")
    killed = started(*grid)
    until(lambda: list(out.glob("*/results.json")))
    killed.kill()
    killed.wait()
    finished = {name: time for name, time in files_in(out).items() if (out / name).with_name("results.json").exists()}
    assert 0 < len(results_in(out)) < 5

    going_on = started(*grid)
    until(lambda: worker_of(going_on.pid)).kill()
    assert going_on.wait(timeout=PATIENCE) == 0
    assert {name: files_in(out)[name] for name in finished} == finished

    for run in out.glob("*-s0-*"):  # what an unbroken training gives, to the last bit
        config = yaml.safe_load((run / "config.yaml").read_text())
        lam = config.pop("lambda")
        train(TrainConfig.of(**{**config, "lam": lam, "out": str(tmp_path / "unbroken")}))
    assert results_in(out) == results_in(tmp_path / "unbroken")
    assert len(results_in(out)) == 5


@pytest.mark.slow
def test_sigterm_ends_a_sweep_in_one_line_and_leaves_no_process(
    npz: Callable[..., Path], tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    out = tmp_path / "runs"
    grid = flags(npz(), out, "--lambda", "1", "10", "--beta", "1e-2", "--epochs", "200")
    terminated = started(*grid)
    until(lambda: list(out.glob("*/last.ckpt")))
    family = psutil.Process(terminated.pid).children(recursive=True)
    terminated.terminate()
    assert terminated.wait(timeout=PATIENCE) == 143
    said = (tmp_path / "sweep-0.log").read_text().splitlines()
    assert said[-1] == "terminated; what was finished is kept, and the same command goes on from there"
    assert not [line for line in said if "Traceback" in line or "SIGABRT" in line or "***" in line]
    psutil.wait_procs(family, timeout=20)
    assert not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert not list(Path(tempfile.gettempdir()).glob(f"sweetspot-tune.*.{terminated.pid}.*"))


def worker_of(pid: int) -> psutil.Process | None:
    """A process that makes a cell, of the sweep with this process number."""
    for each in psutil.Process(pid).children(recursive=True):
        try:
            if "ImplicitFunc.train" in " ".join(each.cmdline()):
                return each
        except psutil.NoSuchProcess:
            continue
    return None


@pytest.mark.slow
def test_two_sweeps_on_one_folder_share_the_work(
    npz: Callable[..., Path], tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    data, out = npz(), tmp_path / "runs"
    grid = flags(data, out, "--lambda", "1", "10", "--beta", "1e-2", "1e-4", "--epochs", "40")
    both = [started(*grid), started(*grid)]
    assert [each.wait(timeout=PATIENCE) for each in both] == [0, 0]
    assert len(results_in(out)) == 5
    for run in out.glob("*-s0-*"):
        assert len(list((run / "logs" / "csv").glob("version_*"))) == 1  # each was made by one of them, once


# ---------------------------------------------------------------------- axes of all kinds

OWN = """
import torch
from sweetspot.attacks import Attack, Reconstruction
from sweetspot.lightning_modules.defences import Penalty, Release, option

class Shrink(Penalty):
    strength: float = option(1.0, "how hard", least=0)

    def penalty(self, z, y, x):
        return self.strength * z.square().mean()

class Fade(Release):
    by: float = option(1.0, "how much of an answer is left", above=0)

    def forward(self, z):
        return z * self.by

class Flat(Attack):
    grey: float = option(0.5, "the grey that it answers with", least=0, most=1)

    def reconstruct(self, victim, z):
        x = torch.full((len(z), *victim.shape), self.grey)
        return Reconstruction(x, victim.residual(x, z), 0.0)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("is_attacked", [False, True])
def test_a_users_own_parts_are_swept_over_their_own_options_and_met_by_an_attack_of_their_own(
    is_attacked: bool, npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, out = tmp_path / "mine.py", tmp_path / "runs"
    own.write_text(OWN)
    small = [*flags(npz(), out), *ALONE]
    if is_attacked:
        small += ["--attacks", f"{own}:Flat", "--grey", "0.3", "--samples", "6", "--budget", "fast"]
    parts = ["--defence", f"{own}:Shrink", "--strength", "1", "3", "--release", f"{own}:Fade"]
    assert main([*small, *parts, "--by", "0.25", "0.5"]) == 0
    if is_attacked:
        assert all(each["attacks"]["mine/Flat"]["settings"]["grey"] == 0.3 for each in results_in(out).values())
        assert all(each["worst_case"]["attacks"] == ["mine/Flat"] for each in results_in(out).values())
    found = {name: results["defence"] for name, results in results_in(out).items()}
    swept = {
        (each["name"].rpartition(":")[2], each.get("strength"), tuple(part["by"] for part in each["release"]))
        for each in found.values()
    }
    assert swept == {("none", None, ()), *(("Shrink", s, (by,)) for s in (1.0, 3.0) for by in (0.25, 0.5))}
    said = capsys.readouterr().out
    assert "Shrink(1) + Fade(0.5), strength 3.0, seed 0" in said
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in ("Shrink", "Fade", *(["mine/<wbr>Flat"] if is_attacked else [])))


def test_several_grids_in_one_file_and_flags_that_win_over_all_of_them(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grids.yaml"
    file.write_text(
        "epochs: 3\nlr: [0.1, 0.2]\nattacks: [none]\ngrids:\n"
        "  - {defence: nopeek, lambda: [0.1, 0.3], epochs: 4}\n"
        "  - {release: gaussian, sigma: [0.1, 0.2, 0.5]}\n"
    )
    common = ["--config", str(file), "--dataset", str(npz()), "--out", str(tmp_path / "runs"), "--dry-run"]
    assert main(common) == 0
    said = capsys.readouterr().out
    assert "14 cells: 0 are there" in said  # two learning rates of five cells, and of vanilla for 3 and for 4 epochs
    assert "nopeek(0.3), epochs 4, lr 0.2, seed 0" in said
    assert main([*common, "--epochs", "2", "--lr", "0.3"]) == 0
    said = capsys.readouterr().out
    assert "6 cells: 0 are there" in said
    assert "epochs" not in said
    assert main([*common, "--epochs", "2", "--lr", "0.3", "--lambda", "5"]) == 0
    said = capsys.readouterr().out
    assert "5 cells: 0 are there" in said, "a weight is for the penalties, and noise alone stays noise alone"
    assert "nopeek(5), seed 0" in said


def test_what_a_part_refuses_is_left_out_with_a_line(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = ["--defence", "compress", "--release", "none", "gaussian", "--sigma", "1", "2"]
    assert main([*flags(npz(), tmp_path / "runs", *noise), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("left out: 1 combinations (--defence compress measures in the noise that is released")
    assert "3 cells: 0 are there" in said


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_a_verdict_for_each_setting_under_its_title(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["--defence", "nopeek", "--lr", "0.01", "0.02", *ALONE]
    assert main(flags(npz(), tmp_path / "runs", *grid)) == 0
    said = capsys.readouterr().out
    assert "4 of 4" in said
    for lr in ("0.01", "0.02"):
        assert f"images, lenet cut after pool2, lr {lr}\nNo cell was attacked yet" in said


# ---------------------------------------------------------------------- search


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_a_search_is_made_on_ray_and_is_not_repeated(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = npz(), tmp_path / "runs"
    attack = ["--attacks", "whitebox/paper", "--samples", "4", "--max-drop", "1"]
    search = ["--lambda", "0.1..10", "--beta", "1e-4..1e-2", "--search", "3"]
    grid = [*flags(data, out, *search), *attack]
    assert main([*grid, "--dry-run"]) == 0
    asked = [line.split()[-1] for line in capsys.readouterr().out.splitlines() if "images-lenet-" in line]
    assert main(grid) == 0
    first = capsys.readouterr().out
    assert "search: 1 to 3 of 3" in first
    assert re.search(r"front +accuracy +SSIM", first)
    assert set(results_in(out)) == set(asked)
    assert len(asked) == 4
    before = files_in(out)
    assert main(grid) == 0
    again = capsys.readouterr().out
    assert files_in(out) == before
    assert first[first.index("front") :] == again[again.index("front") :]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_search_that_was_killed_ends_as_an_unbroken_one(
    npz: Callable[..., Path], tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    data = npz()
    attack = ["--attacks", "whitebox/paper", "--samples", "4", "--device", "cpu"]

    def grid(out: Path) -> list[str]:
        search = ["--release", "gaussian", "--sigma", "0.1..3", "--cut", "pool1", "pool2", "--search", "10"]
        return [*flags(data, out, *search), *attack]

    broken, unbroken = tmp_path / "broken", tmp_path / "unbroken"

    def trained() -> dict[str, int]:
        return {name: files_in(broken)[f"{name}/last.ckpt"] for name in results_in(broken)}

    killed = started(*grid(broken))
    until(lambda: len(trained()) > 3)
    kill_family(killed.pid)
    finished = trained()
    assert len(finished) < 11
    assert started(*grid(broken)).wait(timeout=PATIENCE) == 0
    assert started(*grid(unbroken)).wait(timeout=PATIENCE) == 0
    assert {name: trained()[name] for name in finished} == finished, "no cell is made twice"
    assert results_in(broken) == results_in(unbroken)
    assert len(results_in(broken)) == 11
    said = [(tmp_path / f"sweep-{number}.log").read_text() for number in (1, 2)]
    fronts = [each[each.index("front") : each.index("report")] for each in said]
    assert fronts[0] == fronts[1]


# ---------------------------------------------------------------------- wrong input


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lambda", "1", "1"], "--lambda names 1 twice"),
        (["--lambda", "1", "-1"], "--lambda must be a number of at least 0; got -1"),
        (["--beta"], "expected at least one argument"),
        (["--dataset", "nowhere.npz"], "nowhere.npz"),
        (["--address", "nowhere"], "--address must be auto or host:port"),
        (["--address", "127.0.0.1:1"], "no Ray cluster answers at --address 127.0.0.1:1"),
        (["--cpus-per-run", "0"], "--cpus-per-run must be at least 1"),
        (["--metric", "beauty"], "--metric must be one of"),
        (["--metric", "em"], "--metric em is not measured on images; ssim, psim, psnr, recognised are"),
        (["--metric", "mcs"], "--metric mcs is not measured on images"),
        (["--trainer.fast_dev_run", "true"], "leave --trainer.fast_dev_run out"),
        (["--lambda", "much"], "--lambda must be a finite number; got much"),
        (["--attacks", "text"], "every cell is a run on images or vectors, not on text"),
        (["--trainer.devices", "2"], "leave --trainer.devices 2 out"),
        (["--address", "ray://127.0.0.1:10001"], "--address must be auto or host:port"),
        (["--sigma", "1", "2"], "--sigma means nothing for mixcon: it belongs to gaussian"),
        (["--defence", "compress", "--beta", "1"], "--beta means nothing for compress: it belongs to mixcon"),
        (["--bottleneck", "16", "x-16"], "--bottleneck must be none, or widths such as 16"),
        (["--release", "gaussian", "gausian"], "did you mean gaussian?"),
        (["--epochs", "1", "1.5"], "--epochs must be a whole number; got 1.5"),
        (["--epochs", "1", "0"], "--epochs must be at least 1"),
        (["--normalise", "true", "maybe"], "--normalise must be true or false; got maybe"),
        (["--grids", "nopeek"], "grids must hold flags by name"),
        (["--lambda", "0.1..10"], "--lambda 0.1..10 is a range: add --search N, or name its values"),
        (["--search", "4"], "--search needs a range to search in"),
        (["--search", "0", "--lambda", "0.1..10"], "--search must be at least 1; got 0"),
        (["--search", "4", "--lambda", "10..0.1"], "--lambda 10..0.1 runs from high to low: write 0.1..10"),
        (["--search", "4", "--lambda", "1..1"], "--lambda 1..1 is one value and no range"),
        (["--search", "4", "--lambda", "1.."], "--lambda takes a range low..high of numbers"),
        (
            ["--search", "4", "--lambda=-1..1", "--attacks", "decoder"],
            "--lambda must be a number of at least 0; got -1",
        ),
        (["--search", "4", "--bottleneck", "8..32"], "--bottleneck has no numbers: name its values"),
        (["--search", "4", "--lambda", "0.1..10"], "leave --attacks none out"),
    ],
)
def test_wrong_input_is_said_in_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, npz: Callable[..., Path]
) -> None:
    usual = ["--lambda", "1", "--beta", "1e-2", *flags(npz(), tmp_path / "runs")]
    given = {flag for flag in arguments if flag.startswith("--")}
    kept = []
    for flag, *values in grouped(usual):
        kept += [] if flag in given else [flag, *values]
    refused_by(main, capsys, says, *kept, *arguments)
    if "--address" not in arguments:  # which a plan does not need
        refused_by(main, capsys, says, *kept, *arguments, "--dry-run")
    assert not list(tmp_path.glob("runs/*/results.json"))


def grouped(arguments: list[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--"):
            groups.append([])
        groups[-1].append(argument)
    return groups


class AnotherService(socketserver.StreamRequestHandler):
    """What is no Ray: it answers, in another language."""

    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n")


@pytest.mark.usefixtures("no_ray")
def test_an_address_where_something_else_listens_is_refused_at_once(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), AnotherService) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        grid = ["--lambda", "1", "--beta", "1e-2", *flags(npz(), tmp_path / "runs")]
        refused_by(main, capsys, f"what answers at --address {address} is no Ray", *grid, "--address", address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        refused_by(main, capsys, f"--address auto ({address}) is no Ray", *grid, "--address", "auto")
        server.shutdown()
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    refused_by(main, capsys, "--address auto finds no Ray cluster", *grid, "--address", "auto")


@pytest.mark.usefixtures("ray")
def test_what_cannot_be_made_again_stays_as_it_is(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = npz(), tmp_path / "runs"
    same: dict[str, Any] = {"epochs": 2, "batch_size": 12, "attacks": ["none"], "trainer": {"accelerator": "cpu"}}
    train(TrainConfig.of(**same, dataset=str(data), lam=0.0, beta=1e-2, out=str(out)))
    before = files_in(out)
    again = ["--lambda", "0", "--beta", "1e-2", *flags(data, out), "--force"]
    with monkeypatch.context() as patched:
        patched.setattr("sweetspot.sweeps.sweep.is_connected", lambda: False)
        refused_by(main, capsys, "no Ray cluster answers", *again, "--address", "127.0.0.1:1")
    refused_by(main, capsys, "a run asks for 10000 CPUs", *again, "--cpus-per-run", "10000")
    assert files_in(out) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lambda: []", "--lambda needs at least one value"),
        ("lambda: [1, 1]", "--lambda names 1 twice; every value makes cells of its own (in"),
        ("beta: [a]", "--beta must be a finite number; got a (in"),
        ("beta: {a: 1}", "--beta must be a finite number; got {'a': 1} (in"),
        ("grids: {defence: nopeek}", "grids in"),
        ("grids: [nopeek]", "grids must hold flags by name, such as {defence: nopeek, lambda: [0.1, 1]}; got nopeek"),
        ("grids: [{defense: nopeek}]", "there is no defense for a grid to set (did you mean defence?) (in"),
        ("grids: [{out: here}]", "there is no out for a grid to set: it is the same for all"),
        ("grids: [{defence: nopeek, sigma: [1]}]", "--sigma means nothing for nopeek: it belongs to gaussian"),
        ("grids: [{defence: nopeek, lambda: [x]}]", "--lambda must be a finite number; got x (in"),
        ("max_drop: [1, 2]", "--max-drop"),
        ("search: many", "--search must be a whole number; got many"),
    ],
)
def test_a_grid_that_a_file_cannot_mean_is_refused(
    text: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    refused_by(main, capsys, says, "--config", str(file), "--out", str(tmp_path / "runs"))


SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_every_sweep_file_is_a_grid(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = yaml.safe_load(file.read_text())
    needs_data = written["dataset"] not in ("mnist-5k", "pydoc")
    own = ["--dataset", "mnist-5k"] if needs_data else []
    assert main(["--config", str(file), *own, "--dry-run", "--out", str(tmp_path)]) == 0
    grids = [{**written, **grid} for grid in written.get("grids", [{}])]
    cells = 1 + sum(math.prod(len(grid[name]) for name in grid if is_axis(grid[name], name)) for grid in grids)
    assert f"{cells} cells: 0 are there, {cells} would run" in capsys.readouterr().out


def is_axis(value: Any, name: str) -> bool:
    return isinstance(value, list) and name not in ("channels", "grids")


FRONTIERS = [file for file in SWEEPS if "frontier" in file.stem and "gpt2" not in file.stem]


@pytest.mark.parametrize("file", FRONTIERS, ids=lambda file: file.stem)
def test_a_frontier_has_every_defence_at_four_strengths(file: Path) -> None:
    written = yaml.safe_load(file.read_text())
    training = {"epochs": 10, "optimiser": "adam", "lr": 0.001, "batch_size": 100, "cut": "pool2"}
    assert {name: written[name] for name in training} == training
    strengths: dict[str, int] = {}
    for grid in written["grids"]:
        penalty, release = grid.get("defence"), grid.get("release")
        strength = "lambda" if penalty else next(name for name in RELEASES[release].options if name in grid)
        strengths[penalty or release] = len(grid[strength])
    strong = [name for name in RELEASES if RELEASES[name].options]  # fp16 and its kin have no strengths
    expected = {*PENALTIES, *strong} - {"none", "clip"}
    assert strengths.keys() == expected
    assert min(strengths.values()) >= 4


def test_the_frontier_of_text_has_noise_in_training_and_afterwards() -> None:
    written = yaml.safe_load((ROOT / "configs" / "sweeps" / "frontier_gpt2_tiny.yaml").read_text())
    found = [(grid.get("defence", "none"), grid.get("release")) for grid in written["grids"]]
    assert found == [
        ("none", "gaussian"),
        ("mixcon", ["none", "gaussian"]),
        ("compress", "gaussian"),
        ("none", "gaussian"),
        ("none", "quantise"),
    ]
    assert all(PENALTIES[penalty].takes_text for penalty, _ in found)
    assert len(written["grids"][0]["sigma"]) >= 4
    assert len(written["grids"][2]["bottleneck"]) * len(written["grids"][2]["lambda"]) >= 4
    assert [float(channel) for channel in written["channels"] if channel != "int8"] == [0.25, 0.5, 1, 1.5, 2]


@pytest.mark.parametrize("argv", commands("sweep"), ids=" ".join)
def test_a_command_of_the_documents_is_a_grid(
    argv: list[str],
    npz: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As written, but on small data, and planned instead of made: other tests make grids."""
    if users_files(argv):
        write_files(tmp_path)
        monkeypatch.chdir(tmp_path)
    planned = [*argv, "--dataset", str(npz()), "--out", str(tmp_path), *(["--dry-run"] * ("--dry-run" not in argv))]
    assert main(planned) == 0
    assert "cells: 0 are there" in capsys.readouterr().out


# ---------------------------------------------------------------------- text


@pytest.mark.slow
def test_a_grid_of_language_models_is_judged_by_perplexity_and_similarity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["--config", str(ROOT / "configs" / "sweeps" / "gpt2_tiny.yaml"), "--lambda", "1", "--beta", "1e-2"]
    small = ["--epochs", "1", "--limit-train", "100", "--limit-test", "20", "--prompts", "2", "--channels", "fp16", "1"]
    assert main([*grid, *small, "--trainer.accelerator", "cpu", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 of 2" in said
    assert re.search(r"with perplexity [\d.]+ \(vanilla [\d.]+\), worst-case similarity leak", said), "the verdict"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Vanilla + noise 1" in page
    assert 'class="token' in page


# ---------------------------------------------------------------------- a cluster


@pytest.mark.slow
def test_a_cluster_of_two_nodes_makes_a_grid(
    npz: Callable[..., Path], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)  # a Ray of this process, in another test, has left it behind
    ray = str(Path(sys.executable).with_name("ray"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    head = ["--head", "--port", address.rpartition(":")[2], "--include-dashboard", "false"]
    common = ["--num-cpus", "1", "--object-store-memory", "100000000", "--disable-usage-stats", "--block"]
    home = {**os.environ, "HOME": str(tmp_path)}  # where the cluster's token lies, as for the sweep below
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        for role in (head, ["--address", address]):
            started = [ray, "start", *role, *common]
            nodes.append(subprocess.Popen(started, env=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            until(lambda: listens(address))
        grid = ["--lambda", "1", "10", "--beta", "1e-2", "1e-4", "--epochs", "40", "--address", address]
        ended = command("sweep.py", *flags(npz(), tmp_path / "runs", *grid))
        assert ended.returncode == 0, ended.stderr
        assert len(results_in(tmp_path / "runs")) == 5
        for node in nodes:
            assert node.poll() is None  # a sweep leaves the cluster as it was
    finally:
        for node in nodes:
            kill_family(node.pid)


def listens(address: str) -> bool:
    """Whether anyone answers at an address."""
    try:
        socket.create_connection((address.split(":")[0], int(address.split(":")[1])), timeout=1).close()
    except OSError:
        return False
    return True
