"""What a cell needs, and what of it is on disk: ordinary runs, known by their records, and results named by content.

Nothing here loads torch: the list of all tables is made from JSON files alone.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError
from sweetspot.registries import PENALTIES
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.experiments import FOLDER as EXPERIMENTS
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.runs.folder import Run, read_json
from sweetspot.runs.identity import CAME_LATER, RESULT_CHANGING
from sweetspot.runs.yaml_files import read_yaml

FOLDER = "reproductions"  # below --out: results of computations, pictures
# what must lie under the data root; the same as datamodules.torchvision_sets says, which needs torch
LAYOUTS = {
    "mnist": "MNIST/raw/train-images-idx3-ubyte",
    "fashion-mnist": "FashionMNIST/raw/train-images-idx3-ubyte",
    "svhn": "train_32x32.mat",
    "cifar10": "cifar-10-batches-py/data_batch_1",
}
TRAINED_ON = {"mnist": 57_000, "fashion-mnist": 57_000, "svhn": 69_594, "cifar10": 47_500, "mnist-5k": 3_800}
TRAINED_ON |= {"synthetic": 760, "pydoc": 832}  # blocks of text
# seconds of training for an example where no run was timed yet, measured on one thread of a CPU
EXAMPLE_SECONDS = {"lenet": 0.00023, "mlp": 0.0003, "vgg16-bn": 0.023, "gpt2-tiny": 0.01}
# of attacks on 100 images, measured too, but for the GAN's 50 epochs, of which only a guess can be given
ATTACK_SECONDS = {"whitebox/paper": 5.0, "decoder/paper": 15_000.0}
FLOOR_SECONDS = 25.0  # of what the label alone gives, which runs beside every attack
# seconds of a step for one token, all prompts at once, one thread: README's figures for 50 prompts and for 2
TOKEN_SECONDS = {"gpt2-tiny": 0.00065}
LARGE_TOKEN_SECONDS = 0.05
SIPIT_STEPS = 109  # a token on gpt2-tiny
GRADIENT_SECONDS = 1e-6  # for a hidden unit and an input, besides a second


@dataclass(frozen=True, eq=False)
class Need:
    """Something that a cell is computed from."""

    @property
    def key(self) -> str:
        """What it is, as a text: the same for two that are the same."""
        raise NotImplementedError

    @property
    def first(self) -> tuple[TrainedRun, ...]:
        """Runs that must be there before it can be made."""
        return ()

    @property
    def data(self) -> tuple[str, ...]:
        """The datasets and models that it is made from."""
        return ()

    def seconds(self, shelf: Shelf) -> float:
        """About how long it takes on one core."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class TrainedRun(Need):
    """An ordinary run of `train.py`.

    Args:
        flags: fields of TrainConfig and options of its penalty that differ from the defaults; a vanilla one says
            `defence="none", lam=0.0`.
        attacks: that it must have been through, by their names in results.
        samples: how many inputs they were tried on, at least.
        options: of the attacks.
    """

    flags: Mapping[str, Any]
    attacks: tuple[str, ...] = ()
    samples: int = 100
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def key(self) -> str:
        return json.dumps([self.wanted, self.attacks, self.samples, dict(self.options)], sort_keys=True, default=str)

    @property
    def data(self) -> tuple[str, ...]:
        return (str(self.wanted["dataset"]),)

    @functools.cached_property
    def wanted(self) -> dict[str, Any]:
        """Every field that makes the run what it is, with its defaults, by flag, as a record has it."""
        fields = {each.name: each for each in dataclasses.fields(TrainConfig) if each.metadata.get("identity", True)}
        whole = {
            name: each.default_factory() if callable(each.default_factory) else each.default
            for name, each in fields.items()
            if name != "options"
        }
        options = {name: each.default for name, each in PENALTIES.options()[self.flags["defence"]].items()}
        return {FLAG_NAMES.get(name, name): value for name, value in {**whole, **options, **self.flags}.items()}

    def fits(self, results: Mapping[str, Any]) -> bool:
        """Whether a finished run is this one, and has been through the attacks."""
        config = results["config"]
        for name, value in self.wanted.items():
            found = config.get(name, CAME_LATER.get(name, value if name == "partners" else None))
            if (str(found) if name == "cut" else found) != (str(value) if name == "cut" else value):
                return False
        if any(name in config.get("trainer", {}) for name in RESULT_CHANGING):
            return False
        return all(self.is_tried(results["attacks"].get(name, {})) for name in self.attacks)

    def is_tried(self, attack: Mapping[str, Any]) -> bool:
        """Whether an attack's record is whole, and of the length that is asked for."""
        if attack.get("samples", 0) < self.samples or attack.get("stopped"):
            return False
        epochs = self.options.get("decoder_epochs")
        return epochs is None or attack["settings"].get("epochs") == epochs

    def config(self, out: Path, data_root: str | None) -> TrainConfig:
        """The config that makes it; loads torch."""
        asked = {"attacks": list(self.attacks) or ["none"], "samples": self.samples, "attack_options": {**self.options}}
        return TrainConfig.of(**self.flags, **asked, out=str(out), data_root=data_root)

    def seconds(self, shelf: Shelf) -> float:
        """About how long it takes on one core of this machine, where runs of its kind were timed, or of ours."""
        tried = sum(ATTACK_SECONDS.get(name, 60.0) for name in self.attacks) + FLOOR_SECONDS * bool(self.attacks)
        if epochs := self.options.get("decoder_epochs"):
            tried *= epochs / 50
        count = self.wanted["limit_train"] or TRAINED_ON.get(self.wanted["dataset"], 50_000)
        return float(self.wanted["epochs"] * count * shelf.example_seconds(self.wanted["network"]) + tried)


