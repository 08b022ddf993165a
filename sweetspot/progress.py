"""How long work shows that it is alive: a bar with an estimate on a terminal, a line with an estimate in a log."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.2
LOOK_SECONDS = 3.0  # between two looks at the rate
STEADY = 0.2  # how much, relatively, two looks may differ before the rest can be told
WORTH_SAYING = 10.0  # seconds that must be left for a line to be worth saying
BETWEEN = 8.0  # seconds between two tenths that are told: of a minute's work every second one is


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


def short_duration(seconds: float) -> str:
    """Seconds in a table's cell: in one unit.

    Example:
        >>> [short_duration(each) for each in (40, 130, 9000, 900_000)]
        ['40 s', '2 min', '2.5 h', '10 d']
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.2g} h" if seconds < 48 * 3600 else f"{seconds / 86_400:.0f} d"


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
    yield LogLines(what, total)


class LogLines:
    """What a log is told of long work: once the rate is steady how long the rest takes, then every tenth of the work.

    Work that is soon done is left in peace: lines stand seconds apart, and speak of ten seconds or more.

    The first steps say nothing about the others (allocators, thread pools, caches, neighbours on the same machine): an
    estimate waits until two looks in a row, seconds apart, have seen about the same rate.

    Args:
        what: is done.
        total: how many steps it has.
        done: how many were done before.
        tenths: whether every tenth is told.
        say: what prints a line, if not print.
    """

    def __init__(
        self,
        what: str,
        total: int,
        done: int = 0,
        tenths: bool = True,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.what, self.total, self.tenths = what, total, tenths
        self.say = say or functools.partial(print, flush=True)
        self.first, self.began = done, time.perf_counter()
        self.looked, self.seen, self.rate = self.began, done, 0.0  # when, how many steps, how many a second since
        self.estimated = False
        self.told, self.spoke = self.tenth(done), self.began

    def __call__(self, done: int) -> None:
        """Tell what there is to tell after so many steps."""
        now = time.perf_counter()
        if not self.estimated and now - self.looked >= LOOK_SECONDS and done > self.seen:
            self.look(done, now)
        if self.tenths and self.tenth(done) > self.told:
            self.told = self.tenth(done)
            spent = now - self.began
            left = spent / (done - self.first) * (self.total - done)
            if left >= WORTH_SAYING and now - self.spoke >= BETWEEN:
                self.spoke = now
                self.say(f"{self.what}: {10 * self.told} % after {duration(spent)}, about {duration(left)} left")

    def look(self, done: int, now: float) -> None:
        """Take the rate since the last look, and tell an estimate if it is the rate of the look before, too."""
        before, self.rate = self.rate, (done - self.seen) / (now - self.looked)
        self.looked, self.seen = now, done
        if abs(self.rate - before) > STEADY * self.rate:
            return
        self.estimated = True
        left = (self.total - done) / self.rate
        if left > WORTH_SAYING:
            steps = f"{self.total - done:,} of {self.total:,} steps"
            self.say(f"{self.what}: about {duration(left)} left, {steps} ({1000 / self.rate:.1f} ms each)")

    def tenth(self, done: int) -> int:
        """How many tenths of the work are done."""
        return 10 * done // max(self.total, 1)
