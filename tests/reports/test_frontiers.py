"""Families of text at equal cost: networks and channels as cells, leaks read between strengths, where it is said."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from sweetspot.reports.cells import Setting, settings_of
from sweetspot.reports.entries import entries_of
from sweetspot.reports.frontiers import frontier_of
from sweetspot.reports.gathering import gather
from sweetspot.reports.leaderboard import write_leaderboard
from sweetspot.reports.page import write_report
from sweetspot.reports.sweet_spot import advice, sweet_spot
from sweetspot.reports.tables import attacks_table
from sweetspot.runs.folder import Run
from tests.reports.fabricated import image_grid, text_run, zoo_defence

Figures = dict[str, tuple[float, float]]


def noisy(sigma: float) -> dict[str, object]:
    return zoo_defence(release=["gaussian"], sigma=sigma)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Vanilla with channels, and training through noise; perplexity of vanilla is 100."""
    folder = tmp_path / "runs"
    text_run(folder, zoo_defence(), figures={"": (100, 1.0), "noise 1": (120, 0.8), "noise 2": (160, 0.4),
                                             "int8": (100, 0.99)})  # fmt: skip
    text_run(folder, noisy(0.5), figures={"": (105, 0.6)})
    text_run(folder, noisy(1.0), figures={"": (115, 0.2)})
    text_run(folder, zoo_defence("mixcon", 1.0), figures={"": (140, 0.9), "noise 1": (180, 0.5)})
    return folder


def setting_in(folder: Path) -> Setting:
    (setting,) = settings_of(gather([folder]).runs)
    return setting


def leaks(setting: Setting) -> dict[str, tuple[str, ...]]:
    frontier = frontier_of(setting)
    assert frontier is not None
    assert frontier.costs == ("+10 %", "+25 %", "+50 %")
    return {row.name: row.leaks for row in frontier.rows}


def test_every_family_is_read_at_equal_cost_with_channels_as_families(runs: Path) -> None:
    assert leaks(setting_in(runs)) == {
        "Vanilla + noise": ("0.90", "0.75", "0.50"),  # half the way to noise 1, an eighth and 3/4 of that to noise 2
        "Vanilla + int8": ("≤ 0.99", "≤ 0.99", "≤ 0.99"),
        "gaussian": ("0.40", "≤ 0.20", "≤ 0.20"),
        "MixCon": ("–", "–", "≤ 0.90"),
        "MixCon + noise": ("–", "–", "0.80"),  # its own network, at +40 %, is where it begins
    }


def test_the_verdict_of_text_is_about_a_blind_guess_and_a_tenth_of_perplexity(runs: Path) -> None:
    setting = setting_in(runs)
    verdict = sweet_spot(setting)
    assert not verdict.found
    assert verdict.cell is not None
    assert verdict.cell.label == "gaussian(0.5)"
    assert "within 10 % of vanilla's, and that is more than 0.25 beyond a blind guess" in verdict.sentence
    found = sweet_spot(setting, max_drop=0.25)
    assert found.found
    assert "similarity leak 0.200 (vanilla 1.000)" in found.sentence
    assert advice(setting, found) == "Use gaussian(1): hardly more than a blind guess comes back."


def test_page_and_tables_show_the_frontier_of_text_alone(runs: Path, tmp_path: Path) -> None:
    report = write_report([runs], tmp_path / "report.html")
    page = report.page.read_text(encoding="utf-8").replace("\u00a0", " ")
    for words in ("The frontier of each family", "perplexity relative to vanilla", "no text up to 0.25",
                  "MixCon + noise", "No text", "beyond a blind guess: 0 is as much as a blind guess"):  # fmt: skip
        assert words in page, words
    assert "No identity" not in page
    assert "the label alone" not in page.replace("what the label alone gives back", "")  # the glossary explains both
    assert "| Vanilla + noise | 0.90 | 0.75 | 0.50 |" in report.markdown.read_text(encoding="utf-8")
    images = write_report([image_grid(tmp_path / "images", (1,), (1e-2,))], tmp_path / "images.html")
    assert "The frontier of each family" not in images.page.read_text(encoding="utf-8")


def test_runs_without_leaks_are_compared_by_their_similarity(tmp_path: Path) -> None:
    for defence in (zoo_defence(), zoo_defence("mixcon", 1.0)):
        text_run(tmp_path, defence)
    setting = setting_in(tmp_path)
    assert setting.recovery == "similarity"
    assert set(leaks(setting)) == {"Vanilla + noise", "MixCon", "MixCon + noise"}
    assert "beyond" not in sweet_spot(setting).sentence


@pytest.mark.parametrize("leaking", [True, False])
def test_the_table_of_a_run_has_leaks_where_they_are_known(leaking: bool, tmp_path: Path) -> None:
    folder = text_run(tmp_path, noisy(1.0), figures={"": (115, 0.23), "noise 1": (180, 0.11)} if leaking else None)
    console = Console(file=io.StringIO(), width=80)
    attacks_table(Run(folder).read_results(), None, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert (
        "0.23" in shown and "0.11" in shown and "0 is a guess without any states" in " ".join(shown.split())
    ) == leaking
    assert max(map(len, shown.splitlines())) <= 80


def test_without_vanilla_there_is_no_frontier(tmp_path: Path) -> None:
    text_run(tmp_path, noisy(1.0), figures={"": (115, 0.2)})
    assert frontier_of(setting_in(tmp_path)) is None


def test_the_leaderboard_of_text_is_by_perplexity(runs: Path, tmp_path: Path) -> None:
    entries = {entry["defence"]: entry for entry in entries_of(gather([runs]).runs)[0]}
    assert entries["vanilla + noise"]["leak_at"] == pytest.approx({"+10": 0.9, "+25": 0.75, "+50": 0.5})
    assert entries["gaussian"]["leak_at"] == pytest.approx({"+10": 0.4, "+25": 0.2, "+50": 0.2})
    assert entries["mixcon + noise"]["leak_at"] == {"+10": None, "+25": None, "+50": pytest.approx(0.8)}
    assert (entries["gaussian"]["strength"], entries["gaussian"]["perplexity"]) == ("gaussian(0.5)", 105)
    assert entries["vanilla + noise"]["strength"] == "Vanilla + noise 1"
    assert entries["vanilla + noise"]["commands"][-1].endswith("--channels 1")
    written = write_leaderboard(gather([runs]).runs, tmp_path / "board.md")
    table = written.markdown.read_text(encoding="utf-8").splitlines()
    assert any("leak at +10 % | at +25 % | at +50 % | strength | perplexity" in line for line in table)
    first = next(line for line in table if line.startswith("| gaussian"))
    assert "105.0 (vanilla 100.0)" in first
    assert first == next(line for line in table if line.startswith(("| gaussian", "| vanilla", "| mixcon"))), (
        "best first"
    )
    stored = json.loads((tmp_path / "board" / f"{entries['gaussian']['name']}.json").read_text())
    assert stored["utility"] == "perplexity"
