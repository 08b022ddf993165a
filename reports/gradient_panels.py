"""Batches that came back from a gradient, for the page: the verdict, the errors, the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweetspot.reports.gallery import Montage, montage
from sweetspot.reports.gathering import FoundGradient
from sweetspot.reports.gradient_tables import HIDDEN, STAGES, WORDS, title_of

MOST = 8  # samples in a picture


@dataclass(frozen=True)
class GradientView:
    """One recovered batch.

    Args:
        file: its name.
        title: the round in one line.
        verdict: whether to believe it.
        found: whether the verdict is a success.
        unknown: what no gradient tells.
        stages: rows of the table: stage, error, its largest, labels right, residual.
        picture: originals and what each stage recovered.
        numbers: the first recovered vectors, where they are no images.
    """

    file: str
    title: str
    verdict: str
    found: bool
    unknown: str
    stages: tuple[tuple[str, ...], ...]
    picture: Montage | None
    numbers: tuple[tuple[str, str], ...]


STAGE_COLUMNS = ("stage", "error (rms)", "largest", "labels right", "residual")


def gradient_views(gradients: Sequence[FoundGradient]) -> tuple[list[GradientView], list[str]]:
    """Each batch as the page shows it, and a line for each that cannot be shown."""
    views, skipped = [], []
    for each in gradients:
        try:
            views.append(gradient_view(each))
        except (KeyError, IndexError, StopIteration, TypeError, ValueError, AttributeError) as error:
            skipped.append(f"{each.file} cannot be shown ({type(error).__name__}: {error})")
    return views, skipped


def gradient_view(found: FoundGradient) -> GradientView:
    """One batch."""
    results = found.results
    stages = [(STAGES.get(name, name), *stage_cells(row)) for name, row in results["recovered"].items()]
    unknown = " or ".join(HIDDEN.get(each, each) for each in results.get("unknown", []))
    rows = samples_of(results)
    shape = results["data"].get("shape") or []
    picture = images_of(rows, shape) if len(shape) == 3 else None
    numbers = [(name, in_numbers(x[0])) for name, x in rows.items()] if picture is None else []
    return GradientView(
        found.file.name, title_of(results), WORDS.get(results["verdict"], str(results["verdict"])),
        results["verdict"] != "not recovered", unknown, tuple(stages), picture, tuple(numbers),
    )  # fmt: skip


def stage_cells(row: dict[str, Any]) -> list[str]:
    """The figures of one stage; a dash where the truth is not known."""
    return [
        f"{row['rms']:.2g}" if "rms" in row else "–",
        f"{row['worst']:.2g}" if "worst" in row else "–",
        f"{100 * row['labels_right']:.0f} %" if "labels_right" in row else "–",
        f"{row['residual']:.1e}" if "residual" in row else "–",
    ]


def samples_of(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """The first samples (B, d): the true ones, where they are known, and each stage's."""
    truth = {"original": results["truth"]["x"]} if "truth" in results else {}
    stages = {STAGES.get(name, name): row["x"] for name, row in results["recovered"].items()}
    return {name: np.asarray(x, dtype=np.float32)[:MOST] for name, x in {**truth, **stages}.items()}


def images_of(rows: dict[str, np.ndarray], shape: Sequence[int]) -> Montage | None:
    """Samples as images, every column on the scale of its first: they were scaled to unit norm."""
    first = next(iter(rows.values()))
    scale = np.maximum(np.nan_to_num(first).max(axis=1), 1e-12)[:, None]
    return montage({name: (x / scale).reshape(-1, *shape) for name, x in rows.items()})


def in_numbers(x: np.ndarray, most: int = 8) -> str:
    """The beginning of a vector."""
    return ", ".join(f"{value:.4f}" for value in x[:most]) + (", …" if len(x) > most else "")
