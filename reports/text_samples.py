"""Original beside recovered text, token by token, for the terminal and as a file in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweetspot.files import replacing

SHOWN = 2  # prompts on the terminal
WRONG, DIM = "bold red", "dim"
SURE, LIKELY = 0.9, 0.5  # the probabilities from which a token is all but sure, and rather right than wrong
CLASSES = "● a token of probability 0.9 or more, ◐ 0.5 or more, ○ less"
Prompt = Mapping[str, Any]


def marked(prompt: Prompt) -> Text:
    """The recovered tokens, each wrong one in ⟨brackets⟩ and red, improbable ones dim; line breaks are shown, not made.

    Example:
        >>> marked({"tokens": ["The", " cat"], "right": [True, False]}).plain
        'The⟨ cat⟩'
    """
    text, tokens = Text(), prompt.get("tokens", [])
    sure = prompt.get("probability") or [1.0] * len(tokens)
    for token, right, probability in zip(tokens, prompt.get("right", []), sure, strict=False):
        style = ("" if right else WRONG) if probability >= LIKELY else DIM if right else f"{DIM} red"
        text.append(on_one_line(token) if right else f"⟨{on_one_line(token)}⟩", style=style)
    return text


def in_classes(probabilities: Sequence[float]) -> str:
    """A sign for how probable each token is.

    Example:
        >>> in_classes([0.95, 0.6, 0.2])
        '●◐○'
    """
    return "".join("●" if each >= SURE else "◐" if each >= LIKELY else "○" for each in probabilities)


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


def has_doubts(prompts: Sequence[Prompt]) -> bool:
    """Whether some prompts come with the probabilities of their tokens."""
    return any(each.get("probability") for each in prompts)


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
        doubt = "; dim: probability below 0.5" if any(has_doubts(each) for _, each in sources_of(results)) else ""
        said = f"⟨wrong tokens⟩ are marked{doubt}; all prompts: text-recovered.txt in the run's folder\n"
        console.print(said, style="dim")


def write_samples(results: Mapping[str, Any], path: Path) -> None:
    """Write all prompts into a text file; ⟨…⟩ marks what is wrong."""
    lines = []
    for rows in prompts_of(results):
        lines += [f"{name:22s} {text.plain}" for name, text in rows] + [""]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines), encoding="utf-8")
