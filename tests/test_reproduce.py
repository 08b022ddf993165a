"""reproduce.py as a user runs it: the list, one table, what is there already, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweetspot.commands.reproduce import main
from sweetspot.errors import UserError
from sweetspot.reproductions import LEFT_OUT, REPRODUCTIONS, Asked, making
from sweetspot.reproductions.needs import Need, Shelf, TrainedRun
from tests.conftest import refused_by
from tests.documents import commands
from tests.reports.fabricated import drawn_images, write_pictures
from tests.reproductions.shelves import put_run

OWN = """
from sweetspot.reproductions import Reproduction
from sweetspot.reproductions.mixcon.runs import VANILLA, accuracy
from sweetspot.reproductions.needs import Computed, TrainedRun
from sweetspot.reproductions.verdict import Cell, Figure, Within

class Mine(Reproduction):
    title = "a run and a computation of a second"

    def cells(self, asked):
        run = TrainedRun({**VANILLA, "dataset": "synthetic", "network": "mlp", "epochs": 1, "batch_size": 100})
        settings = {"activation": "tanh", "dim": 4, "width": 400, "seed": 0}
        error = lambda records: Figure(records[0]["recovered"]["polished"]["rms"])
        return [
            Cell("accuracy", "", [(run,)], accuracy, Figure(50.0), Within(50.0)),
            Cell("error", "", [(Computed("gradient", settings),)], error, Figure(0.0), Within(1e-6), digits=6),
        ]
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_list_has_everything_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for name in (*REPRODUCTIONS, *LEFT_OUT):
        assert f" {name} " in said
    assert "needs mnist, fashion-mnist, svhn" in said
    assert "a drawing of the method" in said
    assert max(map(len, said.splitlines())) <= 80
    assert not list(tmp_path.iterdir())


def test_the_list_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shelf = Shelf(tmp_path / "checkpoints")
    needs = REPRODUCTIONS["mixcon/table-2"]().needs(Asked())
    for need in needs[:-1]:
        assert isinstance(need, TrainedRun)
        put_run(shelf, need, scores={"mse": 1.0, "mcs": 0.5})
    assert main([]) == 0
    said = capsys.readouterr().out
    assert f"{len(needs) - 1} of {len(needs)} there" in said
    assert isinstance(needs[-1], TrainedRun)
    put_run(shelf, needs[-1], scores={"mse": 1.0, "mcs": 0.5})
    assert main([]) == 0
    assert "6 not reproduced" in capsys.readouterr().out


@pytest.mark.parametrize("argv", commands("reproduce"), ids=" ".join)
def test_a_command_of_the_documents_can_be_meant(argv: list[str], tmp_path: Path) -> None:
    assert main([*argv, "--dry-run"]) == 0
    assert (tmp_path / "docs" / "reproduction.md").is_file() == ("--all" in argv)


