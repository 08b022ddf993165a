"""What belongs to a run: the data it was trained on, and its counterpart without a defence."""

from __future__ import annotations

import dataclasses
from typing import Any

from sweetspot.datamodules.tensors import TensorDataModule
from sweetspot.errors import UserError
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.runs.folder import Run
from sweetspot.runs.identity import CAME_LATER, RESULT_CHANGING

OF_THE_DEFENCE = {"lambda", "defence", "bottleneck", "release", "options"}


def matching_vanilla(run: Run) -> dict[str, Any] | None:
    """The results of the vanilla run beside this one that differs from it in nothing but the defence."""
    results = run.read_results()
    if is_vanilla(results["defence"]):
        return None
    for folder in sorted(run.folder.parent.glob("*-vanilla-*")):
        try:
            other = Run(folder).read_results()
        except UserError:  # unfinished, or of another version
            continue
        if without_defence(other) == without_defence(results) and is_vanilla(other["defence"]):
            return other
    return None


def is_vanilla(defence: dict[str, Any]) -> bool:
    """Whether nothing defends a run: no penalty, no bottleneck, no release; older records know of penalties alone.

    Of a network that was trained elsewhere, whose weights an audit names, nobody knows.
    """
    parts = ("bottleneck", "release", "weights")
    return defence["name"] == "none" and not any(defence.get(part) for part in parts)


def without_defence(results: dict[str, Any]) -> dict[str, Any]:
    """What a run is, apart from its defence and from where it was made."""
    fields = [each for each in dataclasses.fields(TrainConfig) if each.metadata.get("identity", True)]
    names = {FLAG_NAMES.get(each.name, each.name) for each in fields} - OF_THE_DEFENCE - {"dataset"}
    config = {name: str(value) for name, value in {**CAME_LATER, **results["config"]}.items() if name in names}
    given = results["config"].get("trainer", {})
    trainer = {name: value for name, value in given.items() if name in RESULT_CHANGING}
    data = results["data"]
    audit = {"audit": True} if "audit" in results else {}
    return {
        **config,
        **audit,
        "trainer": trainer,
        "data": [data["name"], identity_of(data), data["train"], data["test"], data["shape"]],
    }


def identity_of(data: dict[str, Any]) -> str:
    """What tells recorded data from others: a hash of a file's content, the name of a dataset of torchvision.

    Older records have the hash at the end of their source.

    Example:
        >>> identity_of({"name": "a", "source": "a.npz, sha256 1f"}), identity_of({"name": "mnist", "source": ""})
        ('1f', 'mnist')
    """
    return str(data.get("identity") or data["source"].partition("sha256 ")[2] or data["name"])


def check_same_data(results: dict[str, Any], datamodule: TensorDataModule) -> None:
    """Refuse other data than those a run was trained on: an attack on them would mean something else."""
    recorded, arrays = results["data"], datamodule.arrays
    theirs, ours = identity_of(recorded), arrays.identity or arrays.name
    if theirs != ours or recorded["test"] != len(datamodule.test[1]) or recorded["train"] != len(datamodule.train[1]):
        raise UserError(
            f"{results['name']} was trained on {recorded['name']} ({recorded['source']}), and this is "
            f"{arrays.name} ({arrays.source}); give the data it was trained on with --dataset or --data-root"
        )
