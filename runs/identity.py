"""What makes a run this run, and the name of its folder that follows from it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweetspot.errors import UserError
from sweetspot.runs.choices import PARTNERS

if TYPE_CHECKING:
    from sweetspot.runs.config import TrainConfig

FORMAT = 1  # raised when the same config begins to mean another network: old runs are then not taken for new ones
# the Trainer's arguments that change what comes out, and so belong to a run's identity
RESULT_CHANGING: tuple[str, ...] = (
    "precision",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "devices",
    "num_nodes",
)
RESULT_CHANGING += (
    "limit_train_batches",
    "max_steps",
    "min_epochs",
    "min_steps",
    "max_time",
    "overfit_batches",
    "fast_dev_run",
    "sync_batchnorm",
)
CAME_LATER: dict[str, Any] = {"optimiser": "sgd", "length": 64, "vocabulary": 4096, "bottleneck": None, "release": []}
CAME_LATER |= {
    "augment": [],
    "image_size": 0,
    "weights": None,
    "standardise": [],
    "train": "all",
    "schedule": "constant",
}
ONCE_FIELDS = {"beta": 0.0, "family": "inverse", "epsilon": 1e-6, "normalise": True}


def identity_of(config: TrainConfig, data_name: str, data_source: str, data_identity: str = "") -> dict[str, Any]:
    """What makes this run this run, with the data it really uses and the Trainer arguments that change a result.

    Args:
        config: of the run.
        data_name: of the data.
        data_source: where they came from; of older records a hash of the data stands at its end.
        data_identity: a hash of the data; empty where their name says what they are.
    """
    chosen = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.metadata.get("identity", True)}
    for name, default in CAME_LATER.items():  # runs from before have the same name as ever
        if chosen[name] == default:
            del chosen[name]
    del chosen["options"]
    if config.weights is not None:
        chosen["weights"] = digest_of(config.weights)
    if config.release:
        chosen["release"] = config.release_record()
    options = config.defence_options()
    if config.is_language and options.get("partners") == PARTNERS:
        del options["partners"]
    # these four once were fields of every run
    chosen |= {name: options.pop(name, default) for name, default in ONCE_FIELDS.items()}
    if options:
        chosen["options"] = options
    # a file is known by its content, a dataset of torchvision by its name, wherever it was found
    content = data_identity or data_source.partition("sha256 ")[2] or data_name
    trainer = {name: config.trainer[name] for name in RESULT_CHANGING if name in config.trainer}
    return {**chosen, "dataset": content, "cut": str(config.cut), "trainer": trainer, "format": FORMAT}


def run_name(config: TrainConfig, data_name: str, data_source: str, data_identity: str = "") -> str:
    """A readable prefix and a hash of the resolved config: `mnist-lenet-mixcon-l1-b0.0001-s0-1f2e3d4c`."""
    identity = json.dumps(identity_of(config, data_name, data_source, data_identity), sort_keys=True, default=str)
    parts = [data_name, short_network(config.network), *defence_in_name(config)]
    return "-".join([*parts, f"s{config.seed}", hashlib.sha256(identity.encode()).hexdigest()[:8]])


def defence_in_name(config: TrainConfig) -> list[str]:
    """The parts of the defence as a folder's name has them: `compress l0.01 k120-16 gaussian1`."""
    if config.is_vanilla:
        return ["vanilla"]
    parts = []
    if config.defence != "none":
        parts += [short(config.penalty.name), f"l{config.weight:g}"]
        if config.defence == "mixcon":
            parts.append(f"b{config.defence_options()['beta']:g}")
    if config.bottleneck is not None:
        parts.append(f"k{config.bottleneck}")
    for each in config.release_record():
        first = next((value for name, value in each.items() if name not in ("name", "unit", "ramp")), "")
        parts.append(short(each["name"]) + (f"{first:g}" if isinstance(first, int | float) else ""))
    return parts


def digest_of(file: str) -> str:
    """The SHA-256 of a file: it is known by its content, wherever it lies."""
    try:
        state = os.stat(file)
        return digest_at(file, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise UserError(f"--weights {file} cannot be read ({error.strerror})") from error


@functools.lru_cache(maxsize=64)
def digest_at(file: str, _changed: int, _size: int) -> str:
    """The same, read once as long as the file stays as it is."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def short_network(name: str) -> str:
    """A network in the name of a folder: a model's folder by its name, one that is not ours without its source.

    Example:
        >>> short_network("torchvision:resnet18"), short_network("nets/my_model.py:build"), short_network("lenet")
        ('resnet18', 'my_model.build', 'lenet')
    """
    from sweetspot.lightning_modules.networks.foreign import is_code, is_foreign

    if not is_foreign(name):
        return Path(name).name
    source, _, wanted = name.partition(":")
    parts = [Path(source).name.removesuffix(".py").rpartition(".")[2], wanted] if is_code(name) else [wanted]
    return re.sub(r"[^\w.-]", "-", ".".join(parts))


def short(name: str) -> str:
    """A part's name in the name of a folder; of a user's own the class.

    Example:
        >>> short("mixcon"), short("my/defences.py:Shuffle")
        ('mixcon', 'Shuffle')
    """
    return name.rpartition(":")[2]
