"""Long work shows that it is alive: a bar on a terminal, a line with an estimate in a log."""

from __future__ import annotations

import pytest

from sweetspot.progress import LogLines, steps_shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("sweetspot.progress.time.perf_counter", lambda: now[0])
    return now


def worked(clock: list[float], *seconds: float) -> None:
    """Steps that take so long each."""
    with steps_shown("attack", len(seconds)) as done:
        for step, spent in enumerate(seconds, start=1):
            clock[0] += spent
            done(step)


def test_a_log_gets_an_estimate_and_every_tenth(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    worked(clock, *[1.0] * 100)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "attack: about 1 min 34 s left, 94 of 100 steps (1000.0 ms each)"
    assert lines[1] == "attack: 10 % after 10 s, about 1 min 30 s left"
    assert [line.split()[1] for line in lines[1:]] == [str(tenth) for tenth in range(10, 100, 10)]


def test_an_estimate_waits_for_a_steady_rate(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    """Two slow steps at first, as on a busy machine, are not what the other 998 will be like."""
    worked(clock, 8.0, 4.0, *[0.1] * 998)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("attack: about 1 min 3")
    assert "(100.0 ms each)" in lines[0]
    assert len(lines) == 10


def test_work_whose_rate_is_never_steady_still_shows_that_it_is_alive(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    worked(clock, *[step % 7 + 4.0 for step in range(100)])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "%" in line]) == 9


def test_a_resumed_one_counts_from_where_it_was(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines("training", 100, done=50)
    for step in range(51, 101):
        clock[0] += 1
        lines(step)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("training: about 44 s left, 44 of 100 steps")
    assert said[1] == "training: 60 % after 10 s, about 40 s left"


def test_short_work_is_not_talked_about(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    worked(clock, *[0.1] * 100)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("seconds", "most"), [(20, 2), (60, 6), (200, 10)])
def test_a_log_is_not_flooded(seconds: int, most: int, clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    worked(clock, *[seconds / 100] * 100)
    assert 1 <= len(capsys.readouterr().out.splitlines()) <= most


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with steps_shown("attack", 2) as done:
        done(1)
        done(2)
    shown = capsys.readouterr().out
    assert "attack" in shown
    assert "2/2" in shown
