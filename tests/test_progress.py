"""Long work shows that it is alive: a bar on a terminal, a line with an estimate in a log."""

from __future__ import annotations

import pytest

from progress import steps_shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("progress.time.perf_counter", lambda: now[0])
    return now


def test_a_log_gets_one_estimate(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with steps_shown("attack", 100) as done:
        for step in range(1, 101):
            clock[0] += 1
            done(step)
    assert capsys.readouterr().out.splitlines() == ["attack: about 1 min 36 s for the remaining 96 of 100 steps"]


def test_short_work_is_not_talked_about(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with steps_shown("attack", 100) as done:
        for step in range(1, 101):
            clock[0] += 0.1
            done(step)
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with steps_shown("attack", 2) as done:
        done(1)
        done(2)
    shown = capsys.readouterr().out
    assert "attack" in shown
    assert "2/2" in shown
