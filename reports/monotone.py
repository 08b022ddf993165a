"""The paper's two claims about its grid, counted: a smaller β and a larger λ make recovery worse."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from sweetspot.reports.cells import Setting
from sweetspot.reports.fairness import equally_attacked


@dataclass(frozen=True)
class Claim:
    """One claim over a grid.

    Args:
        text: what the paper says.
        holds: pairs of cells for which it does.
        pairs: pairs of cells that differ in the one parameter alone.
        change: mean change of recovery over those pairs; the claim wants it negative.
        broken: the pairs for which it does not hold, as (label, label, change).
    """

    text: str
    holds: int
    pairs: int
    change: float
    broken: tuple[tuple[str, str, float], ...]


def monotone_claims(setting: Setting) -> list[Claim]:
    """Both claims over all pairs of MixCon cells of a setting; none where its grid has no such pairs."""
    attacked = [each for each in setting.cells if each.recovery is not None and not each.channel]
    cells = [each for each in equally_attacked(attacked)[0] if each.defence["name"] == "mixcon"]
    claims = []
    for text, moving, sign in (
        ("same λ, smaller β: worse recovery", "beta", -1),
        ("same β, larger λ: worse recovery", "lambda", 1),
    ):
        changes: list[tuple[str, str, float]] = []
        for one, other in itertools.combinations(cells, 2):
            weak, strong = sorted((one, other), key=lambda cell: sign * cell.defence[moving])
            same = {**one.keys, moving: 0} == {**other.keys, moving: 0} and one.family == other.family
            if same and strong.recovery and weak.recovery:
                changes.append((weak.label, strong.label, strong.recovery.mean - weak.recovery.mean))
        if changes:
            broken = tuple(each for each in changes if each[2] >= 0)
            mean = sum(change for *_, change in changes) / len(changes)
            claims.append(Claim(text, len(changes) - len(broken), len(changes), mean, broken))
    return claims