@dataclass(frozen=True, eq=False)
class Computed(Need):
    """What a function of ours gives for some settings, kept as a JSON file that is named by them.

    Args:
        kind: which function: `gradient`, `text` or `operating-points`.
        settings: plain data, on which the result depends.
        run: whose folder it is about.
    """

    kind: str
    settings: Mapping[str, Any]
    run: TrainedRun | None = None

    @functools.cached_property
    def key(self) -> str:
        return json.dumps([self.kind, dict(self.settings), self.run and self.run.key], sort_keys=True, default=str)

    @property
    def first(self) -> tuple[TrainedRun, ...]:
        return (self.run,) if self.run else ()

    @property
    def data(self) -> tuple[str, ...]:
        named = (self.settings.get("dataset"), self.settings.get("corpus"), self.settings.get("model"))
        return tuple(each for each in named if each is not None and self.kind != "operating-points")

    @property
    def file_name(self) -> str:
        return f"{self.kind}-{hashlib.sha256(self.key.encode()).hexdigest()[:12]}.json"

    def seconds(self, shelf: Shelf) -> float:
        """About how long it takes on one core."""
        if self.kind == "gradient":
            dim = 784 if self.settings.get("dataset") else self.settings["dim"]
            return 1.0 + GRADIENT_SECONDS * float(self.settings["width"] * dim)
        if self.kind != "text":
            return 0.0
        steps = self.settings.get("steps") or SIPIT_STEPS
        tokens = self.settings["prompts"] * self.settings["length"]
        return float(steps * tokens * TOKEN_SECONDS.get(self.settings["model"], LARGE_TOKEN_SECONDS))


class Shelf:
    """What is on disk below a folder of runs; read once, until `look_again`.

    Args:
        out: the folder.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.look_again()

    def look_again(self) -> None:
        """Forget what was read: something was made since."""
        self.records: dict[tuple[Any, ...], list[tuple[Path, dict[str, Any]]]] | None = None
        self.found: dict[str, tuple[Path, Mapping[str, Any]]] = {}

    def runs(self) -> dict[tuple[Any, ...], list[tuple[Path, dict[str, Any]]]]:
        """Finished runs by what they are first of all; those that cannot be read are not there."""
        if self.records is None:
            self.records = {}
            for file in sorted(self.out.glob("*/results.json")):
                try:
                    results = Run(file.parent).read_results()
                except UserError:
                    continue
                self.records.setdefault(kind_of(results["config"]), []).append((file.parent, results))
        return self.records

    def find(self, need: Need) -> Mapping[str, Any] | None:
        """The record of what is needed; None where it is not there."""
        return found[1] if (found := self.place(need)) else None

    def folder(self, need: TrainedRun) -> Path | None:
        """Where a run lies."""
        return found[0] if (found := self.place(need)) else None

    def place(self, need: Need) -> tuple[Path, Mapping[str, Any]] | None:
        """Where something lies, and its record."""
        if need.key not in self.found:
            place = self.run_of(need) if isinstance(need, TrainedRun) else self.computed(need)
            if place is None:
                return None
            self.found[need.key] = place
        return self.found[need.key]

    def run_of(self, need: TrainedRun) -> tuple[Path, Mapping[str, Any]] | None:
        """The finished run that is needed."""
        alike = self.runs().get(kind_of(need.wanted), [])
        return next(((folder, results) for folder, results in alike if need.fits(results)), None)

    def computed(self, need: Need) -> tuple[Path, Mapping[str, Any]] | None:
        """The kept result of a computation."""
        assert isinstance(need, Computed)
        file = self.file(need)
        try:
            kept = read_json(file)
        except (OSError, ValueError):
            return None
        return (file, kept["result"]) if isinstance(kept, dict) and "result" in kept else None

    def file(self, need: Computed) -> Path:
        """Where the result of a computation is kept."""
        return self.out / FOLDER / need.file_name

    def example_seconds(self, network: str) -> float:
        """The median time that training took for an example of this network here, or ours where none was trained."""
        timed = []
        for records in self.runs().values():
            for _, results in records:
                made, config = results.get("training", {}), results["config"]
                if config.get("network") == network and not made.get("resumed"):
                    examples = config["epochs"] * results["data"]["train"]
                    timed.append(results["environment"]["seconds"] / max(examples, 1))
        return statistics.median(timed) if timed else EXAMPLE_SECONDS.get(network, 0.01)


def kind_of(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a run is first of all: runs that differ here are different runs."""
    return tuple(config.get(name) for name in ("dataset", "network", "defence", "lambda", "seed"))


def experiment_flags(name: str) -> dict[str, Any]:
    """The flags of an experiment in configs/, by field."""
    written = read_yaml("--config", EXPERIMENTS / f"{name}.yaml")
    fields = {flag: field for field, flag in FLAG_NAMES.items()}
    return {fields.get(flag, flag): value for flag, value in written.items()}


def missing_data(needs: Sequence[Need], root: Path) -> list[str]:
    """The datasets and models that are not on this machine, as far as can be told without trying."""
    names = dict.fromkeys(name for need in needs for name in need.data)
    return [name for name in names if not is_here(name, root)]


def is_here(name: str, root: Path) -> bool:
    """Whether a dataset or a model is on this machine, or may be: only what is known to be missing is not."""
    if name in LAYOUTS:
        return (root / LAYOUTS[name]).exists()
    if name in ("c4", "wikipedia"):
        return importlib.util.find_spec("datasets") is not None
    if name == "gpt2":
        import huggingface_hub

        return isinstance(huggingface_hub.try_to_load_from_cache("gpt2", "config.json"), str) or Path(name).is_dir()
    return True
