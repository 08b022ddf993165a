"""Write what runs found as one HTML page, with the same figures as results.csv and results.md beside it.

python report.py checkpoints/                                   # checkpoints/report.html
python report.py checkpoints/ --max-drop 0.02 --metric psim     # another tolerance, another measure of recovery
python report.py checkpoints/ --leaderboard docs/leaderboard.md # defences side by side at equal accuracy, as data too
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sweetspot.reports.criteria import METRICS
from sweetspot.runs.command_line import run_command, script_parser

if TYPE_CHECKING:
    from sweetspot.reports.leaderboard import Leaderboard
    from sweetspot.reports.page import Report

EXAMPLES = """\
  python report.py checkpoints/                                        writes checkpoints/report.html
  python report.py checkpoints/mnist-* --out mnist.html --title "LeNet on MNIST"
  python report.py checkpoints/ --max-drop 0.02                        cells may lose two percentage points of accuracy
  python report.py checkpoints/ --metric psim                          the sweet spot by PSIM instead of SSIM
  python report.py checkpoints/ digits.json                            with a batch of invert.py gradient --out
  python report.py checkpoints/ --leaderboard docs/leaderboard.md      defences side by side, and an entry each as JSON
"""


def default_page(first: Path) -> Path:
    """report.html in the first folder, or beside the first file."""
    return (first.parent if first.is_file() else first) / "report.html"


def tell(report: Report) -> None:
    """Print what was found, what was left out, and where the files are."""
    for line in report.gathered.skipped:
        print(f"skipped  {line}")
    for each in report.gathered.failed:
        print(f"failed  {each['name']}: {each['error']}")
    if report.gathered.unfinished:
        print(f"unfinished  {', '.join(report.gathered.unfinished)}")
    for setting, verdict in zip(report.settings, report.verdicts, strict=True):
        print(f"{setting.title}\n  {verdict.sentence}")
    print(f"page  {report.page}", flush=True)
    if report.settings:
        print(f"tables  {report.csv}, {report.markdown}", flush=True)


def tell_of_leaderboard(board: Leaderboard) -> None:
    """Print what has no place on the leaderboard, and where it is."""
    for line in board.left_out:
        print(f"not on the leaderboard  {line}")
    print(
        f"leaderboard  {board.markdown}, {len(board.entries)} entries in {board.markdown.with_suffix('')}/", flush=True
    )


def main(argv: list[str] | None = None, prog: str = "python report.py") -> int:
    """Parse, gather, write, print."""
    usage = "[PATH …] [--out FILE.html] [--max-drop X] [--metric NAME] [--title TEXT] [--leaderboard FILE.md]"
    description = "Write what runs found as one HTML page: the sweet spot, the maps, the pictures, the figures."
    parser = script_parser(prog, usage, description, EXAMPLES)
    parser.add_argument(
        "paths",
        nargs="*",
        type=str,
        default=["checkpoints"],
        metavar="PATH",
        help="folders with runs, or runs; default: checkpoints",
    )
    parser.add_argument(
        "--out", type=str, default=None, metavar="FILE", help="the .html file; default: report.html in the first folder"
    )
    parser.add_argument(
        "--max-drop", type=float, default=None, metavar="X",
        help="what a cell may lose against vanilla: of accuracy in absolute terms (default 0.01), of perplexity "
        "relative to it (default 0.1)",
    )  # fmt: skip
    parser.add_argument(
        "--metric", type=str, default=None, metavar="NAME",
        help=f"of recovery: {', '.join(METRICS)}; default: ssim for images, similarity for text, mcs for vectors; "
        "by its leak beyond the label where that is known",
    )  # fmt: skip
    parser.add_argument(
        "--title", type=str, default=None, metavar="TEXT", help="of the page; default: its data and networks"
    )
    parser.add_argument(
        "--leaderboard", type=str, default=None, metavar="FILE",
        help="a .md file: defences side by side at equal accuracy; its entries go as JSON into the folder of its name "
        "(default: none)",
    )  # fmt: skip

    def command() -> None:
        parsed = parser.parse_args(argv)
        from sweetspot.reports.leaderboard import check_leaderboard, write_leaderboard
        from sweetspot.reports.page import write_report

        paths = [Path(path) for path in parsed.paths or ["checkpoints"]]
        out = Path(parsed.out) if parsed.out is not None else default_page(paths[0])
        if parsed.out is None and not paths[0].exists():
            out = Path("report.html")  # what is wrong is said about the path, not about the page in it
        check_leaderboard(parsed.leaderboard)
        report = write_report(paths, out, parsed.max_drop, parsed.metric, parsed.title)
        tell(report)
        if parsed.leaderboard is not None:
            tell_of_leaderboard(write_leaderboard(report.gathered.runs, Path(parsed.leaderboard)))

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
