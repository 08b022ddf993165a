"""The page of all tables and figures, docs/reproduction.md: made from what was run, here and before, never by hand.

What a table came to is kept beside the page as JSON, in the folder of its name, so that a later call only adds to it,
on another machine too: what is not there any more stays as it was, with the commit that it was found at.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweetspot.files import replacing
from sweetspot.progress import short_duration
from sweetspot.reproductions.base import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.needs import Shelf
from sweetspot.reproductions.output import TITLES, Standing, figures_of, place_of
from sweetspot.runs.folder import read_json

PAGE = Path("docs/reproduction.md")  # what --all writes
HOW = """\
```
python reproduce.py                                                  # the list, and what is left of it
python reproduce.py mixcon/table-3                                   # runs what is missing, ours beside the paper's
python reproduce.py mixcon/figure-3 --dataset mnist --address auto   # on a Ray cluster
python reproduce.py hidden-states/table-2 --model smollm2 --dataset pydoc
python reproduce.py gradients/figure-2 --figure errors.png
python reproduce.py mixcon/table-1 --seeds 10 --dry-run              # what is there; nothing is run
python reproduce.py --all --quick                                    # all of it at small size, and this page
python reproduce.py --all --dry-run                                  # this page from what is there
```

Runs are ordinary ones in `checkpoints/`, so none is made twice; attacks on gradients and on hidden states are kept in
`checkpoints/reproductions/`. Every cell has a verdict:

- **reproduced**: of the paper's size (how near is near enough stands beside it; two standard errors over our seeds
  widen it, at most to twice as much), and higher or lower than the cell it is compared with, as in the paper, by more
  than two standard errors. A claim in words is counted over the comparisons it speaks of, and 90 % of them must hold.
- **direction only**: the order alone is the paper's, or more than half of the comparisons are.
- **not reproduced**, or **not run**, with the reason in one line. Small sizes (`--quick`), another model or another
  text are never called reproduced: they can show a direction, and a size alone is **not judged**.

How near is near enough was chosen with earlier figures of ours in view. A table or figure of your own is a subclass of
`Reproduction`, named as `path/to/file.py:Class`."""


@dataclass(frozen=True)
class Section:
    """What one table or figure came to, in one size.

    Args:
        item: its id.
        title: what it shows.
        flags: of the command besides the id; empty for the paper's size.
        commit: of the code that found it so.
        notes: what the paper does not say, and what a stand-in is.
        rows: cell, paper, ours, seeds, verdict, why.
        said: how far it is, in a line.
        there: how many of its runs and computations there were.
    """

    item: str
    title: str
    flags: str
    commit: str
    notes: list[str]
    rows: list[list[str]]
    said: str
    there: int

    @classmethod
    def of(cls, standing: Standing) -> Section:
        """What there is of an item now."""
        item, asked = standing.item, standing.asked
        rows = [
            [each.cell.title, *figures_of(each), each.seeds, f"**{each.status}**", each.reason]
            for each in standing.cells
        ]
        notes = [each for each in (item.note, item.stand_in(asked)) if each]
        return cls(item.name, item.title, flags_of(asked), commit(), notes, rows, standing.said, standing.there)

    @property
    def name(self) -> str:
        """Its name among files, without an ending."""
        return file_name(self.item + self.flags)

    def markdown(self, picture: str | None) -> str:
        """The section; `picture` is the address of its picture."""
        lines = [f"### {self.item}{self.flags}: {self.title}", ""]
        lines += [f"`python reproduce.py {self.item}{self.flags}` at commit {self.commit}: {self.said}.", ""]
        lines += [f"{each}\n" for each in self.notes]
        lines += [f"![{self.title}]({picture})\n"] if picture else []
        lines += ["| cell | paper | ours | seeds | verdict | why |", "|---|---|---|---|---|---|"]
        lines += ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in self.rows]
        return "\n".join(lines)


def write_page(standings: Sequence[Standing], shelf: Shelf, page: Path) -> None:
    """Write the page of these tables and figures, with what was kept of them, and keep what is new.

    Args:
        standings: how far they are now, an item in several sizes more than once.
        shelf: what is on disk.
        page: the .md file; records and pictures lie in the folder of its name.
    """
    folder = page.with_suffix("")
    page.parent.mkdir(parents=True, exist_ok=True)
    for standing in standings:
        keep(standing, shelf, folder)
    names = list(dict.fromkeys(each.item.name for each in standings))
    which = "--all" if len(names) == len(list(REPRODUCTIONS)) else " ".join(names)
    kept = kept_in(folder, names)
    parts = [
        "# Reproduction: the papers' tables and figures beside ours",
        f"Written by `python reproduce.py {which}` at commit {commit()} from what was run until then, and not to be "
        "edited by hand: no figure here was typed. Each part says which command makes it, and at which commit its "
        "figures came out.",
        HOW,
        "## How far each is",
        summary(standings, kept),
    ]
    paper = ""
    for section in (each for name in names for each in kept.get(name, [])):
        if section.item.partition("/")[0] != paper:
            paper = section.item.partition("/")[0]
            parts.append(f"## {TITLES.get(paper, paper)}")
        picture = folder / f"{section.name}.png"
        parts.append(section.markdown(f"{folder.name}/{picture.name}" if picture.exists() else None))
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def keep(standing: Standing, shelf: Shelf, folder: Path) -> None:
    """Keep what an item came to, with its picture, unless it has no figure yet or nothing is new."""
    if all(each.figure is None for each in standing.cells):
        return
    section = Section.of(standing)
    file = folder / f"{section.name}.json"
    before = section_in(file) if file.exists() else None
    if before and (before.there > section.there or dataclasses.replace(section, commit=before.commit) == before):
        return
    folder.mkdir(exist_ok=True)
    standing.item.draw(standing.asked, shelf, file.with_suffix(".png"))
    with replacing(file) as temporary:
        written = json.dumps(dataclasses.asdict(section), indent=1, ensure_ascii=False)
        temporary.write_text(written + "\n", encoding="utf-8")


def section_in(file: Path) -> Section:
    """What was kept in a file."""
    return Section(**read_json(file))


def kept_in(folder: Path, names: Sequence[str]) -> Mapping[str, list[Section]]:
    """What was kept of these items, of each the paper's size first."""
    found: dict[str, list[Section]] = {}
    for section in sorted(map(section_in, folder.glob("*.json")), key=lambda each: each.flags):
        if section.item in names:
            found.setdefault(section.item, []).append(section)
    return dict(sorted(found.items(), key=lambda each: place_of(each[0])))


