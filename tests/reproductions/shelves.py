"""Shelves with made-up runs and results on them: what tables and figures need, without a second of training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweetspot.reproductions.needs import Computed, Shelf, TrainedRun
from sweetspot.runs.folder import Run
from tests.reports.fabricated import MADE_WITH, attack_record, defence_of, results_of


def put_run(
    shelf: Shelf,
    need: TrainedRun,
    accuracy: float = 0.9,
    scores: Mapping[str, float] | None = None,
    distance: float = 1.0,
    **changed: Any,
) -> Path:
    """A finished run that is what is needed, attacked on as many inputs; `changed` are fields of its config."""
    wanted = need.wanted
    name = f"run-{len(list(shelf.out.glob('run-*')))}"
    results = results_of(name, defence_of(wanted["defence"], wanted["lambda"], wanted.get("beta", 0.0)), wanted["seed"])
    results |= {"config": {**wanted, "trainer": {}, **changed}, "utility": {"accuracy": accuracy}}
    results["separability"]["mean"] = distance
    results["training"] = {"resumed": False, "devices": 1, "history": [{"epoch": 0, "train/accuracy": accuracy}]}
    for key in need.attacks:
        metrics = ("ssim", "psim", "mse", "mcs")
        record = attack_record("whitebox/paper", 0.0, wanted["seed"], range(need.samples), metrics)
        for metric, value in (scores or {}).items():
            record[metric] = {"mean": value, "std": 0.1, "worst": value, "decile": value}
            record["scores"][metric] = [value] * need.samples
        results["attacks"][key] = record
    run = Run(shelf.out / name)
    run.create()
    run.write_results(results)
    shelf.look_again()
    return run.folder


def put_result(shelf: Shelf, need: Computed, result: Mapping[str, Any]) -> None:
    """The kept result of a computation."""
    file = shelf.file(need)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"settings": dict(need.settings), "seconds": 1.0, "result": dict(result)}))
    shelf.look_again()


def text_result(em: float = 0.7, alike: float = 0.9, seconds: float = 1.0, **settings: Any) -> dict[str, Any]:
    """What an attack on text leaves: three prompts, the last one wrong."""
    observed = {
        "cumulative_loss": [[1e-13, 1e-12], [1e-13, 1e-12], [1e-13, 1e-2]],
        "right": [True, True, False],
        "detector": {"auroc": 1.0},
        "curves": {"steps": [1, 2], "loss": [[1.0, 0.1], [2.0, 0.2]], "prompts": [3, 3]},
        "ranks": {"steps": [1, 100], "right": {"median": [9, 0], "count": 5}, "wrong": {"median": [90, 9], "count": 1}},
        "failures": {"space-prefixed": 8, "punctuation": 1, "digits": 0, "continuation": 1, "other": 0,
                     "tokens": {"space-prefixed": 20, "punctuation": 4, "digits": 1, "continuation": 4, "other": 0}},
    }  # fmt: skip
    return {
        "em": em, "token_accuracy": em, "similarity": alike, "seconds_per_token": {"total": seconds},
        "settings": {"steps": 1000, **settings}, "observed": observed, "environment": MADE_WITH,
    }  # fmt: skip
