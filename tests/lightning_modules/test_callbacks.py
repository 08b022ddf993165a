"""What a person sees while a run trains, on a terminal of ordinary width."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from sweetspot.runs.config import TrainConfig
from sweetspot.training import train


def test_on_a_terminal_there_is_a_line_an_epoch_and_a_bar_with_the_time_left(
    config: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)

    def progress(*columns: Any, **options: Any) -> Progress:
        return Progress(*columns, console=console, **options)

    monkeypatch.setattr("sweetspot.progress.Progress", progress)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    train(config(epochs=2))
    shown = screen.getvalue()
    assert "epoch 1/2" in shown
    assert "epoch 2/2" in shown
    assert "training ━" in shown
    assert "10/10" in shown, "the bar counts the steps of the whole run"
    assert "left" in shown


def test_a_log_says_how_good_the_network_is_when_training_ends(
    config: Callable[..., TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    results = train(config(epochs=1))
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("trained"))
    assert f"accuracy {100 * results['utility']['accuracy']:.2f} %" in line