def summary(standings: Sequence[Standing], kept: Mapping[str, list[Section]]) -> str:
    """How far each item is, as a table: what was kept of it, or why there is nothing."""
    lines = ["| table or figure | command | how far |", "|---|---|---|"]
    first: dict[str, Standing] = {}
    for standing in standings:
        first.setdefault(standing.item.name, standing)
    for name, standing in first.items():
        found = [(each.flags, each.said) for each in kept.get(name, [])]
        said = found or [(flags_of(standing.asked), why_not(standing))]
        lines += [f"| {standing.item.title} | `python reproduce.py {name}{flags}` | {words} |" for flags, words in said]
    return "\n".join(lines)


def why_not(standing: Standing) -> str:
    """Why nothing of an item was run, in a line."""
    cost = f"about {short_duration(sum(standing.left.values()))} on one core"
    return f"not run: needs {', '.join(standing.missing)}, and {cost}" if standing.missing else f"not run: takes {cost}"


def file_name(text: str) -> str:
    """An id, or a command's words, as the name of a file, without its ending.

    Example:
        >>> file_name("mixcon/table-1 --quick"), file_name("mine.py:Mine")
        ('mixcon-table-1-quick', 'mine.py-Mine')
    """
    return re.sub(r"[^\w.]+", "-", text)


def picture_of(item: Reproduction, asked: Asked) -> str:
    """The name of an item's files below the folder of runs, without an ending."""
    return file_name(item.name + flags_of(asked))


def flags_of(asked: Asked) -> str:
    """What is asked for as the command line says it."""
    given = {"dataset": asked.dataset, "model": asked.model, "seeds": asked.seeds}
    flags = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    return flags + " --quick" * asked.quick


def commit() -> str:
    """The commit that this code is of, -dirty where more than this page was changed since; `unknown` without git."""
    own = [f":(exclude,top){each.as_posix()}" for each in (PAGE, PAGE.with_suffix(""))]
    try:
        at, changed = (
            subprocess.run(["git", *asked], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
            for asked in (
                ["describe", "--always", "--abbrev=12"],
                ["status", "--porcelain", "--untracked-files=no", "--", ":/", *own],
            )
        )
    except OSError:
        return "unknown"
    name = at.stdout.strip()
    return f"{name}-dirty" if name and changed.stdout.strip() else name or "unknown"
