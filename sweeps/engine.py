"""Ray Tune as the engine: the same code makes a grid on two cores and on a cluster.

Tune's part is to find room for cells and to start one again whose process died. What a cell is, and whether it is
done, is in its run folder alone, so nothing of Tune's own state is needed to go on after a kill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import logging
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import joblib
import lightning
import ray
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_only
from ray import tune

from sweetspot.attacks.threat_model import SHARE_OF_DEVICE
from sweetspot.errors import BusyError, UserError, first_line
from sweetspot.files import temporary_folder
from sweetspot.runs.command_line import disk_trouble, quieten
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.runs.signals import hear_sigterm
from sweetspot.sweeps.config import SweepConfig
from sweetspot.sweeps.plan import SweepCell

Make = Callable[[TrainConfig, Sequence[Callback]], dict[str, Any]]  # train.train

RESTARTS = 2  # of a cell whose process died: out of memory, or killed
REPORT_SECONDS = 0.5  # between two signs of life of a cell
RANKS = {"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK"}
PROBE_SECONDS = 5.0  # for a cluster to answer at all
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nobody asked to be counted
    "RAY_AIR_NEW_OUTPUT": "0",  # the live table is ours
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths mean in a cell what they mean on the command line
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends here as it ends everywhere else
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


class Watcher(Protocol):
    """Who is told how cells get on."""

    def started(self, name: str) -> None:
        """A cell has found room."""

    def progressed(self, name: str, epoch: int, epochs: int) -> None:
        """A cell has trained so far."""

    def ended(self, name: str, outcome: str) -> None:
        """A cell is done, in another process's hands, or has failed with this error."""


@contextlib.contextmanager
def connected(config: SweepConfig) -> Iterator[None]:
    """A Ray of this machine alone, or the cluster at an address, with room for at least one cell."""
    os.environ.update(ENVIRONMENT)
    logging.getLogger("ray").setLevel(logging.CRITICAL)  # how a cell ended is told by the table, in one line
    address = config.address or "local"
    probe(address)
    # cores that we may use, by affinity and by a container's quota, not those that there are
    options = {"include_dashboard": False, "object_store_memory": 100_000_000, "num_cpus": joblib.cpu_count()}
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level=logging.ERROR, **(options if address == "local" else {})
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if address == "local":
            raise UserError(f"Ray cannot be started on this machine ({first_line(error)})") from error
        raise UserError(
            f"no Ray cluster can be used at --address {address} ({first_line(error)}); its machines need the same "
            "version of Ray, and the same ~/.ray/auth_token where there is one"
        ) from error
    hear_sigterm()
    try:
        yield
    finally:
        ray.shutdown()


def is_connected() -> bool:
    """Whether a Ray has been begun or found."""
    return bool(ray.is_initialized())


def probe(address: str) -> None:
    """Refuse at once an address where no Ray listens: Ray itself would try for minutes."""
    if address == "local":
        return
    said = f"--address {address}"
    if address == "auto":
        address = known_address()
        if not address:
            raise UserError("--address auto finds no Ray cluster on this machine; `ray start --head` begins one")
        said += f" ({address})"
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal() and "/" not in host):  # Ray's client, ray://, cannot hear our cells
        raise UserError(f"--address must be auto or host:port; got {address}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS) as connection:
            is_ray = os.environ.get("RAY_USE_TLS") == "1" or speaks_http2(connection)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"no Ray cluster answers at {said} ({reason}); `ray start --head` begins one") from error
    if not is_ray:
        raise UserError(f"what answers at {said} is no Ray cluster; `ray start --head` says its address")


def known_address() -> str:
    """What `auto` stands for: RAY_ADDRESS, or the cluster that was begun or joined last; empty where there is none."""
    if named := os.environ.get("RAY_ADDRESS", ""):
        return named
    try:
        return (Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def speaks_http2(connection: socket.socket) -> bool:
    """Whether who answers speaks HTTP/2, as Ray does (it is gRPC): its first frame must be its settings."""
    empty_settings = bytes(3) + b"\x04" + bytes(5)  # no payload; of type 4
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + empty_settings)
    frame = b""
    while len(frame) < len(empty_settings):
        try:
            received = connection.recv(len(empty_settings) - len(frame))
        except TimeoutError:
            return False
        if not received:
            return False
        frame += received
    return frame[3] == 4


