"""A run is worked on by one process at a time, and looking at it keeps nobody from it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sweetspot.errors import BusyError, UserError
from sweetspot.runs.folder import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    return Run(folder)


def test_looking_at_a_run_leaves_everything_as_it_is(run: Run) -> None:
    litter = run.folder / ".results.here.1.tmp.json"
    litter.touch()
    assert not run.is_held()
    assert not run.lock.exists()
    with run.claimed():
        assert run.is_held()
        assert not litter.exists(), "whoever works on it puts it in order"
        litter.touch()
    assert not run.is_held()
    assert litter.exists()


def test_two_who_look_do_not_take_each_other_for_a_worker(run: Run) -> None:
    with run.claimed():
        pass
    seen: list[bool] = []
    watchers = [threading.Thread(target=lambda: seen.extend(run.is_held() for _ in range(300))) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    assert not any(seen)


def test_whoever_looks_keeps_nobody_from_the_run(run: Run) -> None:
    with run.claimed():
        pass
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            run.is_held()

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(50):
            with run.claimed():
                time.sleep(0.001)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()


def test_a_second_process_is_turned_away(run: Run) -> None:
    with run.claimed(), pytest.raises(BusyError, match="another process is working on"), Run(run.folder).claimed():
        raise AssertionError("it was let in")


def test_a_folder_that_is_removed_meanwhile_is_the_users_to_mend(run: Run) -> None:
    def work() -> None:
        with run.claimed():
            run.folder.rmdir()
            (run.folder / "log.csv").write_text("epoch")

    with pytest.raises(UserError, match="was removed while it was worked on"):
        work()
    run.folder.mkdir()
    with run.claimed():
        pass
