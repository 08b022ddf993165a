"""ReproduceConfig: which tables and figures, in which size, and on what they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweetspot.errors import UserError
from sweetspot.files import check_figure, check_writable
from sweetspot.reproductions.base import Asked
from sweetspot.runs.fields import check_types
from sweetspot.sweeps.config import SweepConfig


@dataclass
class ReproduceConfig:
    """What is reproduced.

    Args:
        all: every table and figure, and the page of them.
        quick: small sizes, which say so and are never called reproduced.
        dataset: one of the paper's datasets alone; of hidden-states/… the text in place of the paper's, such as pydoc.
            Not given: the paper's.
        model: of hidden-states/…: smollm2, gpt2-tiny (which is trained first), a model's folder; default: gpt2, with
            --quick gpt2-tiny.
        seeds: how many; default: as many as a table or figure has.
        dry_run: show what is there, and run nothing.
        figure: a .png file for the picture of one figure; default: in the folder reproductions/ below --out.
        write: a .md file for the page of what is asked for, with its pictures beside it.
        out: the folder of all runs.
        data_root: where datasets lie or are downloaded to; default $SWEETSPOT_DATA, else data/.
        device: auto, cpu, cuda, cuda:1, …
        cpus_per_run: CPU cores, and threads, of a run.
        gpus_per_run: the share of a GPU that a run gets, such as 0.1; default: a whole one, where there are any.
        parallel: at most so many runs at a time; 0: as many as the machine or the cluster has room for.
        address: of a Ray cluster, auto or host:port; default: this machine alone.
    """

    all: bool = False
    quick: bool = False
    dataset: str | None = None
    model: str | None = None
    seeds: int | None = None
    dry_run: bool = False
    figure: str | None = None
    write: str | None = None
    out: str = "checkpoints"
    data_root: str | None = None
    device: str = "auto"
    cpus_per_run: int = 1
    gpus_per_run: float | None = None
    parallel: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.seeds is not None and self.seeds < 1:
            raise UserError(f"--seeds must be at least 1; got {self.seeds}")
        check_figure("--figure", self.figure)
        if self.write is not None and Path(self.write).suffix != ".md":
            raise UserError(f"--write {self.write} must end in .md")
        check_writable("--write", self.write)
        if Path(self.out).exists() and not Path(self.out).is_dir():
            raise UserError(f"--out {self.out} is no folder; choose another")

    @property
    def asked(self) -> Asked:
        """What is asked for of an item."""
        return Asked(self.quick, self.seeds, self.dataset, self.model)

    @property
    def sweep(self) -> SweepConfig:
        """How runs are made."""
        return SweepConfig(
            cpus_per_run=self.cpus_per_run, gpus_per_run=self.gpus_per_run, parallel=self.parallel, address=self.address
        )
