"""Make what is missing: runs by the engine of sweeps, one alone as train.py makes it, computations one by one."""

from __future__ import annotations

from collections.abc import Sequence

from sweetspot.errors import UserError
from sweetspot.progress import steps_shown
from sweetspot.reproductions.computing import compute
from sweetspot.reproductions.needs import Computed, Need, Shelf, TrainedRun
from sweetspot.runs.config import TrainConfig
from sweetspot.sweeps.config import SweepConfig
from sweetspot.sweeps.sweep import Plan, check_cells, check_outcome, sweep
from sweetspot.training import train


def make(
    needs: Sequence[Need], shelf: Shelf, config: SweepConfig, data_root: str | None, device: str
) -> list[UserError]:
    """Make what is not on the shelf, as far as it can be; what could not be made, and what to do about it.

    Args:
        needs: what is asked for, what others build on first.
        shelf: what is there.
        config: how many at a time, and on which machines.
        data_root: where datasets lie.
        device: of attacks and computations.
    """
    errors: list[UserError] = []
    runs = [need for need in needs if isinstance(need, TrainedRun) and shelf.find(need) is None]
    for name in dict.fromkeys(name for run in runs for name in run.data):
        try:
            train_all([run for run in runs if name in run.data], shelf, config, data_root, device)
        except UserError as error:
            errors.append(error)
        shelf.look_again()
    left = [need for need in needs if isinstance(need, Computed) and shelf.find(need) is None]
    left = [need for need in left if need.run is None or shelf.folder(need.run) is not None]
    with steps_shown("computing", len(left)) as done:
        for number, need in enumerate(left):
            try:
                compute(need, shelf, data_root, device)
            except UserError as error:
                errors.append(error)
            done(number + 1)
    shelf.look_again()
    return errors


def train_all(
    runs: Sequence[TrainedRun], shelf: Shelf, config: SweepConfig, data_root: str | None, device: str
) -> None:
    """Train and attack runs on the same data; several on Ray, here or on a cluster."""
    configs = [on_device(run.config(shelf.out, data_root), device) for run in runs]
    if len(configs) == 1 and config.address is None:
        train(configs[0])
        return
    check_cells(config, configs)
    check_outcome(sweep(config, Plan([], {}, configs), train))


def on_device(config: TrainConfig, device: str) -> TrainConfig:
    """The config on a device; on the CPU training stays there, too."""
    config.device = device
    if device == "cpu":
        config.trainer = {"accelerator": "cpu"}
    return config