def test_a_table_is_shown_from_what_is_there_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "make", lambda *_: pytest.fail("there is nothing to make"))
    shelf = Shelf(tmp_path / "checkpoints")
    for need in REPRODUCTIONS["mixcon/table-3"]().needs(Asked(dataset="mnist")):
        assert isinstance(need, TrainedRun)
        vanilla = need.wanted["defence"] == "none"
        put_run(shelf, need, 0.99, {"ssim": 0.36 if vanilla else 0.19, "psim": 0.8 if vanilla else 0.6})
    assert main(["mixcon/table-3", "--dataset", "mnist", "--write", "page.md"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert ".64±.11 (.83)" in said
    assert ".36±.10 (.36)" in said
    assert "4 reproduced, 1 direction only, 1 not reproduced" in said
    page = (tmp_path / "page.md").read_text("utf-8")
    assert "`python reproduce.py mixcon/table-3 --dataset mnist`" in page
    assert "| MNIST PSIM, MixCon(1, 1e-4) | .44±.07 (.69) | .60±.10 (.60) | 3 | **direction only** |" in page


def page_of(tmp_path: Path) -> str:
    """The page of all items, made from what is there."""
    assert main(["--all", "--dry-run"]) == 0
    return (tmp_path / "docs" / "reproduction.md").read_text("utf-8")


def test_a_later_page_only_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweetspot.reproductions.page.commit", lambda: "first")
    item, shelf = REPRODUCTIONS["mixcon/table-2"](), Shelf(tmp_path / "checkpoints")
    for need in item.needs(Asked(quick=True)):
        assert isinstance(need, TrainedRun)
        put_run(shelf, need, scores={"mse": 1.0, "mcs": 0.5})
    page = page_of(tmp_path)
    assert "`python reproduce.py mixcon/table-2 --quick` at commit first: " in page
    assert "### mixcon/table-3" not in page
    assert "not run: needs mnist, fashion-mnist, svhn, and about" in page

    monkeypatch.setattr("sweetspot.reproductions.page.commit", lambda: "second")
    assert "`python reproduce.py mixcon/table-2 --quick` at commit first: " in page_of(tmp_path), "nothing is new in it"
    (full, *_) = item.needs(Asked())
    assert isinstance(full, TrainedRun)
    put_run(shelf, full, scores={"mse": 1.0, "mcs": 0.5})
    page = page_of(tmp_path)
    assert "`python reproduce.py mixcon/table-2` at commit second: 1 of " in page
    assert page.index("### mixcon/table-2:") < page.index("### mixcon/table-2 --quick:"), "the paper's size first"

    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")  # as on another machine, which has none of the runs
    monkeypatch.setattr("sweetspot.reproductions.page.commit", lambda: "third")
    later = page_of(tmp_path)
    assert later.replace("at commit third from", "at commit second from") == page


def test_pictures_are_in_the_papers_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shelf, images = Shelf(tmp_path / "checkpoints"), drawn_images(4)
    for need in REPRODUCTIONS["mixcon/figure-4"]().needs(Asked(dataset="mnist")):
        assert isinstance(need, TrainedRun)
        folder = put_run(shelf, need, scores={"ssim": 0.5})
        write_pictures(folder, 0.3, images, range(4), ["whitebox/paper"])
    assert main(["mixcon/figure-4", "--dataset", "mnist", "--figure", "four.png"]) == 0
    assert "picture  four.png" in capsys.readouterr().out
    said = (shelf.out / "reproductions" / "mixcon-figure-4-dataset-mnist.md").read_text("utf-8")
    assert "| MNIST acc %, MixCon(1, 1e-7) | 97.97 | 90.00 | 1 | **not reproduced** |" in said
    assert (tmp_path / "four.png").stat().st_size > 10_000


def test_a_run_and_a_computation_are_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    assert main(["mine.py:Mine", "--device", "cpu"]) == 0
    assert "2 reproduced" in capsys.readouterr().out
    monkeypatch.setattr(making, "train", lambda *_: pytest.fail("the run is there"))
    monkeypatch.setattr(making, "compute", lambda *_: pytest.fail("the result is there"))
    assert main(["mine.py:Mine", "--device", "cpu"]) == 0
    assert "2 reproduced" in capsys.readouterr().out
    (result,) = (tmp_path / "checkpoints" / "reproductions").glob("gradient-*.json")
    result.write_text("{")  # as a disk may leave it
    with pytest.raises(pytest.fail.Exception, match="the result is there"):
        main(["mine.py:Mine", "--device", "cpu"])


@pytest.mark.slow
def test_a_quick_figure_from_nothing_to_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradients/theorem", "--quick", "--device", "cpu", "--write", "page.md"]) == 0
    said = capsys.readouterr().out
    assert "quick: m = 1,000 and 4,000" in said
    assert "reproduced" not in said.replace("not reproduced", "")
    assert (tmp_path / "page" / "gradients-theorem-quick.png").is_file()


def test_data_that_are_not_there_are_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweetspot.datamodules.torchvision_sets.reachable", lambda *_: False)
    assert main(["gradients/figure-3", "--seeds", "1", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    (line,) = [each for each in said.err.splitlines() if each.startswith("error: ")]
    assert "mnist is not under data" in line
    assert "--data-root" in line
    assert "needs mnist" in said.out


def test_all_goes_on_where_data_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def make(needs: list[Need], *_: object) -> list[UserError]:
        asked.extend(name for need in needs for name in need.data)
        return [UserError("svhn is not there; copy it")]

    monkeypatch.setattr(making, "make", make)
    assert main(["--all", "--write", "page.md"]) == 0
    assert {"mnist", "svhn", "cifar10", "synthetic", "c4", "gpt2"} <= set(asked)
    assert capsys.readouterr().err.splitlines() == ["not made: svhn is not there; copy it"]
    page = (tmp_path / "page.md").read_text("utf-8")
    for name in REPRODUCTIONS:
        assert f"`python reproduce.py {name}` | not run: " in page
    assert "| not run: needs mnist, fashion-mnist, svhn, and about " in page
    assert "\n### " not in page, "nothing was run, so there is nothing to show"
    assert "needs cifar10" in page
    assert "`python reproduce.py --all` at commit " in page


def test_all_passes_a_flag_to_those_that_have_a_use_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--quick", "--dataset", "mnist", "--model", "smollm2"]
    assert main(["--all", "--dry-run", *flags, "--write", "page.md"]) == 0
    page = (tmp_path / "page.md").read_text("utf-8")
    assert "`python reproduce.py mixcon/table-3 --dataset mnist --quick`" in page
    assert "`python reproduce.py mixcon/table-1 --quick`" in page
    assert "`python reproduce.py hidden-states/table-2 --model smollm2 --quick`" in page
    assert "F-MNIST" not in page


def test_what_cannot_be_meant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for says, *argv in (
        ("did you mean mixcon/table-3?", "mixcon/tabel-3"),
        ("a drawing of the method", "mixcon/figure-1"),
        ("gradients/figure-2 takes no --model", "gradients/figure-2", "--model", "gpt2"),
        ("mixcon/table-1 takes no --dataset", "mixcon/table-1", "--dataset", "mnist"),
        ("--dataset must be one of mnist, fashion-mnist, svhn", "mixcon/table-3", "--dataset", "cifar10"),
        ("--dataset must be one of c4, wikipedia, pydoc", "hidden-states/table-2", "--dataset", "mnist"),
        ("hidden-states/table-4 takes no --seeds", "hidden-states/table-4", "--seeds", "3"),
        ("there is no flag --quik (did you mean --quick?)", "mixcon/table-3", "--quik"),
        ("--seeds must be at least 1", "mixcon/table-3", "--seeds", "0"),
        ("leave mixcon/table-3 or --all out", "mixcon/table-3", "--all"),
        ("name one", "--figure", "a.png"),
        ("is a table: leave --figure out", "mixcon/table-1", "--figure", "a.png"),
        ("must end in .md", "--all", "--write", "page.html"),
        ("name them, or --all", "--write", "page.md"),
        ("must end in", "mixcon/figure-3", "--figure", "a.txt"),
    ):
        refused_by(main, capsys, says, *argv)
