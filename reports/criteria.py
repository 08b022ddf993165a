"""What a sweet spot is chosen by: how much utility it may cost, and which metric says how much comes back."""

from __future__ import annotations

import math

from sweetspot.errors import UserError, check_one_of
from sweetspot.runs.record import HIGHER_IS_WORSE

METRICS = tuple(
    name for name, higher in HIGHER_IS_WORSE.items() if higher and name != "reid"
)  # the least recovered is the smallest
MAX_DROP = 0.01  # of accuracy in absolute terms, of perplexity relative to vanilla's


def check_max_drop(max_drop: float) -> None:
    """Refuse a tolerance that cannot be meant."""
    if not 0 <= max_drop < math.inf:
        raise UserError(
            f"--max-drop must be a number of at least 0, such as 0.01 for one percentage point; got {max_drop:g}"
        )


def check_metric(metric: str | None) -> None:
    """Refuse a metric of recovery that there is not; None stands for the usual one."""
    if metric is not None:
        check_one_of("--metric", metric, METRICS)
