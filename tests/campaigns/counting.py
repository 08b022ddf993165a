"""What campaigns share: running a script in this process, and counting what came out as it should."""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Callable, Sequence

import pytest

from sweetspot.errors import first_line


def seeded(what: str) -> random.Random:
    """The draws of a campaign: always the same, unless $CAMPAIGN_SEED asks for others."""
    return random.Random(f"{what} {os.environ.get('CAMPAIGN_SEED', 0)}")


class Tally:
    """How many cases were tried, and what was wrong with those that were not fine."""

    def __init__(self, what: str) -> None:
        self.what, self.tried, self.refused = what, 0, 0
        self.wrong: list[str] = []

    def count(self, case: str, wrong: str) -> None:
        """One more case; an empty `wrong` is fine."""
        self.tried += 1
        if wrong:
            self.wrong.append(f"{case}: {wrong}")

    def conclude(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Print the counts; what was not fine fails the test."""
        with capsys.disabled():
            fine = self.tried - len(self.wrong)
            print(f"\n{self.what}: {self.tried} tried, {fine} fine ({self.refused} of them refused in one line)")
        assert not self.wrong, "\n".join(self.wrong)


def run_script(
    script: Callable[[list[str]], int], argv: Sequence[str], capsys: pytest.CaptureFixture[str], tally: Tally
) -> str:
    """What is wrong with how a script ended; empty: it ended well, or with exit code 2 and one line."""
    capsys.readouterr()
    try:
        code = script(list(argv))
    except SystemExit as end:
        code = int(end.code or 0)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {first_line(error)} ({frame.filename.rpartition('/')[2]}:{frame.lineno})"
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: ")]
    if code == 0:
        return ""
    if code not in (1, 2) or len(said) != 1 or not said[0].startswith("error: "):
        return f"exit code {code}, and it said {said}"
    tally.refused += 1
    return ""
