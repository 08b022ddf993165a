"""Every table and figure of the three papers: run what is missing, print ours beside the paper's.

python reproduce.py                             # the list: what there is, what it costs, what is already there
python reproduce.py mixcon/table-3              # runs what is missing; a verdict for each cell
python reproduce.py --all --quick               # everything at small size; writes a page
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sweetspot.errors import UserError
from sweetspot.files import replacing
from sweetspot.progress import short_duration
from sweetspot.reproductions import REPRODUCTIONS, Asked, Reproduction
from sweetspot.reproductions.base import item
from sweetspot.reproductions.config import ReproduceConfig
from sweetspot.reproductions.needs import FOLDER, Shelf
from sweetspot.reproductions.output import WIDTH, Standing, place_of, show, show_list
from sweetspot.reproductions.page import PAGE, Section, picture_of, write_page
from sweetspot.runs.command_line import add_dataclass, run_command, script_parser
from sweetspot.runs.config import root_of

EXAMPLES = """\
  python reproduce.py                                                  the list, and what is already there
  python reproduce.py mixcon/table-3                                   runs what is missing, ours beside the paper's
  python reproduce.py mixcon/figure-3 --dataset mnist --address auto   on a Ray cluster
  python reproduce.py hidden-states/table-2 --model smollm2 --dataset pydoc
  python reproduce.py gradients/figure-2 --figure errors.png
  python reproduce.py mixcon/table-1 --seeds 10                        more seeds than it has
  python reproduce.py mixcon/table-3 --dry-run                         what is there, and nothing is run
  python reproduce.py --all --quick                                    everything at small size, an hour on a laptop
  python reproduce.py --all --dry-run --write page.md                  the page of what is there
"""

HEADINGS = {
    "what": ("all", "quick", "dataset", "model", "seeds", "dry_run"),
    "files": ("out", "data_root", "write", "figure"),
    "where it runs": ("device", "cpus_per_run", "gpus_per_run", "parallel", "address"),
}


def main(argv: list[str] | None = None, prog: str = "python reproduce.py") -> int:
    """Parse, run what is missing, print."""
    usage = "[ID …] [--all] [--quick] [--dataset NAME] [--model NAME] [--seeds N] [--write FILE.md] [FLAG …]"
    description = (
        "Every table and figure of the three papers, ours beside the paper's, with a verdict for each cell.\n"
        "Runs are ordinary ones in --out: what is there is never done twice, and a killed command goes on."
    )
    parser = script_parser(prog, usage, description, EXAMPLES)
    parser.add_argument(
        "ids", nargs="*", type=str, default=[], metavar="ID", help="tables and figures; none: the list of all"
    )
    add_dataclass(parser, ReproduceConfig, headings=HEADINGS, also={"write": f"With --all by default {PAGE}."})

    def command() -> None:
        parsed = parser.parse_args(argv).as_dict()
        names = parsed.pop("ids")
        reproduce(names, ReproduceConfig(**parsed))

    return run_command(command)


def reproduce(names: Sequence[str], config: ReproduceConfig) -> None:
    """Run what is missing of these tables and figures, and show them; without any, the list of all."""
    console, shelf, root = Console(width=WIDTH), Shelf(Path(config.out)), root_of(config.data_root)
    items = chosen(names, config)
    if not items:
        show_list(config.asked, shelf, root, console)
        return
    standings, errors = [], []
    for each in items:
        asked = config.asked if not config.all else asked_of(each, config.asked)
        if not config.dry_run:
            errors += run(each, asked, shelf, config)
        standing = Standing.of(each, asked, shelf, root)
        standings.append(standing)
        show(standing, console)
        keep(standing, shelf, config)
    page = config.write or (str(PAGE) if config.all else None)
    if page is not None:
        others = [dataclasses.replace(each.asked, quick=not each.asked.quick) for each in standings]
        besides = [Standing.of(each.item, asked, shelf, root) for each, asked in zip(standings, others, strict=True)]
        write_page([*standings, *besides], shelf, Path(page))
        print(f"page  {page}", flush=True)
    unique = {str(error): error for error in errors}.values()
    if unique and not config.all:
        raise next(iter(unique))
    for error in unique:  # of --all, what could not be made is said in the table, and how to get it here
        print(f"not made: {error}", file=sys.stderr, flush=True)


def chosen(names: Sequence[str], config: ReproduceConfig) -> list[Reproduction]:
    """The tables and figures that are asked for, in order; refused where they have no use for a flag."""
    if names and config.all:
        raise UserError(f"--all has every table and figure: leave {names[0]} or --all out")
    if config.figure is not None and len(names) != 1:
        raise UserError("--figure is for the picture of one figure: name one")
    items = [item(name) for name in dict.fromkeys(names)]
    for each in items:
        each.check(config.asked)
        if config.figure is not None and type(each).draw is Reproduction.draw:
            raise UserError(f"{each.name} is a table: leave --figure out")
    if not items and config.write is not None and not config.all:
        raise UserError("--write needs tables and figures to write about: name them, or --all")
    return [REPRODUCTIONS[name]() for name in sorted(REPRODUCTIONS, key=place_of)] if config.all else items


def asked_of(each: Reproduction, asked: Asked) -> Asked:
    """What --all asks of an item: of the flags those that it has a use for."""
    kept = Asked(asked.quick)
    for flag in ("dataset", "model", "seeds"):
        more = dataclasses.replace(kept, **{flag: getattr(asked, flag)})
        with contextlib.suppress(UserError):
            each.check(more)
            kept = more
    return kept


def run(each: Reproduction, asked: Asked, shelf: Shelf, config: ReproduceConfig) -> list[UserError]:
    """Make what an item lacks; what could not be made, and what to do about it."""
    needs = [need for need in each.needs(asked) if shelf.find(need) is None]
    if not needs:
        return []
    about = short_duration(sum(need.seconds(shelf) for need in needs))
    print(f"{each.name}: {len(needs)} to make, about {about} on one core", flush=True)
    from sweetspot.reproductions.making import make  # torch, and Ray

    return make(needs, shelf, config.sweep, config.data_root, config.device)


def keep(standing: Standing, shelf: Shelf, config: ReproduceConfig) -> None:
    """Write a table or figure as Markdown, and draw its picture where it has one; nothing where nothing was run."""
    if not standing.there:
        return
    folder, name = shelf.out / FOLDER, picture_of(standing.item, standing.asked)
    folder.mkdir(parents=True, exist_ok=True)
    picture = Path(config.figure) if config.figure else folder / f"{name}.png"
    is_drawn = standing.item.draw(standing.asked, shelf, picture)
    with replacing(folder / f"{name}.md") as temporary:
        text = Section.of(standing).markdown(picture.name if is_drawn else None)
        temporary.write_text(text + "\n", encoding="utf-8")
    print(f"markdown  {folder / name}.md" + (f"\npicture  {picture}" if is_drawn else ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
