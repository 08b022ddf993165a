"""What a sweet spot is chosen by: how much utility it may cost, and which metric says how much comes back."""

from __future__ import annotations

import math

from sweetspot.errors import UserError, check_one_of
from sweetspot.runs.record import HIGHER_IS_WORSE

METRICS = tuple(
    name for name, higher in HIGHER_IS_WORSE.items() if higher and name != "reid"
)  # the least recovered is the smallest
# What a cell may lose where nobody says, and where families of cells are compared: of accuracy in absolute terms, of
# perplexity relative to vanilla's. A hundredth of perplexity is less than another seed makes.
COSTS = {"accuracy": (0.01, 0.03), "perplexity": (0.10, 0.25, 0.50)}


def tolerated(utility: str, max_drop: float | None) -> float:
    """What a cell may lose against vanilla: what is given, else the least cost that families are compared at.

    Example:
        >>> tolerated("accuracy", None), tolerated("perplexity", None), tolerated("perplexity", 0.3)
        (0.01, 0.1, 0.3)
    """
    return COSTS[utility][0] if max_drop is None else max_drop


def cost_words(utility: str, cost: float) -> str:
    """A cost as the head of a column.

    Example:
        >>> cost_words("accuracy", 0.01), cost_words("accuracy", 0.03), cost_words("perplexity", 0.25)
        ('−1 point', '−3 points', '+25 %')
    """
    if utility == "perplexity":
        return f"+{100 * cost:g} %"
    return f"−{100 * cost:g} point{'' if cost == 0.01 else 's'}"


def check_max_drop(max_drop: float | None) -> None:
    """Refuse a tolerance that cannot be meant; None stands for the usual one."""
    if max_drop is not None and not 0 <= max_drop < math.inf:
        raise UserError(
            f"--max-drop must be a number of at least 0, such as 0.01 for one percentage point; got {max_drop:g}"
        )


def check_metric(metric: str | None) -> None:
    """Refuse a metric of recovery that there is not; None stands for the usual one."""
    if metric is not None:
        check_one_of("--metric", metric, METRICS)
