"""Run one of our scripts again and again, each time killed at another of its file replacements.

python -m tests.campaigns.killing SCRIPT FOLDER ARGUMENT …     prints how each ended, as lines of JSON

Torch and Lightning are imported once; every run is a fork that has not computed anything yet.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sweetspot.commands import evaluate, train
from tests.weak_attacks import weaken

SCRIPTS = {"train.py": train.main, "evaluate.py": evaluate.main}


def forked(script: Callable[[list[str]], int], argv: list[str], kill: tuple[str, int] | None, log: Path) -> int:
    """How a script ended in a process of its own, killed `before` or `after` its n-th replacement of a file."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    weaken(pytest.MonkeyPatch())
    replace, done = Path.replace, 0

    def deadly(self: Path, target: Any) -> Path:
        nonlocal done
        done += 1
        if kill == ("before", done):
            os.kill(os.getpid(), signal.SIGKILL)
        replaced = replace(self, target)
        if kill == ("after", done):
            os.kill(os.getpid(), signal.SIGKILL)
        return replaced

    Path.replace = deadly  # type: ignore[assignment,method-assign]
    code = 1
    try:
        code = script(argv)
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(name: str, folder: str, *argv: str) -> None:
    """Kill at each replacement in a fresh folder, then run to the end; `{out}` in an argument is the folder's name."""
    number, alive = 1, True
    while alive:
        for when in ("before", "after"):
            out = Path(folder) / f"{when}-{number}"
            if (template := Path(folder) / "template").is_dir():
                shutil.copytree(template, out)
            arguments = [argument.replace("{out}", str(out)) for argument in argv]
            log = Path(folder) / f"{when}-{number}.log"
            ended = forked(SCRIPTS[name], arguments, (when, number), log)
            alive = ended == -signal.SIGKILL
            if not alive:  # it has fewer replacements than this: it came to its end
                break
            again = forked(SCRIPTS[name], arguments, None, log)
            print(
                json.dumps({"kill": f"{when} {number}", "out": str(out), "again": again, "log": str(log)}), flush=True
            )
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
