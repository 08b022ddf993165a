"""Figure 3: accuracy and mean pairwise distance over the grid of λ and β."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.mixcon.runs import IMAGES, QUICK_NOTE, TITLES, VANILLA, distance, lenet, mixcon
from sweetspot.reproductions.needs import Need, Shelf, TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure, Record

LAMBDAS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
BETAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
QUICK_LAMBDAS, QUICK_BETAS = (0.1, 1.0, 10.0), (1e-2, 1e-4)
Place = tuple[float, float]


def grid_of(asked: Asked) -> list[Place]:
    """Every (λ, β)."""
    sizes = (QUICK_LAMBDAS, QUICK_BETAS) if asked.quick else (LAMBDAS, BETAS)
    return list(itertools.product(*sizes))


def falls(places: Sequence[Place], axis: int, measure: Callable[[Record], float]) -> Callable[..., Figure]:
    """The share of neighbours along λ (axis 0) or β (1) in which the stronger setting has less of something."""

    def read(records: Sequence[Record]) -> Figure:
        at = dict(zip(places, records, strict=True))
        held, count = 0, 0
        for other in sorted({place[1 - axis] for place in places}):
            line = sorted((each for each in places if each[1 - axis] == other), reverse=axis == 1)
            for weak, strong in itertools.pairwise(line):
                held, count = held + (measure(at[strong]) < measure(at[weak])), count + 1
        return Figure(held / count)

    return read


@REPRODUCTIONS("mixcon/figure-3")
class Figure3(Reproduction):
    title = "LeNet5: accuracy and distance over (λ, β)"
    takes = ("dataset", "seeds")
    datasets = IMAGES
    note = "The paper gives no figures here; its claims are counted over neighbours in the grid. One seed."
    quick_note = f"{QUICK_NOTE.split(',')[0]}, 3 × 2 of (λ, β)"

    def cells(self, asked: Asked) -> list[Cell]:
        places, cells = grid_of(asked), []
        for dataset in self.chosen(asked):
            needs = [[lenet(dataset, mixcon(*each), seed, asked.quick) for each in places] for seed in seeds_of(asked)]
            for what, measure in (("distance", distance), ("accuracy", lambda record: record["utility"]["accuracy"])):
                for axis, change in enumerate(("larger λ", "smaller β")):
                    row = f"{TITLES[dataset]}: {change}, smaller {what}"
                    cells.append(Cell(row, "", needs, falls(places, axis, measure)))
        return cells

    def drawn_besides(self, asked: Asked) -> list[Need]:
        return [lenet(dataset, VANILLA, 0, asked.quick) for dataset in self.chosen(asked)]

    def draw(self, asked: Asked, shelf: Shelf, path: Path) -> bool:
        found = {}
        for dataset in self.chosen(asked):
            needs: dict[Place | None, TrainedRun] = {None: lenet(dataset, VANILLA, 0, asked.quick)}
            needs |= {each: lenet(dataset, mixcon(*each), 0, asked.quick) for each in grid_of(asked)}
            records = {each: shelf.find(need) for each, need in needs.items()}
            found[TITLES[dataset]] = {each: record for each, record in records.items() if record is not None}
        if not any(found.values()):
            return False
        from sweetspot.reproductions.pictures import trade_offs

        trade_offs({title: records for title, records in found.items() if records}, path)
        return True


def seeds_of(asked: Asked) -> range:
    """One seed: 171 runs are enough."""
    return asked.seeds_of(1)