def resources(config: SweepConfig, on_cpu: bool) -> dict[str, float]:
    """What a cell takes; refused where no machine has it.

    Args:
        config: what was asked for.
        on_cpu: whether its runs are to stay on the CPU, so that they take no GPU unless asked to.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = config.gpus_per_run
    if gpus is None:
        gpus = 1.0 if not on_cpu and any(machine.get("GPU", 0) for machine in machines) else 0.0
    wanted = {"cpu": float(config.cpus_per_run), "gpu": gpus}
    if not any(all(machine.get(kind.upper(), 0) >= each for kind, each in wanted.items()) for machine in machines):
        most = {kind: max((machine.get(kind, 0) for machine in machines), default=0) for kind in ("CPU", "GPU")}
        raise UserError(
            f"a run asks for {wanted['cpu']:g} CPUs and {wanted['gpu']:g} GPUs, and no machine has them (at most "
            f"{most['CPU']:g} and {most['GPU']:g}); lower --cpus-per-run or --gpus-per-run"
        )
    return wanted


def slots(config: SweepConfig, wanted: dict[str, float]) -> int:
    """How many cells that take so much find room at a time."""
    room = 0
    for node in ray.nodes():
        if node["Alive"]:
            fits = [node["Resources"].get(kind.upper(), 0) / each for kind, each in wanted.items() if each]
            room += int(min(fits) + 1e-9)
    return max(1, min(room, config.parallel or room))


def make_cells(
    cells: Sequence[SweepCell], make: Make, config: SweepConfig, wanted: dict[str, float], watcher: Watcher
) -> None:
    """Make every one of these cells once, as many at a time as there is room for; `watcher` hears how each ended."""
    common = {"folder": os.getcwd(), "threads": config.cpus_per_run, "gpus": wanted["gpu"]}
    tasks = [{"name": cell.name, "fields": fields_of(cell.config), **common} for cell in cells]
    trainable = tune.with_resources(tune.with_parameters(run_cell, make=make), wanted)
    with temporary_folder("sweetspot-tune") as storage:
        tune.Tuner(
            trainable,
            param_space={"cell": tune.grid_search(tasks)},
            tune_config=tune.TuneConfig(
                # the next cell begins where torch is already imported; but a GPU's memory, and what a broken
                # kernel leaves behind, are given back only by the end of a process
                reuse_actors=not wanted["gpu"],
                max_concurrent_trials=config.parallel or None,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=str(storage),
                verbose=0,
                callbacks=[Relay(watcher)],
                failure_config=tune.FailureConfig(max_failures=RESTARTS),
            ),
        ).fit()


def fields_of(config: TrainConfig) -> dict[str, Any]:
    """A cell's config for another machine: what this one's environment says about the data is said in it."""
    root = config.data_root if config.is_language else str(config.root.absolute())
    return dataclasses.asdict(dataclasses.replace(config, data_root=root))


class Relay(tune.Callback):
    """What Tune hears from cells, told to the watcher."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def __getstate__(self) -> dict[str, Any]:
        return {"watcher": None}  # Tune saves itself for a restore of its own, which nobody asks for

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.watcher.started(trial.config["cell"]["name"])

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any) -> None:
        name = trial.config["cell"]["name"]
        if "outcome" in result:
            self.watcher.ended(name, result["outcome"])
        elif "epoch" in result:
            self.watcher.progressed(name, result["epoch"], result["epochs"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.watcher.ended(trial.config["cell"]["name"], reason(trial.get_pickled_error()))


def reason(error: BaseException | None) -> str:
    """Why a process could not even say how its cell ended."""
    if error is None or isinstance(error, ray.exceptions.RayActorError | ray.exceptions.OutOfMemoryError):
        return "its process died again and again (killed, or out of memory)"
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {first_line(cause)}"


# ---------------------------------------------------------------------- in the process of a cell


def run_cell(parameters: dict[str, Any], make: Make) -> None:
    """One cell from beginning to end, in a process of its own, with what it says in the run's log.txt."""
    task = parameters["cell"]
    if not Path(task["folder"]).is_dir():
        outcome = f"{task['folder']} is not on {socket.gethostname()}: a cluster needs one file system for all machines"
        tune.report({"outcome": outcome})
        return
    os.chdir(task["folder"])
    alone()
    torch.set_num_threads(task["threads"])
    if not task["gpus"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a cell that was given none takes none
    os.environ[SHARE_OF_DEVICE] = str(task["gpus"] or min(1.0, task["threads"] / joblib.cpu_count()))
    quieten()
    config = TrainConfig(**task["fields"])
    run = Run(Path(config.out) / task["name"])
    with logged(run):
        outcome = attempt(config, make, task["name"])
    gc.collect()  # a trainer and its data hold each other; the next cell needs the memory
    tune.report({"outcome": outcome})


def alone() -> None:
    """Make the process the only one of its run, whatever launched the node it is on.

    Lightning reads a rank from what SLURM, torchrun or MPI leave in the environment, and of ranks above 0 it expects
    that another process writes the results.
    """
    for name in list(os.environ):
        if name.startswith("SLURM_") or name in RANKS:
            del os.environ[name]
    rank_zero_only.rank = 0  # type: ignore[attr-defined]


def attempt(config: TrainConfig, make: Make, name: str) -> str:
    """How making a cell of this name ended: `done`, `busy`, or its error in one line."""
    try:
        made = make(config, [SignOfLife()]).get("name")
    except BusyError:
        return "busy"
    except UserError as error:
        return str(error)
    except OSError as error:
        traceback.print_exc()
        return disk_trouble(error) or f"{type(error).__name__}: {first_line(error)}"
    except Exception as error:
        traceback.print_exc()  # a bug of ours, in this cell alone as far as the others know
        return f"{type(error).__name__}: {first_line(error)}"
    return "done" if made == name else f"{socket.gethostname()} made {made} instead: its data or its code differ"


@contextlib.contextmanager
def logged(run: Run) -> Iterator[None]:
    """What is printed meanwhile, in log.txt of the run's folder, after what is there."""
    log = Log(run.folder / "log.txt")
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        yield


class Log(io.TextIOBase):
    """A file to print to that never stands in the way: where it cannot be written, the run itself says why."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        return len(text)


class SignOfLife(Callback):
    """Tells the sweep which epoch a cell is in."""

    def __init__(self) -> None:
        self.told = 0.0

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        now, done = time.monotonic(), trainer.current_epoch + 1
        if now - self.told > REPORT_SECONDS or done == trainer.max_epochs:
            self.told = now
            tune.report({"epoch": done, "epochs": trainer.max_epochs})
