"""Finding a run's counterpart: the same network on the same data, without a defence."""

from __future__ import annotations

import dataclasses
from typing import Any

from errors import UserError
from runs.config import FLAG_NAMES, RESULT_CHANGING, TrainConfig
from runs.folder import Run

OF_THE_DEFENCE = {"lambda", "beta", "defence", "family", "epsilon", "normalise"}


def matching_vanilla(run: Run) -> dict[str, Any] | None:
    """The results of the vanilla run beside this one that differs from it in nothing but the defence."""
    results = run.read_results()
    if results["defence"]["name"] == "none":
        return None
    for folder in sorted(run.folder.parent.glob("*-vanilla-*")):
        try:
            other = Run(folder).read_results()
        except UserError:  # unfinished, or of another version
            continue
        if without_defence(other) == without_defence(results) and other["defence"]["name"] == "none":
            return other
    return None


def without_defence(results: dict[str, Any]) -> dict[str, Any]:
    """What a run is, apart from its defence and from where it was made."""
    fields = [each for each in dataclasses.fields(TrainConfig) if each.metadata.get("identity", True)]
    names = {FLAG_NAMES.get(each.name, each.name) for each in fields} - OF_THE_DEFENCE - {"dataset"}
    config = {name: str(value) for name, value in results["config"].items() if name in names}
    trainer = {name: value for name, value in results["config"]["trainer"].items() if name in RESULT_CHANGING}
    data = results["data"]
    content = data["source"].partition("sha256 ")[2]
    return {**config, "trainer": trainer, "data": [data["name"], content, data["train"], data["test"], data["shape"]]}
