"""Which cells grids have: the product of any axes, without what means nothing, and with vanilla."""

from __future__ import annotations

from typing import Any

import pytest

import sweetspot.sweeps.grid
from sweetspot.errors import UserError
from sweetspot.runs.config import TrainConfig
from sweetspot.sweeps.axes import Grid
from sweetspot.sweeps.grid import PAPER, LaidOut, completed, laid_out, varied
from sweetspot.sweeps.plan import planned

COMMON: dict[str, Any] = {"milestones": [5]}
NOISY: Grid = {"defence": ["compress"], "lambda": [1e-3, 1e-2], "sigma": [0.5, 1.0, 2.0]}


def laid(*grids: Grid, shared: tuple[str, ...] = ()) -> LaidOut:
    whole = [completed(grid, is_alone=len(grids) == 1, shared=shared) for grid in grids]
    return laid_out([{"dataset": ["mnist-5k"], **grid} for grid in whole], COMMON, [shared] * len(whole))


def cells(*grids: Grid, shared: tuple[str, ...] = ()) -> list[TrainConfig]:
    return laid(*grids, shared=shared).configs


def pairs(**grid: list[Any]) -> list[tuple[float, float, int]]:
    grid = {{"lam": "lambda"}.get(name, name): values for name, values in grid.items()}
    return [(cell.weight, cell.defence_record()["beta"], cell.seed) for cell in cells({**grid})]


# ---------------------------------------------------------------------- MixCon's own grid


def test_the_papers_grid_is_the_default() -> None:
    assert len(pairs()) == 8 * 7 + 1
    assert len(pairs(lam=[1.0])) == 7 + 1
    assert len(pairs(beta=[1e-2], cut=[1, 2])) == 8 * 2 + 1


@pytest.mark.parametrize("lam", [[1.0, 10.0], [0.0, 1.0, 10.0]])
def test_vanilla_is_part_of_every_grid_once(lam: list[float]) -> None:
    found = pairs(lam=lam, beta=[1e-2, 1e-4])
    assert found == [(0, 0, 0), (1, 1e-2, 0), (1, 1e-4, 0), (10, 1e-2, 0), (10, 1e-4, 0)]


def test_every_cell_has_every_seed() -> None:
    found = pairs(lam=[1.0], beta=[1e-2], seed=[3, 5])
    assert found == [(0, 0, 3), (1, 1e-2, 3), (0, 0, 5), (1, 1e-2, 5)]


def test_a_grid_of_lambda_and_beta_has_the_run_names_that_train_gives() -> None:
    common: dict[str, Any] = {"dataset": ["mnist-5k"]}
    found = laid_out([completed({"lambda": [0.1, 1.0, 10.0], "beta": [1e-2, 1e-4], **common})], {})
    alone = [TrainConfig.of(lam=0.0, dataset="mnist-5k")]
    alone += [TrainConfig.of(lam=lam, beta=beta, dataset="mnist-5k") for lam in (0.1, 1, 10) for beta in (1e-2, 1e-4)]
    names = [cell.name for cell in planned(found.configs)]
    assert names == [cell.name for cell in planned(alone)]
    assert names[0] == "mnist-5k-lenet-vanilla-s0-cac2e9a8"
    assert names[4] == "mnist-5k-lenet-mixcon-l1-b0.0001-s0-4b0c74f5"


@pytest.mark.parametrize(
    ("grid", "defences"),
    [
        ({"defence": ["unicon"]}, {("none", 0.0), ("unicon", 1.0)}),
        ({"defence": ["mixcon", "unicon"]}, {("none", 0.0), ("mixcon", 1.0), ("unicon", 1.0)}),
        ({"release": ["gaussian"]}, {("none", 0.0)}),
        ({"bottleneck": ["16"]}, {("none", 0.0)}),
        ({"release": ["none", "gaussian"]}, {("none", 0.0)}),
        ({"release": ["gaussian"], "lambda": [2.0]}, {("none", 0.0), ("mixcon", 2.0)}),
        ({"release": ["gaussian"], "beta": [1e-2]}, {("none", 0.0), ("mixcon", 1.0)}),
    ],
)
def test_beside_another_defence_lambda_is_one_value(grid: Grid, defences: set[tuple[str, float]]) -> None:
    assert {(cell.defence, cell.weight) for cell in cells(grid)} == defences
    assert "beta" not in completed(grid) or "beta" in grid


