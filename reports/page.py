"""The report: one HTML file that needs nothing else, and the same figures as results.csv and results.md beside it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from sweetspot.errors import UserError
from sweetspot.files import check_writable, replacing
from sweetspot.reports.cells import NAMES, Setting, is_measured, settings_of
from sweetspot.reports.criteria import METRICS, check_max_drop, check_metric
from sweetspot.reports.exports import csv_text, markdown_text
from sweetspot.reports.gallery import attacks_shown
from sweetspot.reports.gathering import FoundRun, Gathered, gather
from sweetspot.reports.gradient_panels import STAGE_COLUMNS, gradient_views
from sweetspot.reports.sections import section_of
from sweetspot.reports.sweet_spot import Verdict, sweet_spot
from sweetspot.reports.text_panels import CHANNEL_COLUMNS, KINDS

GLOSSARY = (
    ("leak", "what comes back beyond the label: (s − s of the label) / (1 − s of the label) of a score s; 0 is what "
             "the label alone gives back, 1 everything, below 0 less than the label; of text the floor is a blind "
             "guess, by somebody who sees no states and lets the language model guess"),
    ("most leaked", "the input that came back best, in parentheses after mean ± std"),
    ("worst case", "for each input the attack that recovered it best"),
    ("prototype", "a label-only attacker: the median image of the class"),
    ("label", "a label-only attacker: a decoder of the same size and training as the others, that sees only the class"),
    ("gallery", "which of several inputs of the same class it was: the nearest wins; it reconstructs nothing"),
    ("nats", "a bound, which no attack exceeds, on what is learned beyond the label; 0.69 nats are one bit"),
    ("client share", "the client's part of the network's multiply-adds and parameters"),
    ("server gain", "accuracy of the whole network above that of a linear classifier on what is released"),
)  # fmt: skip
TEMPLATES = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class Report:
    """A written report.

    Args:
        page: the HTML file.
        settings: what it is about.
        verdicts: one a setting.
        gathered: what was found, with what failed and what was skipped.
    """

    page: Path
    settings: list[Setting]
    verdicts: list[Verdict]
    gathered: Gathered

    @property
    def csv(self) -> Path:
        return table_beside(self.page, ".csv")

    @property
    def markdown(self) -> Path:
        return table_beside(self.page, ".md")

    def texts(self, page: str) -> dict[Path, str]:
        """What each of its files says; without runs there are no tables."""
        tables = {self.csv: csv_text(self.settings), self.markdown: markdown_text(self.settings, self.verdicts)}
        return {**(tables if self.settings else {}), self.page: page}


def table_beside(page: Path, suffix: str) -> Path:
    """results.csv beside report.html; beside any other page a table of its name, so that two of them keep apart."""
    return page.with_name(f"{'results' if page.stem == 'report' else page.stem}{suffix}")


def write_report(
    paths: Sequence[Path],
    out: Path,
    max_drop: float | None = None,
    metric: str | None = None,
    title: str | None = None,
) -> Report:
    """Gather what lies at these paths and write it as a page, with its tables beside it.

    Args:
        paths: folders with runs, runs, and results of gradient inversion.
        out: the .html file.
        max_drop: how much utility a cell may lose against vanilla; None: the usual for the kind of data.
        metric: of recovery; None: the usual one for the kind of data.
        title: of the page.
    """
    check(out, max_drop, metric)
    report = report_on(paths, out, max_drop, metric)
    for file, text in report.texts(rendered(report, max_drop, title)).items():
        write_text(file, text)
    return report


def write_page(paths: Sequence[Path], out: Path, title: str | None = None) -> Report:
    """The page alone, without tables beside it."""
    report = report_on(paths, out, None, None)
    write_text(out, rendered(report, None, title, tables=False))
    return report


def report_on(paths: Sequence[Path], out: Path, max_drop: float | None, metric: str | None) -> Report:
    """What lies at these paths, with its verdicts; nothing is written."""
    gathered = gather(paths)
    if metric is not None:
        check_measured(metric, gathered.runs)
    settings = settings_of(gathered.runs, metric)
    return Report(out, settings, [sweet_spot(setting, max_drop) for setting in settings], gathered)


def write_text(file: Path, text: str) -> None:
    """Write a file of the report; half a surrogate pair, from a file of anybody's, is no UTF-8."""
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def check(out: Path, max_drop: float | None, metric: str | None) -> None:
    """Refuse what cannot be meant, before anything is read."""
    if out.suffix.lower() != ".html":
        raise UserError(f"--out must end in .html; got {out}")
    for file in (out, table_beside(out, ".csv"), table_beside(out, ".md")):
        check_writable("--out", file)
    check_max_drop(max_drop)
    check_metric(metric)


def check_measured(metric: str, runs: Sequence[FoundRun]) -> None:
    """Refuse a metric that no run was measured by."""
    known = [name for name in METRICS if is_measured(runs, name)]
    if known and metric not in known:
        raise UserError(f"no run was measured by --metric {metric}; there are {', '.join(known)}")


def rendered(report: Report, max_drop: float | None, title: str | None, tables: bool = True) -> str:
    """The page as text."""
    gathered = report.gathered
    pictures = sum(bool(attacks_shown(run)) for run in gathered.runs)
    sections = [
        section_of(number, setting, verdict, gathered.failed, max_drop, pictures)
        for number, (setting, verdict) in enumerate(zip(report.settings, report.verdicts, strict=True))
    ]
    gradients, unshown = gradient_views(gathered.gradients)
    now = datetime.datetime.now().astimezone()
    loader = FileSystemLoader(TEMPLATES, encoding="utf-8")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"tight": tight, "breakable": breakable}
    return environment.get_template("report.html.j2").render(
        title=title or title_for(report),
        sections=sections,
        runs=len(gathered.runs),
        failed=[(each["name"], each["error"]) for each in gathered.failed],
        unfinished=gathered.unfinished,
        skipped=[*gathered.skipped, *unshown],
        gradients=gradients,
        stage_columns=STAGE_COLUMNS,
        channel_columns=CHANNEL_COLUMNS,
        kinds=KINDS,
        glossary=GLOSSARY,
        names=NAMES,
        tables=(report.csv.name, report.markdown.name) if tables and report.settings else (),
        when=f"{now.day} {now:%B %Y, %H:%M %Z}",
        style=own("report.css"),
        script=own("report.js"),
    )


def title_for(report: Report) -> str:
    """What the page is called where nobody says."""
    data = list(dict.fromkeys(str(setting.about.results["data"]["name"]) for setting in report.settings))
    if not data:
        return "Gradient inversion" if report.gathered.gradients else "Runs"
    return f"Utility and recovery on {', '.join(data[:3])}{' and more' if len(data) > 3 else ''}"


def tight(text: str) -> str:
    """Text whose figures and marks stay on one line with what they belong to: `98.50 ± 0.10 %`, `◆ vanilla`."""
    for loose in (" ± ", " %", "◆ ", "★ ", "■ ", "▲ "):
        text = text.replace(loose, loose.replace(" ", "\u00a0"))
    return text


def breakable(name: str) -> Markup:
    """A name such as `whitebox/adaptive` that may go on in the next line after its slash."""
    return Markup("/<wbr>").join(name.split("/"))


def own(name: str) -> Markup:
    """A file of the page's own, written into it as it is."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
