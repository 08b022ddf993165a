"""SIGTERM, by which clusters take a machine away: it ends a command as Ctrl-C does, and nothing finished is lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

HANDLERS: list[Callable[[int, Any], None]] = []  # of the commands that this process is in, the innermost last


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM raise KeyboardInterrupt, so that it takes the paths of Ctrl-C; the list says whether one came.

    A second one is not heard: it would break off what the first made the command put away.
    """
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield received
        return
    before = signal.signal(signal.SIGTERM, stop)
    HANDLERS.append(stop)
    try:
        yield received
    finally:
        HANDLERS.remove(stop)
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def hear_sigterm() -> None:
    """Hear SIGTERM again where a library has put its own handler in our place."""
    if HANDLERS and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, HANDLERS[-1])