def test_one_of_several_grids_has_what_it_names() -> None:
    assert completed({"lambda": [1.0]}, is_alone=False) == {"lambda": [1.0], "defence": ["mixcon"]}
    assert completed({}) == {"defence": ["mixcon"], **PAPER}


# ---------------------------------------------------------------------- any flag


def test_cells_are_the_product_of_all_axes() -> None:
    grid: Grid = {**NOISY, "cut": ["pool1", "pool2", "relu3"], "bottleneck": ["none", "16", "120-16"]}
    found = cells(grid)
    assert len(found) == 2 * 3 * 3 * 3 + 1
    assert all(cell.release == ["gaussian"] for cell in found[1:]), "--sigma implies it"
    assert all(cell.milestones == [5] for cell in found)
    assert varied(found) == ["cut", "sigma"]
    labels = [cell.label for cell in planned(found, varied(found))]
    assert labels[1] == "compress(1e-3) + gaussian(0.5), cut pool1, seed 0"
    assert len(set(labels)) == len(labels)


def test_every_field_of_a_training_is_an_axis() -> None:
    grid: Grid = {"defence": ["nopeek"], "lr": [0.1, 0.01], "optimiser": ["sgd", "adam"], "epochs": [1, 2]}
    found = cells({**grid, "network": ["lenet"], "limit_train": [500], "momentum": [0.0, 0.9]})
    assert len(found) == 2 * 2**4, "each has a vanilla of its own"
    assert len({(each.lr, each.optimiser, each.epochs, each.momentum) for each in found}) == 2**4
    assert [each.is_vanilla for each in found] == [True] * 16 + [False] * 16


def test_vanilla_is_cut_once_wherever_the_others_are() -> None:
    found = cells({"defence": ["nopeek"], "cut": ["pool2", "pool1"], "lr": [0.1, 0.01], "seed": [0, 1]})
    vanilla = [(cell.seed, cell.lr, cell.cut) for cell in found if cell.is_vanilla]
    assert vanilla == [(0, 0.1, "pool2"), (0, 0.01, "pool2"), (1, 0.1, "pool2"), (1, 0.01, "pool2")]
    assert len(found) == 2 * 2 * 2 + 4
    asked = cells({"lambda": [0.0, 1.0], "beta": [1e-2], "cut": [1, 2]})
    assert [cell.cut for cell in asked if cell.is_vanilla] == [1, 2], "λ = 0 at every cut was asked for"


def test_an_option_multiplies_only_the_cells_whose_parts_have_it() -> None:
    grid: Grid = {"defence": ["mixcon", "unicon"], "beta": [1e-2, 1e-4], "release": ["none", "gaussian", "laplace"]}
    found = cells({**grid, "sigma": [0.5, 1.0, 2.0], "scale": [0.1, 0.2]})
    assert len(found) == (2 + 1) * (1 + 3 + 2) + 1
    unicon = [cell for cell in found if cell.defence == "unicon"]
    assert not any("beta" in cell.options for cell in unicon)
    assert [cell.options for cell in unicon if cell.release == ["laplace"]] == [{"scale": 0.1}, {"scale": 0.2}]


def test_cells_that_mean_the_same_run_are_one() -> None:
    assert len(cells({"release": ["gaussian", "clip+gaussian"], "sigma": [0.5]})) == 3
    assert len(cells({"defence": ["none", "mixcon"], "lambda": [1.0, 2.0]})) == 3
    assert len(cells({"release": ["gaussian"], "sigma": [0.5]}, {"release": ["gaussian"]})) == 2, "0.5 is the default"


def test_a_chain_is_one_value() -> None:
    found = cells({"release": ["none", "gaussian", "clip+gaussian"], "sigma": [0.5, 1.0], "clip": [1.0, 3.0]})
    assert [cell.release for cell in found] == [[], *[["gaussian"]] * 2, *[["clip", "gaussian"]] * 4]


