"""The figures for other programs and for papers."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from sweetspot.reports.cells import settings_of
from sweetspot.reports.exports import csv_text, markdown_text
from sweetspot.reports.gathering import gather
from sweetspot.reports.sweet_spot import sweet_spot
from tests.reports.fabricated import ATTACKS, defence_of, image_grid, image_run, text_run, zoo


def rows_at(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(settings_of(gather([folder]).runs)))))


def test_the_csv_has_a_row_a_run_with_every_figure(tmp_path: Path) -> None:
    image_grid(tmp_path, (1, 10), (1e-2,), seeds=(0, 1))
    rows = rows_at(tmp_path)
    assert len(rows) == 6
    assert {(row["lambda"], row["seed"]) for row in rows} == {(a, b) for a in ("0.0", "1", "10") for b in "01"}
    runs = {run.name: run.results for run in gather([tmp_path]).runs}
    for row in rows:
        results = runs[row["run"]]
        assert float(row["accuracy"]) == results["utility"]["accuracy"]
        for key in (*ATTACKS, "worst case"):
            record = results["worst_case"] if key == "worst case" else results["attacks"][key]
            for part in ("mean", "std", "worst"):
                assert float(row[f"{key} ssim {part}"]) == record["ssim"][part]
                assert float(row[f"{key} ssim leak {part}"]) == record["leak"]["ssim"][part]
        assert float(row["server gain"]) == results["cost"]["server_gain"]
        assert row["suite"] == "standard 1"


def test_the_csv_leaves_empty_what_a_run_does_not_have(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0))
    image_run(tmp_path, defence_of("mixcon", 1, 1e-2), attacks=())
    text_run(tmp_path, defence_of("none", 0, 0))
    rows = {row["run"]: row for row in rows_at(tmp_path)}
    attacked, plain = rows["mnist-5k-lenet-none-l0-b0-s0"], rows["mnist-5k-lenet-mixcon-l1-b0.01-s0"]
    assert attacked["decoder/adaptive ssim mean"]
    assert plain["decoder/adaptive ssim mean"] == ""
    text = rows["pydoc-gpt2-tiny-none-l0-b0-s0"]
    assert float(text["text/hybrid, noise 1 similarity mean"]) == pytest.approx(2 / 3, abs=0.01)
    assert text["perplexity"]


def test_the_markdown_has_a_row_a_cell_in_the_papers_form(tmp_path: Path) -> None:
    image_grid(tmp_path, (0.1, 10), (1e-2, 1e-4), seeds=(0, 1))
    settings = settings_of(gather([tmp_path]).runs)
    verdicts = [sweet_spot(setting) for setting in settings]
    lines = markdown_text(settings, verdicts).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 5
    assert len({line.count("|") for line in table}) == 1
    assert verdicts[0].found
    assert sum("**" in line for line in table) == 1
    pooled = [run.results["attacks"]["whitebox/paper"]["leak"]["ssim"] for run in settings[0].cells[0].runs]
    mean, worst = sum(each["mean"] for each in pooled) / 2, max(each["worst"] for each in pooled)
    names = [name.strip() for name in table[0].split("|")]
    assert {"worst case, class recognised", "worst case, rank", "prototype, SSIM", "label, SSIM"} <= set(names)
    column = names.index("whitebox/paper, SSIM leak")
    said = table[2].split("|")[column].strip()
    assert said.startswith(f"{mean:.2f} ± ")
    assert said.endswith(f"({worst:.2f})")


def test_every_option_has_a_column(tmp_path: Path) -> None:
    zoo(tmp_path)
    rows = rows_at(tmp_path)
    assert {row["release"] for row in rows} == {"", "gaussian", "quantise"}
    noisy = [row for row in rows if row["release"] == "gaussian"]
    assert {row["sigma"] for row in noisy} == {"0.1", "0.5", "1.0", "2.0"}
    assert {row["bottleneck"] for row in rows} == {"none", "16", "120-16"}
    assert {row["cut"] for row in rows} == {"pool1", "pool2"}
    settings = settings_of(gather([tmp_path]).runs)
    head = next(line for line in markdown_text(settings, [sweet_spot(settings[0])]).splitlines() if line[0:1] == "|")
    for label in ("λ", "β", "σ", "bottleneck", "cut"):
        assert f"| {label} |" in head


def test_a_name_cannot_break_the_markdown_table(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("odd|name<b>", 1, 1e-2))
    settings = settings_of(gather([tmp_path]).runs)
    text = markdown_text(settings, [sweet_spot(setting) for setting in settings])
    assert r"odd\|name\<b\>" in text
