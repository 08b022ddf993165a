"""Original beside recovered text, token by token, for the terminal and as a file in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweetspot.files import replacing

SHOWN = 2  # prompts on the terminal
WRONG = "bold red"
Prompt = Mapping[str, Any]


def marked(prompt: Prompt) -> Text:
    """The recovered tokens, each wrong one in ⟨brackets⟩ and red; line breaks are shown, not made.

    Example:
        >>> marked({"tokens": ["The", " cat"], "right": [True, False]}).plain
        'The⟨ cat⟩'
    """
    text = Text()
    for token, right in zip(prompt.get("tokens", []), prompt.get("right", []), strict=False):
        text.append(on_one_line(token) if right else f"⟨{on_one_line(token)}⟩", style="" if right else WRONG)
    return text


def on_one_line(text: object) -> str:
    """The text with its line breaks as a sign."""
    return str(text).replace("\r", "").replace("\n", "⏎")


def sources_of(results: Mapping[str, Any]) -> Iterator[tuple[str, list[Prompt]]]:
    """What was recovered by every policy from exact states and, where some of it was kept, behind every channel."""
    for key, record in results["attacks"].items():
        yield key, record.get("recovered") or []
        for channel, behind in (record.get("channels") or {}).items():
            yield f"  {channel}", behind.get("recovered") or []


def prompts_of(results: Mapping[str, Any], most: int | None = None) -> Iterator[list[tuple[str, Text]]]:
    """For each prompt the original and what became of it, by name."""
    sources = list(sources_of(results))
    longest: list[Prompt] = max((recovered for _, recovered in sources), key=len, default=[])
    for number, prompt in enumerate(longest[:most]):
        rows = [(name, marked(recovered[number])) for name, recovered in sources if number < len(recovered)]
        yield [("original", Text(on_one_line(prompt.get("truth", "")))), *rows]


def print_samples(results: Mapping[str, Any], console: Console) -> None:
    """Print the first prompts, each with what every policy and channel made of it."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for rows in prompts_of(results, SHOWN):
        for name, text in rows:
            table.add_row(name, text)
        table.add_row()
    if table.row_count:
        console.print(table)
        console.print("⟨wrong tokens⟩ are marked; all prompts: text-recovered.txt in the run's folder\n", style="dim")


def write_samples(results: Mapping[str, Any], path: Path) -> None:
    """Write all prompts into a text file; ⟨…⟩ marks what is wrong."""
    lines = []
    for rows in prompts_of(results):
        lines += [f"{name:22s} {text.plain}" for name, text in rows] + [""]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
