"""The terminal table says what a run is in the papers' words."""

from typing import Any

import pytest
from rich.console import Console

from reports.tables import attack_line, describe_defence, results_table


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
    for part in ("fashion-mnist", "MixCon(1, 1e-4)", "98.77 %", "0.123", "61 s"):
        assert part in text


def test_an_attack_is_one_line_when_it_ends() -> None:
    figures = {"mean": 0.14, "std": 0.11, "worst": 0.48}
    row = {"ssim": figures, "mse": figures, "recognised": figures, "rank": {**figures, "mean": 12.0}, "seconds": 61.2}
    assert attack_line("whitebox/paper", row) == ("whitebox/paper: SSIM 0.14 ± 0.11 (0.48), 61 s")
