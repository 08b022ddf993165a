"""What of a grid is there, and what is left to do."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sweetspot.datamodules import load
from sweetspot.datamodules.text import load_text
from sweetspot.errors import UserError
from sweetspot.evaluations.dispatch import attacked_already
from sweetspot.lightning_modules.networks.foreign import is_foreign
from sweetspot.reports.gathering import read_whole
from sweetspot.reports.tables import describe_defence
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.runs.folder import Run

ROOM = 50e6  # bytes that must be free on the disk, besides those of the runs


class State(StrEnum):
    """How far a cell is, as far as its folder tells."""

    DONE = "done"
    TRAINED = "trained, attacks missing"
    BEGUN = "begun"
    FAILED = "failed"
    TO_DO = "to do"


@dataclass(frozen=True)
class SweepCell:
    """One run of a grid: its config and the folder that follows from it."""

    config: TrainConfig
    run: Run
    varied: tuple[str, ...] = ()  # what else cells of the grid differ in: fields, and options

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def label(self) -> str:
        """`MixCon(1, 1e-4), cut pool1, seed 0`: its defence, what else it differs in from others, and its seed."""
        defence, flags = self.config.defence_record(), self.config.flags()
        told = {"beta"} | {name for part in defence["release"] for name in part if name not in ("unit", "ramp")}
        apart = [name for name in self.varied if name in flags and name not in told]
        others = [f"{name.replace('_', ' ')} {flags[name]}" for name in apart]
        return ", ".join([describe_defence(defence), *others, f"seed {self.config.seed}"])

    def state(self) -> State:
        """How far it is."""
        if self.run.finished:
            read_whole(self.run)  # what no report could show is not done
            return State.DONE if attacked_already(self.run, self.config) else State.TRAINED
        if self.run.failure.is_file():
            return State.FAILED
        return State.BEGUN if self.run.checkpoint.is_file() else State.TO_DO

    def failure(self, error: str) -> dict[str, object]:
        """What `failed.json` says of it."""
        fields = {FLAG_NAMES.get(name, name): value for name, value in dataclasses.asdict(self.config).items()}
        return {"name": self.name, "error": error, "defence": self.config.defence_record(), "config": fields}


def planned(configs: Sequence[TrainConfig], varied: Sequence[str] = ()) -> list[SweepCell]:
    """The cells of a grid with their folders, on the data that are really there, found out once for all of them.

    Args:
        configs: of the cells.
        varied: the fields and options in which they differ, for their labels.
    """
    cells = []
    for config in configs:
        data = data_of(config)
        # a fallback is decided here and not once more on every machine of a cluster
        resolved = dataclasses.replace(config, dataset=data.name if config.dataset is None else config.dataset)
        run = Run(Path(config.out) / config.run_name(data.name, data.source, data.identity))
        cells.append(SweepCell(resolved, run, tuple(varied)))
    return cells


class Data(NamedTuple):
    """What is in the names of runs on some data, and what kind they are of: `images`, `vectors` or `text`."""

    name: str
    source: str
    identity: str
    kind: str


def data_of(config: TrainConfig) -> Data:
    """A config's data."""
    return looked_up(config.dataset, str(config.root), config.is_language, config.image_size, config.skip_corrupt)


@functools.cache
def looked_up(dataset: str | None, root: str, is_language: bool, image_size: int, skip_corrupt: bool) -> Data:
    """The same, found out once for all cells of a grid."""
    if is_language:
        text = load_text(dataset or "pydoc")
        return Data(text.name, text.source, text.identity, "text")
    arrays = load(dataset, Path(root), 0, image_size, skip_corrupt)
    kind = "images" if arrays.x_train.ndim == 4 else "vectors"
    return Data(arrays.name, arrays.source, arrays.identity, kind)


def kind_of_data(config: TrainConfig) -> str:
    """`images`, `vectors` or `text`."""
    return data_of(config).kind


def size_of(config: TrainConfig) -> float:
    """About how many bytes a run leaves: its checkpoint holds the weights and what the optimiser keeps of them."""
    if config.network.startswith("vgg") or is_foreign(config.network):
        return 3e8
    if config.is_language:
        return 5e7 if config.network == "gpt2-tiny" else 2e9
    return 5e6


def check_room(out: Path, cells: Sequence[SweepCell]) -> None:
    """Refuse to begin what the disk has no room for."""
    folder = next(each for each in (out, *out.absolute().parents) if each.exists())
    free, needed = shutil.disk_usage(folder).free, ROOM + sum(size_of(cell.config) for cell in cells)
    if free < needed:
        raise UserError(
            f"--out {out} has {free / 1e6:.0f} MB of disk left, and {len(cells)} runs need about {needed / 1e6:.0f}; "
            "make room or choose another --out"
        )
