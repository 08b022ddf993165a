"""The values of an axis, from the command line and from YAML."""

from __future__ import annotations

from typing import Any

import pytest

from sweetspot.errors import UserError
from sweetspot.sweeps.axes import FIELDS, Axis, Range, axis_of, grid_of


@pytest.mark.parametrize(
    ("written", "kind", "axis"),
    [
        (["1e-4", 1, 0.5], float | None, [1e-4, 1.0, 0.5]),
        (["1", 2], int, [1, 2]),
        (["none", 16, "120-16"], str | None, ["none", "16", "120-16"]),
        (["2", "pool1", 3], int | str, [2, "pool1", 3]),
        (["true", False], bool, [True, False]),
        (["clip+gaussian", "none"], list[str], ["clip+gaussian", "none"]),
        (["1e-4..1e-1"], float | None, Range(1e-4, 0.1)),
        (["2..8"], int, Range(2, 8)),
        (["0..0.5"], float, Range(0.0, 0.5)),
        (["../data/a..b.npz"], str | None, ["../data/a..b.npz"]),
    ],
)
def test_values_are_what_their_kind_makes_of_them(written: list[Any], kind: Any, axis: Axis) -> None:
    found = axis_of("--flag", written, kind)
    assert found == axis
    if isinstance(found, list) and isinstance(axis, list):
        assert [type(value) for value in found] == [type(value) for value in axis]


@pytest.mark.parametrize(
    ("written", "kind", "says"),
    [
        ([], float, "--flag needs at least one value"),
        (["1", "0.1", "1.0"], float, "--flag names 1 twice"),
        (["pool1", "pool1"], int | str, "--flag names pool1 twice"),
        (["much"], float | None, "--flag must be a finite number; got much"),
        (["nan"], float, "--flag must be a finite number; got nan"),
        ([None], int, "--flag must be a whole number; got None"),
        (["2.5"], int, "--flag must be a whole number; got 2.5"),
        ([True], float, "--flag must be a finite number; got True"),
        ([[1]], float, r"--flag must be a finite number; got \[1\]"),
        (["maybe"], bool, "--flag must be true or false; got maybe"),
        (["3..0.3"], float, r"--flag 3..0.3 runs from high to low: write 0.3..3"),
        (["1..1"], float, r"--flag 1..1 is one value and no range: write 1"),
        (["1.."], float, r"--flag takes a range low..high of numbers, such as 0.1..10; got 1.."),
        (["..3"], float, r"--flag takes a range"),
        (["a..b"], float, r"--flag takes a range"),
        (["1..2..3"], float, r"--flag takes a range"),
        (["1..inf"], float, r"--flag takes a range"),
        (["1.5..3"], int, r"--flag takes a range low..high of whole numbers, such as 2..8; got 1.5..3"),
        (["0.1..1", "5"], float, r"--flag 0.1..1 is a range, and stands alone; got 2 values"),
        (["8..32"], str | None, r"--flag 8..32 is a range, and --flag has no numbers: name its values"),
        (["1..3"], int | str, r"has no numbers"),
    ],
)
def test_what_is_no_axis_is_said_in_one_line(written: list[Any], kind: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        axis_of("--flag", written, kind)


def test_seeds_have_no_range() -> None:
    with pytest.raises(UserError, match=r"--seed 1..3 is a range: name the seeds"):
        axis_of("--seed", ["1..3"], int)


def test_a_key_that_no_grid_has_is_named_with_where_it_stands() -> None:
    kinds = {"lambda": float, "sigma": float}
    with pytest.raises(UserError, match=r"there is no sigmma for a grid to set \(did you mean sigma\?\) \(in a.yaml\)"):
        grid_of({"sigmma": [1]}, kinds, lambda name: " (in a.yaml)")
    with pytest.raises(UserError, match="no milestones for a grid to set: it is the same for all"):
        grid_of({"milestones": [1]}, kinds, lambda name: "")


def test_every_field_that_defines_a_run_is_an_axis() -> None:
    assert {"lam", "defence", "bottleneck", "release", "dataset", "network", "cut", "head", "epochs", "lr"} <= {*FIELDS}
    assert {"optimiser", "seed", "limit_train", "length", "vocabulary", "batch_size", "momentum"} <= {*FIELDS}
    assert not {"milestones", "options", "out", "force", "attacks", "trainer", "data_root"} & {*FIELDS}


def test_values_within_a_range_stay_readable_and_within_it() -> None:
    assert Range(0.01, 1.0).rounded(0.0123456) == 0.0123
    assert Range(0.1234567, 1.0).rounded(0.1234568) == 0.1234567
    assert Range(2, 8).rounded(5) == 5
    assert Range(0.1, 1.0).is_log
    assert not Range(0.0, 1.0).is_log
    assert not Range(1, 8).is_log
