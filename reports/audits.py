"""An audit as plain text for a terminal, and as a table with pictures for a notebook."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from rich.console import Console

from sweetspot.metrics.summary import BESIDE, FLOORS, mean_std_worst
from sweetspot.reports.gallery import montage
from sweetspot.reports.leak import with_leaks
from sweetspot.reports.sections import spread_out
from sweetspot.reports.tables import METRICS, attack_rows, attacks_table, headline, lines_below, shown_metrics

WIDTH = 80  # columns of a terminal
COLUMNS = 8  # images in a row of a picture
STRONGEST = 3  # attacks whose reconstructions are shown
NOT_ATTACKED = "not attacked yet"


def audit_text(results: dict[str, Any]) -> str:
    """The table of what came back, no line of it wider than a terminal."""
    file = io.StringIO()
    attacks_table(results, console=Console(file=file, width=WIDTH, color_system=None, legacy_windows=False))
    lines = [line.rstrip() for line in (file.getvalue() or f"{results['name']}: {NOT_ATTACKED}").splitlines()]
    return "\n".join(part for line in lines for part in (wrapped(line) if len(line) > WIDTH else [line]))


def wrapped(line: str) -> list[str]:
    """A long line as several, the later ones indented."""
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ")


def audit_html(results: dict[str, Any], original: np.ndarray | None, shown: Mapping[str, np.ndarray]) -> str:
    """The same as HTML, with a picture: originals, what the label alone gives, what the strongest attacks gave.

    Args:
        results: of the audit.
        original: the attacked images (N, C, H, W); None where there are none.
        shown: what each attack made of them.
    """
    if not results["worst_case"]:
        return str(escape(f"{results['name']}: {NOT_ATTACKED}"))
    known = with_leaks(results)
    rows = attack_rows(known)
    metrics = shown_metrics(rows)
    head = Markup("").join(Markup("<th>{}</th>").format(METRICS[name]) for name in metrics)
    body = Markup("").join(table_row(key, row, metrics) for key, row in rows.items())
    below = Markup("").join(Markup("<li>{}</li>").format(line) for line in lines_below(known))
    return str(
        Markup("<div><p><b>{}</b></p><table><thead><tr><th>attack</th>{}</tr></thead><tbody>{}</tbody></table>").format(
            headline(known), head, body
        )
        + picture_of(results, original, shown)
        + Markup("<ul>{}</ul></div>").format(below)
    )


def table_row(key: str, row: Mapping[str, Any], metrics: list[str]) -> Markup:
    """One attack."""
    cells = (mean_std_worst(row[name]) if name in row else "" for name in metrics)
    said = f"{key} (stopped)" if row.get("stopped") else key
    return Markup("<tr><td>{}</td>{}</tr>").format(
        said, Markup("").join(Markup("<td>{}</td>").format(each) for each in cells)
    )


def picture_of(results: dict[str, Any], original: np.ndarray | None, shown: Mapping[str, np.ndarray]) -> Markup:
    """The picture, with its rows named; empty where there is none."""
    if original is None or not len(original):
        return Markup("")
    columns = spread_out(range(len(original)), COLUMNS)
    rows = {name: each[columns] for name, each in {"original": original, **chosen_rows(results, shown)}.items()}
    picture = montage({name: np.asarray(each, np.float32) for name, each in rows.items()})
    if picture is None:
        return Markup("")
    text = f"from above: {', '.join(picture.rows)}"
    return Markup('<img src="{}" width="{}" alt="{}" style="image-rendering:pixelated"><p>{}</p>').format(
        picture.uri, 2 * picture.width if picture.width < 400 else picture.width, text, text
    )


def chosen_rows(results: dict[str, Any], shown: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the best label-only attacker and the strongest others made of the images, the strongest last."""
    attacks = results["attacks"]
    metric = "ssim" if all("ssim" in attacks[key] for key in shown) else "psnr"
    by_strength = sorted(shown, key=lambda key: attacks[key][metric]["mean"])
    floors = [key for key in by_strength if key in FLOORS][-1:]
    others = [key for key in by_strength if key not in BESIDE][-STRONGEST:]
    return {key: shown[key] for key in (*floors, *others)}
