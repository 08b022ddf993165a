"""Every table and figure of the papers is there, with the papers' figures, and what it needs can be made and found."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sweetspot.datamodules.torchvision_sets import SETS
from sweetspot.reproductions import LEFT_OUT, REPRODUCTIONS, Asked
from sweetspot.reproductions.needs import LAYOUTS, TrainedRun
from sweetspot.reproductions.verdict import Within
from sweetspot.runs.fields import FLAG_NAMES

PUBLISHED = (
    *(f"mixcon/table-{n}" for n in range(1, 6)),
    *(f"mixcon/figure-{n}" for n in range(1, 7)),
    *(f"hidden-states/table-{n}" for n in range(1, 6)),
    *(f"hidden-states/figure-{n}" for n in range(1, 9)),
    *(f"gradients/figure-{n}" for n in range(1, 4)),
    "gradients/theorem",
)
FIGURES: list[tuple[str, str, str, float, float | None, float | None]] = [  # typed from the papers once more
    ("mixcon/table-1", "train %", "Vanilla", 91.5, None, None),
    ("mixcon/table-1", "test %", "MixCon(.1, .01)", 88.0, None, None),
    ("mixcon/table-1", "test %", "wider", 90.5, None, None),
    ("mixcon/table-1", "train %", "deeper, β = 0", 50.0, None, None),
    ("mixcon/table-2", "MSE", "MixCon(.1, 0)", 2.35, None, None),
    ("mixcon/table-2", "MCS", "MixCon(.1, .01)", 0.118, None, None),
    ("mixcon/table-3", "MNIST SSIM", "Vanilla", 0.64, 0.11, 0.83),
    ("mixcon/table-3", "MNIST PSIM", "MixCon(1, 1e-4)", 0.44, 0.07, 0.69),
    ("mixcon/table-3", "F-MNIST PSIM", "Vanilla", 0.71, 0.13, 0.92),
    ("mixcon/table-3", "SVHN SSIM", "MixCon(0.5, 1e-4)", 0.61, 0.15, 0.84),
    ("mixcon/table-3", "SVHN acc %", "MixCon(0.5, 1e-4)", 88.2, None, None),
    ("mixcon/table-4", "MNIST SSIM", "UniCon(1)", 0.31, 0.11, 0.59),
    ("mixcon/table-4", "F-MNIST acc %", "UniCon(1)", 89.6, None, None),
    ("mixcon/table-4", "SVHN PSIM", "UniCon(0.5)", 0.62, 0.05, 0.75),
    ("mixcon/table-5", "Vanilla", "SSIM", 0.53, 0.15, 0.9418),
    ("mixcon/table-5", "MixCon(1, 1e-8)", "PSIM", 0.85, 0.03, 0.94),
    ("mixcon/figure-4", "MNIST acc %", "MixCon(1, 1e-7)", 97.97, None, None),
    ("mixcon/figure-4", "MNIST acc %", "MixCon(100, 1e-2)", 98.04, None, None),
    ("mixcon/figure-6", "acc %", "MixCon(1, 1e-8)", 91.70, None, None),
    ("hidden-states/table-1", "high-accuracy", "candidates", 10_000, None, None),
    ("hidden-states/table-2", "Fast, Wikipedia", "EM %", 10.0, None, None),
    ("hidden-states/table-2", "Baseline, C4", "similarity", 0.918, None, None),
    ("hidden-states/table-3", "High-accuracy, C4", "s/token", 27.5, None, None),
    ("hidden-states/table-4", "Baseline", "EM %", 73.0, None, None),
    ("hidden-states/table-5", "SIPIT", "s/token", 0.65, None, None),
    ("hidden-states/figure-6", "orders of magnitude apart", "", 10.0, None, None),
    ("gradients/theorem", "tanh", "slope", -0.5, None, None),
]
SIZES = pytest.mark.parametrize("asked", [Asked(), Asked(quick=True)], ids=["full", "quick"])


def runs_of(asked: Asked) -> dict[str, TrainedRun]:
    """Every run that any table or figure needs."""
    needs = [need for name in REPRODUCTIONS for need in REPRODUCTIONS[name]().needs(asked)]
    return {need.key: need for need in needs if isinstance(need, TrainedRun)}


def recorded(need: TrainedRun) -> dict[str, Any]:
    """What the results of a run of its config say, as `train` writes them."""
    config = need.config(Path("runs"), None)
    flags = {FLAG_NAMES.get(name, name): value for name, value in config.flags().items()}
    epochs = {"epochs": config.attack_options["decoder_epochs"]} if config.attack_options else {}
    attack = {"samples": config.samples, "settings": epochs}
    return {"config": flags, "attacks": {name: attack for name in config.attacks if name != "none"}}


def test_every_published_table_and_figure_is_there_or_said_to_hold_nothing_to_run() -> None:
    assert {*REPRODUCTIONS, *LEFT_OUT} == set(PUBLISHED)
    assert not set(REPRODUCTIONS) & set(LEFT_OUT)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda each: ", ".join(each[:3]))
def test_figures_are_the_papers(figure: tuple[str, str, str, float, float | None, float | None]) -> None:
    name, row, column, mean, std, worst = figure
    (cell,) = [each for each in REPRODUCTIONS[name]().cells(Asked()) if each.place == (row, column)]
    assert cell.paper is not None
    assert (cell.paper.mean, cell.paper.std, cell.paper.worst) == (mean, std, worst)


def test_the_share_of_missed_tokens_with_a_space_is_417_of_542() -> None:
    cell = REPRODUCTIONS["hidden-states/figure-8"]().cells(Asked())[0]
    assert cell.paper is not None
    assert cell.paper.mean == pytest.approx(76.94, abs=0.01)


@SIZES
@pytest.mark.parametrize("name", list(REPRODUCTIONS))
def test_cells_have_places_of_their_own_and_an_order_to_others_that_are_there(name: str, asked: Asked) -> None:
    cells = REPRODUCTIONS[name]().cells(asked)
    places = [cell.place for cell in cells]
    assert len(set(places)) == len(places) > 0
    for cell in cells:
        assert cell.needs
        assert all(cell.needs)
        assert cell.against is None or cell.against in places
        assert isinstance(cell.rule, Within) == (cell.paper is not None)


@SIZES
def test_runs_are_found_by_the_record_that_training_leaves_and_by_no_other(asked: Asked) -> None:
    needs = runs_of(asked)
    records = {key: recorded(need) for key, need in needs.items()}
    sample = list(needs.values())[:: max(len(needs) // 25, 1)]
    for need in sample:
        fitting = [other for key, other in needs.items() if need.fits(records[key])]
        names = {other.config(Path("runs"), None).run_name("x", "y") for other in fitting}
        assert len(names) == 1, "one run, perhaps through several attacks"
        assert need.key in {other.key for other in fitting}


@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": 19},
        {"lr": 0.02},
        {"seed": 9},
        {"cut": "1"},
        {"optimiser": "adam"},
        {"limit_train": 100},
        {"trainer": {"precision": "bf16-mixed"}},
        {"epsilon": 0.5},
        {"weights": "w.pt"},
        {"train": "head"},
    ],
    ids=str,
)  # fmt: skip
def test_a_run_that_differs_is_another(changed: dict[str, Any]) -> None:
    need = next(each for each in runs_of(Asked()).values() if each.wanted["defence"] == "mixcon" and each.attacks)
    record = recorded(need)
    assert need.fits(record)
    assert not need.fits({**record, "config": {**record["config"], **changed}})


def test_an_attack_on_fewer_inputs_or_one_that_was_stopped_is_none() -> None:
    need = next(each for each in runs_of(Asked()).values() if each.attacks == ("decoder/paper",))
    record = recorded(need)
    attack = record["attacks"]["decoder/paper"]
    assert need.fits(record)
    for worse in ({"samples": 99}, {"stopped": True}, {"settings": {"epochs": 3}}):
        assert not need.fits({**record, "attacks": {"decoder/paper": {**attack, **worse}}})
    assert not need.fits({**record, "attacks": {}})
    assert not dataclasses.replace(need, samples=200).fits(record)


def test_runs_of_older_versions_are_found() -> None:
    need = next(iter(runs_of(Asked()).values()))
    record = recorded(need)
    del record["config"]["train"], record["config"]["standardise"]
    assert need.fits(record)


def test_where_datasets_lie_is_said_once() -> None:
    assert {name: each.layout for name, each in SETS.items()} == LAYOUTS
