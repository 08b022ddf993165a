"""How long work shows that it is alive: a bar with an estimate on a terminal, a line with an estimate in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.2
ESTIMATE_AFTER = 3.0  # seconds of work until the rest can be told
WORTH_SAYING = 10.0  # seconds that a log is told about


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    Example:
        >>> duration(75), duration(4000)
        ('1 min 15 s', '1 h 6 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def bar(transient: bool = False) -> Progress:
    """A bar with what is done, how long it took, and how long the rest will take; a transient one vanishes after."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        refresh_per_second=4,
        transient=transient,
    )


@contextlib.contextmanager
def steps_shown(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """`with steps_shown("whitebox", 500) as done: done(1)`: call it with how many steps are done."""
    began = time.perf_counter()
    if sys.stdout.isatty():
        shown = began
        with bar(transient=True) as progress:
            task = progress.add_task(what, total=total)

            def advance(done: int) -> None:
                nonlocal shown
                if time.perf_counter() - shown > REFRESH_SECONDS or done == total:
                    shown = time.perf_counter()
                    progress.update(task, completed=done)

            yield advance
        return
    told = False

    def estimate(done: int) -> None:
        nonlocal told
        spent = time.perf_counter() - began
        if not told and spent > ESTIMATE_AFTER:
            told = True
            left = spent / done * (total - done)
            if left > WORTH_SAYING:
                print(
                    f"{what}: about {duration(left)} for the remaining {total - done:,} of {total:,} steps", flush=True
                )

    yield estimate
