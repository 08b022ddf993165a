"""Attacks on saved runs, one after the other, each with its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError
from sweetspot.evaluations.chosen import check_asked
from sweetspot.evaluations.dispatch import check_attacks_fit, evaluate, found_done, is_text
from sweetspot.reports.gathering import Gathered, is_run, walk
from sweetspot.reports.tables import attacks_table
from sweetspot.reports.text_figures import frontier_figure
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.environment import pick_device
from sweetspot.runs.folder import Run
from sweetspot.runs.matching import matching_vanilla


def run_at(path: Path) -> Run:
    """The finished run at a path, or what is wrong with it."""
    path = path.resolve()  # `.` inside a run is that run
    if path.suffix == ".ckpt" and path.is_file() and path.name != "last.ckpt":
        raise UserError(f"{path} is no run: give a run's folder, or its last.ckpt")
    run = Run(path.parent if path.suffix == ".ckpt" else path)
    if not run.folder.is_dir():
        raise UserError(f"there is no run {run.folder}; train.py makes one")
    if not run.checkpoint.is_file() and run.finished and "audit" in run.read_results():
        raise UserError(f"{run.folder} is an audit, and no run: `sweetspot attack` goes on with it")
    if not run.checkpoint.is_file():
        raise UserError(f"{run.folder} has no last.ckpt, so there is nothing to attack; train.py makes it")
    if not run.finished:
        raise UserError(
            f"{run.folder} has no results.json: its training is not finished, or the file was removed; "
            f"`{run.command()}` goes on from its last.ckpt"
        )
    return run


def expanded(paths: Sequence[str], config: AttackConfig) -> list[Path]:
    """The paths, with the runs in it for a folder of runs; what is no run, or cannot be attacked so, is named."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir() or is_run(path):
            found.append(path)  # named by the user: what is wrong with it is an error
            continue
        below = [each for each in sorted(walk(path, Gathered())) if each.is_dir()]
        if not below:
            print(f"skipped  {path}: there is no run in it", flush=True)
        for each in below:
            try:
                check_attacks_fit(str(each), is_text(run_at(each)), config)
            except UserError as error:
                print(f"skipped  {error}", flush=True)
            else:
                found.append(each)
    if not found:
        raise UserError(f"no run to attack in {' '.join(paths)}; train.py and sweep.py make them")
    return list(dict.fromkeys(each.resolve() for each in found))


def evaluate_runs(paths: Sequence[str], config: AttackConfig, root: str | None, dataset: str | None) -> None:
    """Attack every run; what fails is said in the end, and the others are attacked all the same.

    Args:
        paths: run folders, their checkpoints, or folders of runs.
        config: which attacks, on how many inputs, how hard.
        root: where the runs' datasets lie, if not where they were.
        dataset: what to call the runs' dataset here, for a file that was moved.
    """
    check_asked(config)
    if config.attacks == ["none"]:
        raise UserError("--attacks none leaves nothing to do; name whitebox, decoder or text")
    pick_device(config.device)
    failed: list[str] = []
    texts: list[dict[str, Any]] = []
    chosen = expanded(paths, config)
    for path in chosen:
        try:
            run = run_at(path)
            if len(chosen) > 1:
                print(run.folder, flush=True)
            if (results := found_done(run, config)) is None:
                with run.claimed():
                    results = evaluate(run, config, root, dataset)
        except UserError as error:  # the others are attacked all the same
            failed.append(str(error))
            continue
        attacks_table(results, matching_vanilla(run))
        if "text/hybrid" in results["attacks"]:
            texts.append(results)
    if len(texts) > 1:
        picture = run_at(chosen[0]).folder.parent / "text-frontier.png"
        frontier_figure(texts, picture)
        print(f"picture  {picture}", flush=True)
    if failed:
        raise UserError(
            failed[0] if len(chosen) == 1 else f"{len(failed)} of {len(chosen)} failed: {'; '.join(failed)}"
        )
