"""What counts as reproduced, on made-up runs: each of the four verdicts, and none that a quick run does not deserve."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweetspot.reproductions import REPRODUCTIONS, Asked
from sweetspot.reproductions.needs import Computed, Shelf, TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure, Judged, Status, Within, judged
from tests.reproductions.shelves import put_result, put_run, text_result

MNIST = Asked(dataset="mnist")
PAPERS = {"Vanilla": (0.991, 0.64, 0.78), "MixCon(1, 1e-4)": (0.986, 0.14, 0.44)}  # accuracy, SSIM, PSIM


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def table_3(shelf: Shelf, figures: dict[str, tuple[float, float, float]], asked: Asked = MNIST) -> dict[str, Judged]:
    """Table 3 on MNIST where every seed has these figures, by cell."""
    item = REPRODUCTIONS["mixcon/table-3"]()
    runs: dict[str, tuple[TrainedRun, str]] = {}
    for cell in item.cells(asked):
        for (need,) in cell.needs:
            assert isinstance(need, TrainedRun)
            runs[need.key] = (need, cell.column)
    for need, column in runs.values():
        accuracy, ssim, psim = figures[column]
        put_run(shelf, need, accuracy, {"ssim": ssim, "psim": psim})
    return {each.cell.title: each for each in judged(item.cells(asked), shelf, item.stand_in(asked))}


def test_nothing_there_is_not_run(shelf: Shelf) -> None:
    for name in REPRODUCTIONS:
        item = REPRODUCTIONS[name]()
        assert {each.status for each in judged(item.cells(Asked()), shelf)} == {Status.NOT_RUN}


def test_the_papers_own_figures_are_reproduced(shelf: Shelf) -> None:
    found = table_3(shelf, PAPERS)
    assert {each.status for each in found.values()} == {Status.REPRODUCED}
    assert {each.seeds for each in found.values()} == {"3"}


def test_the_right_order_at_another_size_is_direction_only(shelf: Shelf) -> None:
    found = table_3(shelf, {**PAPERS, "MixCon(1, 1e-4)": (0.986, 0.30, 0.44)})
    cell = found["MNIST SSIM, MixCon(1, 1e-4)"]
    assert cell.status is Status.DIRECTION
    assert "lower than Vanilla" in cell.reason
    assert "0.16 above" in cell.reason


def test_the_wrong_order_is_not_reproduced_even_at_the_papers_size(shelf: Shelf) -> None:
    found = table_3(shelf, {**PAPERS, "Vanilla": (0.991, 0.12, 0.78)})
    assert found["MNIST SSIM, Vanilla"].status is Status.NOT_REPRODUCED
    mixcon = found["MNIST SSIM, MixCon(1, 1e-4)"]
    assert mixcon.status is Status.NOT_REPRODUCED
    assert "not lower than Vanilla" in mixcon.reason


def test_an_order_that_the_paper_does_not_see_does_not_count(shelf: Shelf) -> None:
    found = table_3(shelf, {"Vanilla": (0.985, 0.64, 0.78), "MixCon(1, 1e-4)": (0.990, 0.14, 0.44)})
    assert found["MNIST acc %, MixCon(1, 1e-4)"].status is Status.REPRODUCED, "half a point is less than the rule's one"


def test_a_quick_run_is_never_called_reproduced(shelf: Shelf) -> None:
    found = table_3(shelf, PAPERS, Asked(quick=True, dataset="mnist"))
    assert found["MNIST SSIM, MixCon(1, 1e-4)"].status is Status.DIRECTION
    assert found["MNIST SSIM, Vanilla"].status is Status.NOT_JUDGED
    assert "stand-in" in found["MNIST SSIM, Vanilla"].reason
    assert Status.REPRODUCED not in {each.status for each in found.values()}


def test_quick_and_full_runs_are_not_taken_for_each_other(shelf: Shelf) -> None:
    table_3(shelf, PAPERS, Asked(quick=True, dataset="mnist"))
    item = REPRODUCTIONS["mixcon/table-3"]()
    assert {each.status for each in judged(item.cells(MNIST), shelf)} == {Status.NOT_RUN}


def measured(values: list[float | None], paper: float, by: float = 1.0) -> Judged:
    """A cell whose seeds came out like this."""
    needs = [(Computed("text", {"seed": seed}),) for seed in range(len(values))]
    shelf = Shelf(Path("nowhere"))
    for (need,), value in zip(needs, values, strict=True):
        if value is not None:
            shelf.found[need.key] = (Path("x"), {"value": value})
    cell = Cell("row", "column", needs, lambda records: Figure(records[0]["value"]), Figure(paper), Within(by))
    return judged([cell], shelf)[0]


def test_our_spread_widens_the_margin_and_at_most_doubles_it() -> None:
    assert measured([11.5], 10).status is Status.NOT_REPRODUCED
    assert measured([11.0, 12.0], 10).status is Status.REPRODUCED, "1.5 away; two standard errors are 1"
    assert measured([5.0, 20.0], 10).status is Status.NOT_REPRODUCED, "2.5 away, and never more than 2 are allowed"
    assert measured([10.0, None, None], 10).seeds == "1 of 3"


def test_a_size_of_a_stand_in_is_not_judged_though_it_was_run() -> None:
    need = Computed("text", {"seed": 0})
    shelf = Shelf(Path("nowhere"))
    shelf.found[need.key] = (Path("x"), {})
    cell = Cell("row", "column", [(need,)], lambda _: Figure(10.0), Figure(10.0), Within(1))
    (found,) = judged([cell], shelf, "quick: small")
    assert found.status is Status.NOT_JUDGED
    shelf.found.clear()
    (found,) = judged([cell], shelf, "quick: small")
    assert found.status is Status.NOT_RUN


def test_an_order_within_the_noise_of_seeds_is_none() -> None:
    shelf = Shelf(Path("nowhere"))
    cells = []
    for column, paper, values in (("a", 1.0, [1.0, 3.0, 2.0]), ("b", 5.0, [2.0, 2.5, 2.0])):
        needs = [(Computed("text", {"of": column, "seed": seed}),) for seed in range(3)]
        shelf.found |= {need.key: (Path("x"), {"v": v}) for (need,), v in zip(needs, values, strict=True)}
        order = ("row", "a") if column == "b" else None
        read = lambda records: Figure(records[0]["v"])  # noqa: E731
        cells.append(Cell("row", column, needs, read, Figure(paper), Within(1), order))
    found = judged(cells, shelf)[1]
    assert found.status is Status.NOT_REPRODUCED, "0.17 higher on average, ± 0.6"
    assert "not higher than a" in found.reason


def test_claims_are_counted_over_the_grid(shelf: Shelf) -> None:
    item, asked = REPRODUCTIONS["mixcon/figure-3"](), Asked(dataset="mnist")
    for need in item.needs(asked):
        assert isinstance(need, TrainedRun)
        lam, beta = need.wanted["lambda"], need.wanted.get("beta", 0.0)
        put_run(shelf, need, accuracy=0.9 + beta / 100, distance=1 / (lam or 0.001))
    found = {each.cell.row.partition(": ")[2]: each for each in judged(item.cells(asked), shelf)}
    assert found["larger λ, smaller distance"].status is Status.REPRODUCED
    assert found["smaller β, smaller distance"].status is Status.NOT_REPRODUCED, "it is the same for every β"
    assert found["smaller β, smaller accuracy"].status is Status.REPRODUCED
    assert found["larger λ, smaller accuracy"].figure == Figure(0.0)


def test_another_model_can_show_a_direction_and_no_more(shelf: Shelf) -> None:
    item, asked = REPRODUCTIONS["hidden-states/table-2"](), Asked(model="smollm2", dataset="pydoc")
    for need in item.needs(asked):
        assert isinstance(need, Computed)
        em = {600: 0.35, 1000: 0.669, 2000: 0.975}[need.settings["steps"]]
        put_result(shelf, need, text_result(em, {0.35: 0.800, 0.669: 0.918, 0.975: 0.994}[em]))
    found = {each.cell.title: each.status for each in judged(item.cells(asked), shelf, item.stand_in(asked))}
    assert "Fast, Wikipedia, EM %" not in found, "one text stands for both"
    assert found["Baseline, C4, EM %"] is Status.DIRECTION
    assert found["Fast, C4, EM %"] is Status.NOT_JUDGED
    same = {each.cell.title: each.status for each in judged(item.cells(asked), shelf)}
    assert same["Baseline, C4, EM %"] is Status.REPRODUCED, "only the model and the text stand in the way"


def test_what_was_observed_of_text_is_judged_and_drawn(shelf: Shelf, tmp_path: Path) -> None:
    names = [name for name in REPRODUCTIONS if name.startswith("hidden-states/figure")]
    verdicts: dict[str, Status] = {}
    for name in names:
        item = REPRODUCTIONS[name]()
        for number, need in enumerate(item.needs(Asked())):
            assert isinstance(need, Computed)
            put_result(shelf, need, text_result(em=0.2 + 0.1 * number, alike=0.5 + 0.1 * number))
        verdicts |= {each.cell.row: each.status for each in judged(item.cells(Asked()), shelf)}
        picture = tmp_path / f"{name.replace('/', '-')}.png"
        assert item.draw(Asked(), shelf, picture)
        assert picture.stat().st_size > 2000
    assert verdicts["EM grows with the step budget"] is Status.REPRODUCED
    assert verdicts["orders of magnitude apart"] is Status.REPRODUCED
    assert verdicts["missed tokens with a space, %"] is Status.REPRODUCED, "80 % is within 10 of 76.9 %"
    assert verdicts["punctuation comes second"] is Status.REPRODUCED
    assert verdicts["ℓ2 finds no fewer than cosine"] is Status.NOT_REPRODUCED, "the first was given the least"
    assert verdicts["wrong commits: never near rank 1"] is Status.REPRODUCED
