"""The terminal table says what a run is in the papers' words."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sweetspot.reports.tables import attack_line, attacks_table, describe_defence, results_table
from tests.reports.fabricated import image_run, zoo_defence


@pytest.mark.parametrize(
    ("defence", "says"),
    [
        ({"name": "mixcon", "lambda": 1.0, "beta": 1e-4}, "MixCon(1, 1e-4)"),
        ({"name": "unicon", "lambda": 0.5, "beta": 0.0}, "UniCon(0.5)"),
        ({"name": "shrink", "lambda": 2.0, "beta": 0.0}, "shrink(2)"),
        ({"name": "none", "lambda": 0.0, "beta": 0.0}, "Vanilla"),
    ],
)
def test_defences_are_named_as_in_the_paper(defence: dict[str, Any], says: str) -> None:
    assert describe_defence(defence) == says


def test_a_row_fits_eighty_columns() -> None:
    result = {
        "data": {"name": "fashion-mnist"},
        "model": {"name": "lenet", "cut": "pool2"},
        "defence": {"name": "mixcon", "lambda": 1.0, "beta": 1e-4},
        "utility": {"accuracy": 0.98765},
        "separability": {"min": 0.01, "mean": 0.1234, "max": 0.5},
        "environment": {"seconds": 61.2},
    }
    console = Console(width=80, record=True)
    results_table([result], console)
    text = console.export_text()
    for part in ("fashion-mnist", "MixCon(1, 1e-4)", "98.77 %", "0.123", "1 min"):
        assert part in text


def test_an_attack_is_one_line_when_it_ends() -> None:
    figures = {"mean": 0.14, "std": 0.11, "worst": 0.48}
    row = {"ssim": figures, "mse": figures, "recognised": figures, "rank": {**figures, "mean": 12.0}, "seconds": 61.2}
    assert attack_line("whitebox/paper", row) == ("whitebox/paper: SSIM 0.14 ± 0.11 (0.48), 1 min")


def an_attacked_run(kind: str) -> dict[str, Any]:
    """A run with figures that are as wide as figures get."""
    run: dict[str, Any] = {
        "data": {"name": "a-rather-long-name-of-a-dataset"},
        "model": {"name": "gpt2-tiny", "cut": "block2"},
        "defence": {"name": "mixcon", "lambda": 0.125, "beta": 1.25e-8},
        "utility": {"accuracy": 0.98765},
        "separability": {"mean": 12345.678},
        "environment": {"seconds": 123456.0},
    }
    wide = {"mean": 12803.71, "std": 11234.56, "worst": 98765.43}
    if kind == "text":
        run["data"]["tokenizer"] = "bpe"
        run["utility"]["perplexity"] = 128034.5
        row = {"em": wide, "token_accuracy": {"mean": 1.0}, "similarity": {"mean": 0.123}, "verified": 1.0}
        row |= {"seconds_per_token": 1234.567, "perplexity": 987654.3, "accuracy": 1.0, "samples": 50}
        margin = {"median": 1.0, "min": 0.5, "relative": {"median": 0.2, "min": 0.1}}
        run["attacks"] = {"text/single-commit": {**row, "channels": {"noise 0.3": row}, "margin": margin}}
    else:
        row = {"mcs": wide, "mse": wide, "recognised": {"mean": 1.0}, "rank": {"mean": 4321.5}, "seconds": 123456.0}
        run["attacks"] = {"whitebox/adaptive": {**row, "stopped": True, "samples": 50}}
    run["worst_case"] = {**row, "samples": 50}
    return run


@pytest.mark.parametrize("width", [30, 60, 80, 120])
@pytest.mark.parametrize("kind", ["text", "vectors"])
def test_no_figure_is_cut_off_however_narrow_the_console(kind: str, width: int) -> None:
    run = an_attacked_run(kind)
    console = Console(width=width, file=io.StringIO(), record=True)
    attacks_table(run, None, console)
    results_table([run], console)
    text = console.export_text()
    assert "…" not in text
    figures = ["98.77 %", "12345.678", "34 h"]
    figures += ["128034.5", "987654.3", "1234.567", "0.123"] if kind == "text" else ["4321.5", "(stopped)"]
    for figure in figures:
        assert figure in text, figure
    if kind == "vectors":
        assert text.count("12803.71 ± 11234.56 (98765.43)") == 4


def test_the_table_of_text_fits_eighty_columns() -> None:
    run = an_attacked_run("text")
    run["utility"]["perplexity"] = 1280.4
    for row in (run["attacks"]["text/single-commit"], run["attacks"]["text/single-commit"]["channels"]["noise 0.3"]):
        row.update(em={"mean": 1.0}, seconds_per_token=0.123, perplexity=1280.4)
    console = Console(width=80, file=io.StringIO(), record=True)
    attacks_table(run, None, console)
    assert any(line.split()[:2] == ["attack", "EM"] for line in console.export_text().splitlines()), "a table"


def printed(results: dict[str, Any], width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    attacks_table(results, None, console)
    return console.export_text()


def a_run_of_today(tmp_path: Path, **options: Any) -> dict[str, Any]:
    noise = zoo_defence("compress", 0.01, "120-16", ["gaussian"], sigma=2.0)
    found: dict[str, Any] = json.loads((image_run(tmp_path, noise, **options) / "results.json").read_text())
    return found


def test_leaks_have_a_column_and_the_table_fits_eighty_columns(tmp_path: Path) -> None:
    results = a_run_of_today(tmp_path)
    lines = printed(results).splitlines()
    head = next(line for line in lines if line.split()[:2] == ["attack", "leak"])
    assert head.split() == ["attack", "leak", "SSIM", "class", "rank", "time"], "PSIM gives way"
    leak = results["worst_case"]["leak"]["ssim"]
    worst = next(line for line in lines if line.startswith("worst case"))
    assert f"{leak['mean']:.2f} ± {leak['std']:.2f} ({leak['worst']:.2f})" in worst
    assert max(map(len, lines[: lines.index(worst)])) <= 80
    assert "PSIM" in printed(results, 120)


def test_what_stands_beside_the_attacks_is_below_the_table(tmp_path: Path) -> None:
    results = a_run_of_today(tmp_path)
    text, gallery = printed(results), results["attacks"]["gallery"]
    rate, leak, nats = gallery["reid"]["mean"], gallery["leak"]["reid"]["mean"], results["certificate"]["nats"]
    rows = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert "gallery" not in rows, "it reconstructs nothing"
    for line in (
        f"gallery: {100 * rate:.0f} % re-identified among inputs of their class, leak {leak:.2f}",
        f"certificate: at most {nats:.2f} nats beyond the label",
        "client share: 75 % of multiply-adds, 11 % of parameters",
        f"server gain: {100 * results['cost']['server_gain']:.2f} points",
        "warning: decoder/adaptive beats whitebox/adaptive by 0.12",
        "suite standard 1",
        "most leaked",
    ):
        assert line in text, line


def test_a_run_without_noise_has_no_certificate_and_an_older_one_says_nothing_of_it(tmp_path: Path) -> None:
    results = a_run_of_today(tmp_path)
    assert "certificate: none: nothing random leaves the client" in printed({**results, "certificate": None})
    older = printed(a_run_of_today(tmp_path, is_older=True, seed=1))
    assert "certificate" not in older
    assert "leak" in older, "by the prototype"


def test_the_gallery_is_one_line_when_it_ends(tmp_path: Path) -> None:
    record = a_run_of_today(tmp_path)["attacks"]["gallery"]
    assert attack_line("gallery", {**record, "reid": {"mean": 0.16}}) == "gallery: 16 % re-identified, 0 s"
