"""Grids as cells: the product of all axes without what means nothing, and vanilla beside it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweetspot.errors import UnfitError, UserError
from sweetspot.lightning_modules.defences import PENALTIES, RELEASES, Part
from sweetspot.runs.command_line import spelled
from sweetspot.runs.config import TrainConfig, chained, implied_release, means_nothing
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.sweeps.axes import FIELDS, Axis, Grid, Range

PAPER: dict[str, list[float]] = {  # MixCon's own grid, Figures 3 and 4
    "lambda": [0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0],
    "beta": [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8],
}
FLAGS = {FLAG_NAMES.get(name, name): name for name in FIELDS}  # fields by flag
OF_THE_DEFENCE = ("defence", "bottleneck", "release", "lambda")  # in the order that cells are listed by
OTHERS = tuple(name for name in FLAGS if name not in OF_THE_DEFENCE)
VANILLA: dict[str, Any] = {"lam": 0.0, "defence": "none", "bottleneck": None, "release": [], "options": {}}
CHAINED = ("release", "augment")  # lists themselves, of which a text with + is one
MOST = 100_000  # combinations of one grid: more were not meant


def completed(grid: Grid, is_alone: bool = True, shared: Collection[str] = ()) -> Grid:
    """A grid with the penalty that is meant where none is named, and MixCon's own axes where they are.

    Args:
        grid: as it was given.
        is_alone: whether it is all that was asked for: one of several grids, or a search, has what it names.
        shared: flags that it has because they stand beside it: they ask for no penalty beside a release of its own.
    """
    defends = {name for name in ("bottleneck", "release") if grid.get(name, ["none"]) != ["none"]}
    defence = grid.get("defence")
    if defence is None:
        said = grid.keys() - set(shared) if defends - set(shared) else grid.keys()
        speaks = "lambda" in said or bool(said & PENALTIES["mixcon"].options.keys())
        defence = ["mixcon"] if speaks or not defends else ["none"]
    usual = PAPER if is_alone and defence == ["mixcon"] and not defends else {}
    return {**grid, "defence": defence, **{name: values for name, values in usual.items() if name not in grid}}


def in_order(grid: Mapping[str, Axis]) -> list[str]:
    """The axes of a grid as its cells are listed: what is no defence first, then λ, then options."""
    known = [*OTHERS, *OF_THE_DEFENCE]
    return sorted(grid, key=lambda name: known.index(name) if name in known else len(known))


def ends_of(grid: Grid) -> Grid:
    """A grid with the two ends of each range in its place."""
    return {name: [axis.low, axis.high] if isinstance(axis, Range) else axis for name, axis in grid.items()}


def combinations(grid: Grid) -> Iterator[dict[str, Any]]:
    """One value of each axis, in every way."""
    names = in_order(grid)
    axes = [axis for axis in (grid[name] for name in names) if isinstance(axis, list)]
    count = math.prod(len(axis) for axis in axes)
    if count > MOST:
        raise UserError(f"these flags make {count:,} combinations; at most {MOST:,} are a grid: use --search")
    for values in itertools.product(*axes):
        yield dict(zip(names, values, strict=True))


def parts_of(values: Mapping[str, Any]) -> list[type[Part]]:
    """The parts of a defence that a combination names, with the release that it implies."""
    penalty = PENALTIES[values["defence"]]
    named = chained(values["release"]) if "release" in values else implied_release(penalty, dict(values))
    return [penalty, *(RELEASES[name] for name in named if name != "none")]


def meant_by(values: Mapping[str, Any]) -> dict[str, Any]:
    """A combination without the options that none of its parts has."""
    parts = parts_of(values)
    return {
        name: value for name, value in values.items() if name in FLAGS or any(name in part.options for part in parts)
    }


def config_of(values: Mapping[str, Any], common: Mapping[str, Any]) -> TrainConfig:
    """The config of a combination.

    Args:
        values: one of each axis, by flag.
        common: what all runs share, fields of TrainConfig.
    """
    fields, options = dict(common), {}
    for name, value in meant_by(values).items():
        if name in FLAGS:
            fields[FLAGS[name]] = [value] if name in CHAINED else value
        else:
            options[name] = value
    return TrainConfig(**fields, options=options)


def same_run(config: TrainConfig, without: Collection[str] = ()) -> str:
    """A text that two configs share if they mean the same run, apart from some fields."""
    identity = {**config.identity("", ""), "dataset": config.dataset}
    return json.dumps({name: value for name, value in identity.items() if name not in without}, default=str)


def vanillas(configs: Iterable[TrainConfig]) -> list[TrainConfig]:
    """The network without any defence for everything else that configs differ in, each at the first cut there is.

    What it is worth does not depend on where it is cut.
    """
    found: dict[str, TrainConfig] = {}
    for config in configs:
        vanilla = dataclasses.replace(config, **VANILLA)
        found.setdefault(same_run(vanilla, without=["cut"]), vanilla)
    return list(found.values())


@dataclass(frozen=True)
class LaidOut:
    """Grids as cells.

    Args:
        configs: of all cells: seed by seed, vanilla first, each run once.
        note: a line about combinations that were left out; empty where none were.
    """

    configs: list[TrainConfig]
    note: str = ""


def laid_out(
    grids: Sequence[Grid], common: Mapping[str, Any], shared: Sequence[Collection[str]] | None = None
) -> LaidOut:
    """The cells of some grids.

    Args:
        grids: completed ones.
        common: what all runs share, fields of TrainConfig.
        shared: of each grid the flags that stand beside it: it is enough if one of the grids has a use for them.
    """
    check_use(grids, shared or [()] * len(grids))
    cells: dict[str, TrainConfig] = {}
    refused: dict[str, str] = {}
    for grid in grids:
        for values in combinations(grid):
            try:
                config = config_of(values, common)
            except UnfitError as error:
                refused[repr(meant_by(values))] = str(error)
            else:
                cells.setdefault(same_run(config), config)
    if not cells:
        raise UserError(next(iter(refused.values())))
    seeds = list(dict.fromkeys(config.seed for config in cells.values()))
    both = {same_run(config): config for config in (*vanillas(cells.values()), *cells.values())}
    note = f"left out: {len(refused)} combinations ({'; '.join(dict.fromkeys(refused.values()))})" if refused else ""
    return LaidOut(sorted(both.values(), key=lambda config: seeds.index(config.seed)), note)


def check_use(grids: Sequence[Grid], shared: Sequence[Collection[str]]) -> None:
    """Refuse a flag that means nothing in any cell, with the parts that have it; `shared` as in `laid_out`."""
    used_somewhere = set().union(*(used_by(grid) for grid in grids))
    for grid, beside in zip(grids, shared, strict=True):
        used = used_by(grid) | (used_somewhere & set(beside))
        for name in grid:
            if name in used:
                continue
            if name == "lambda":
                raise UserError("--lambda weighs a penalty, and --defence none has none; leave one of them out")
            among = grids if name in beside else [grid]
            chosen = dict.fromkeys(each for one in among for each in (*listed(one, "defence"), *listed(one, "release")))
            parts = ", ".join(each for each in chosen if each != "none") or "none"
            raise UserError(means_nothing(spelled(name).removeprefix("--"), parts))


def listed(grid: Grid, name: str) -> list[Any]:
    """The values of an axis that is a list, or none of them where it is not given."""
    axis = grid.get(name, [])
    return [] if isinstance(axis, Range) else axis


def used_by(grid: Grid) -> set[str]:
    """The flags of a grid that mean something in one of its cells at least."""
    used = set(grid.keys() & FLAGS.keys())
    chosen: Grid = {name: axis for name, axis in grid.items() if name in ("defence", "release")}
    options = {name: None for name in grid if name not in FLAGS}
    for values in combinations(chosen):
        used |= meant_by({**options, **values}).keys()
    if grid["defence"] == ["none"] and grid.get("lambda", [0.0]) != [0.0]:
        used.discard("lambda")
    return used


def varied(configs: Sequence[TrainConfig]) -> list[str]:
    """The fields, apart from the defence and the seed, and the options in which configs differ."""
    found = []
    for name in (*FIELDS, *sorted({name for config in configs for name in config.options})):
        if FLAG_NAMES.get(name, name) in OF_THE_DEFENCE or name == "seed":
            continue
        values = {str(getattr(config, name) if name in FIELDS else config.options.get(name)) for config in configs}
        found += [name] if len(values) > 1 else []
    return found