def test_an_option_that_no_cell_has_is_refused() -> None:
    unused: list[Grid] = [{"sigma": [1.0]}, {"defence": ["nopeek"], "sigma": [1.0, 2.0]}]
    for grid in unused:
        with pytest.raises(UserError, match=r"--sigma means nothing for (mixcon|nopeek): it belongs to gaussian"):
            cells(grid)
    with pytest.raises(UserError, match=r"--beta means nothing for nopeek, unicon, gaussian: it belongs to mixcon"):
        cells({"defence": ["nopeek", "unicon"], "release": ["none", "gaussian"], "beta": [1.0]})
    with pytest.raises(UserError, match="--lambda weighs a penalty, and --defence none has none"):
        cells({"defence": ["none"], "lambda": [1.0]})
    with pytest.raises(UserError, match="--sigma must be above 0; got -1"):
        cells({"release": ["none", "gaussian"], "sigma": [1.0, -1.0]})


def test_a_combination_that_a_part_refuses_is_left_out_and_counted() -> None:
    found = laid({**NOISY, "release": ["none", "gaussian"]})
    assert len(found.configs) == 2 * 3 + 1
    assert found.note.startswith("left out: 2 combinations (--defence compress measures in the noise")
    assert laid({"defence": ["nopeek"]}).note == ""
    with pytest.raises(UserError, match="add --release gaussian --sigma 1"):
        laid({"defence": ["compress", "vib"], "release": ["none", "laplace"]})


def test_a_penalty_for_images_is_left_out_for_a_language_model() -> None:
    found = laid({"defence": ["mixcon", "nopeek"], "network": ["gpt2-tiny"], "dataset": ["pydoc"]})
    assert [cell.defence for cell in found.configs] == ["none", "mixcon"]
    assert "nopeek looks at images or vectors" in found.note


def test_a_grid_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweetspot.sweeps.grid, "MOST", 20)
    with pytest.raises(UserError, match="these flags make 24 combinations; at most 20 are a grid: use --search"):
        cells({"defence": ["nopeek"], "epochs": [1, 2, 3, 4], "lr": [0.1, 0.2, 0.3], "cut": [1, 2]})


# ---------------------------------------------------------------------- several grids


def test_several_grids_are_one_sweep() -> None:
    nopeek: Grid = {"defence": ["nopeek"], "lambda": [0.1, 0.3, 1.0], "cut": ["pool2"]}
    noise: Grid = {"release": ["gaussian"], "sigma": [0.1, 0.2], "cut": ["pool1"]}
    found = cells(nopeek, noise)
    assert [cell.cut for cell in found if cell.is_vanilla] == ["pool2"], "one vanilla for all"
    assert len(found) == 1 + 3 + 2


def test_a_strength_beside_the_grids_is_for_those_that_have_a_penalty() -> None:
    found = cells(
        {"defence": ["nopeek"], "lambda": [3.0]}, {"release": ["gaussian"], "lambda": [3.0]}, shared=("lambda",)
    )
    assert [(cell.defence, cell.weight, cell.release) for cell in found] == [
        ("none", 0.0, []), ("nopeek", 3.0, []), ("none", 0.0, ["gaussian"]),
    ]  # fmt: skip


def test_what_stands_beside_the_grids_must_mean_something_in_one_of_them() -> None:
    nopeek: Grid = {"defence": ["nopeek"], "sigma": [0.1, 0.2]}
    noise: Grid = {"release": ["gaussian"], "sigma": [0.1, 0.2]}
    assert len(cells(nopeek, noise, shared=("sigma",))) == 1 + 1 + 2
    with pytest.raises(UserError, match="--sigma means nothing for nopeek: it belongs to gaussian"):
        cells(nopeek, noise)
    with pytest.raises(UserError, match="--bits means nothing for nopeek, gaussian: it belongs to quantise"):
        cells({"defence": ["nopeek"], "bits": [1]}, {"release": ["gaussian"], "bits": [1]}, shared=("bits",))
