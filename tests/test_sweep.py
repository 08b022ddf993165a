"""Sweeps as a user runs them, on a real Ray: finished cells stay, kills lose nothing, a failure stops nobody."""

from __future__ import annotations

import json
import os
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

from runs.config import TrainConfig
from sweep import main
from tests.conftest import ROOT, readme_commands, refused_by
from train import train

Command = Callable[..., subprocess.CompletedProcess[str]]
PATIENCE = 240.0  # seconds for a busy machine
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


@pytest.mark.usefixtures("one_thread")
def test_a_grid_is_made_by_the_function_of_train_and_grows_by_a_row(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = npz(), tmp_path / "runs"
    monkeypatch.setenv("SLURM_PROCID", "1")  # as on the second node of a job: a cell is alone all the same
    assert main(flags(data, out, "--lambda", "1", "--beta", "1e-2", "1e-4")) == 0
    assert "3 of 3" in capsys.readouterr().out
    assert (out / "report.html").is_file()
    for run in out.glob("*-s0-*"):
        assert "epoch 2/2" in (run / "log.txt").read_text()
    monkeypatch.delenv("SLURM_PROCID")
    same: dict[str, Any] = {"dataset": str(data), "epochs": 2, "batch_size": 12, "lam": 1.0, "beta": 1e-4}
    same |= {"attacks": ["none"], "trainer": {"accelerator": "cpu"}}
    alone = TrainConfig.of(**same, out=str(tmp_path / "alone"))
    name = train(alone)["name"]
    assert results_in(tmp_path / "alone")[name] == results_in(out)[name]  # the same run to the last bit

    before = files_in(out)
    assert main(flags(data, out, "--lambda", "0", "1", "10", "--beta", "1e-2", "1e-4")) == 0
    after = files_in(out)
    assert {file: after[file] for file in before} == before  # finished cells are not touched
    assert len(results_in(out)) == 5


def test_a_failing_cell_is_written_down_and_the_others_are_made(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = npz(), tmp_path / "runs"
    wanted = flags(data, out, "--lambda", "1", "--beta", "1e-2", "--seed", "0", "1")
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


# ---------------------------------------------------------------------- refinement


def test_a_refinement_adds_cells_around_the_front_and_is_not_repeated(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = npz(), tmp_path / "runs"
    attack = ["--attacks", "whitebox/paper", "--samples", "4", "--max-drop", "1"]
    grid = [*flags(data, out, "--lambda", "1", "--beta", "1e-2", "--refine", "2"), *attack]
    assert main(grid) == 0
    assert "refining: (0.316, 0.01), (3.16, 0.01)" in capsys.readouterr().out
    assert len(results_in(out)) == 4
    before = files_in(out)
    assert main(grid) == 0
    assert files_in(out) == before


# ---------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lambda", "1", "1"], "--lambda names 1 twice"),
        (["--lambda", "-1"], "--lambda must be numbers of at least 0; got -1"),
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


def test_what_cannot_be_made_again_stays_as_it_is(
    npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = npz(), tmp_path / "runs"
    same: dict[str, Any] = {"epochs": 2, "batch_size": 12, "attacks": ["none"], "trainer": {"accelerator": "cpu"}}
    train(TrainConfig.of(**same, dataset=str(data), lam=0.0, beta=1e-2, out=str(out)))
    before = files_in(out)
    again = ["--lambda", "0", "--beta", "1e-2", *flags(data, out), "--force"]
    refused_by(main, capsys, "no Ray cluster answers", *again, "--address", "127.0.0.1:1")
    refused_by(main, capsys, "a run asks for 10000 CPUs", *again, "--cpus-per-run", "10000")
    assert files_in(out) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lambda: []", "--lambda needs at least one value"),
        ("lambda: 1", "lambda in"),
        ("beta: [a]", "beta"),
        ("max_drop: null", "--max-drop must be float; got None"),
        ("refine: null", "--refine must be int; got None"),
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
    cells = 1 + len(written["lambda"]) * len(written["beta"])
    assert f"{cells} cells: 0 are there, {cells} would run" in capsys.readouterr().out


@pytest.mark.parametrize("argv", readme_commands("sweep.py"), ids=" ".join)
def test_a_command_of_the_readme_is_a_grid(
    argv: list[str], npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As written, but on small data, and planned instead of made: other tests make grids."""
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
    assert "of vanilla's" in said
    assert "worst-case similarity" in said
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
