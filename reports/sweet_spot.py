"""The answer to "which defence?": the cell that stays useful and gives the least away, and how sure that is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sweetspot.metrics.summary import FLOOR
from sweetspot.reports.beside import client_share
from sweetspot.reports.cells import (
    LEAST_TO_HALVE,
    NAMES,
    WORST,
    Cell,
    Setting,
    Spread,
    attacks_of,
    by_attacks,
    by_queries,
    queries_of,
)
from sweetspot.reports.criteria import tolerated
from sweetspot.reports.fairness import (
    attacks_behind,
    equally_attacked,
    is_adaptive,
    more_attacks,
    named,
    stopped_attacks,
    unequal_attacks,
    unequal_seeds,
)
from sweetspot.reports.grades import identity_leak
from sweetspot.reports.leak import COMPUTED, NO_PICTURE

WITHOUT_DATA = ("whitebox/no-data", "whitebox/paper")  # attacks of somebody who has no inputs of its own
HALF = 0.5  # of vanilla's recovery: what a sweet spot may give away where no floor says what the label alone gives
SAME_SHARE = 0.01  # of the network: clients whose shares differ by no more do the same work
SAME = 5e-4  # recoveries nearer than this print the same three digits: they are a tie


@dataclass(frozen=True)
class Verdict:
    """What a setting's cells say.

    Args:
        sentence: the answer in words.
        found: whether a cell is useful, and gives away less than vanilla, and little beyond the label.
        cell: the cell of the sentence, where there is one: also one that gives too much away, or that is the closest
            to being useful.
        vanilla: what it is compared with.
        front: the Pareto front, from the most useful cell to the one that gives away least.
        qualifying: all defended cells that are useful enough and were attacked by everything.
        notes: what else must be known to believe the sentence: ties, cells left out, unequal attacks.
        recovery: the cell's, as the sentence has it: on the inputs that it was not chosen on.
        base: vanilla's on the same inputs.
    """

    sentence: str
    found: bool
    cell: Cell | None = None
    vanilla: Cell | None = None
    front: tuple[Cell, ...] = ()
    qualifying: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = field(default=())
    recovery: float | None = None
    base: float | None = None


def sweet_spot(setting: Setting, max_drop: float | None = None) -> Verdict:
    """The cell with the smallest worst-case recovery among those whose utility is within `max_drop` of vanilla's.

    Args:
        setting: the cells.
        max_drop: None: a point of accuracy, or a tenth of perplexity.
    """
    max_drop = tolerated(setting.utility, max_drop)
    notes: list[str] = []
    attacked = [cell for cell in setting.cells if cell.recovery is not None]
    if not attacked:
        return Verdict("No cell was attacked yet, so there is no sweet spot: evaluate.py attacks runs.", False)
    compared, left_out = equally_attacked(attacked)
    if setting.by == WORST:
        notes += [f"worst case over {', '.join(sorted(attacks_behind(compared)))}", *more_attacks(compared)]
    if left_out:
        notes.append(f"left out, for they did not go through every attack: {named(left_out)}")
    if not_attacked := [cell for cell in setting.cells if cell.recovery is None]:
        notes.append(f"not attacked, or not every seed by the same attacks: {named(not_attacked)}")
    notes += unequal_attacks(setting) + stopped_attacks(setting) + unequal_seeds(compared) + floors(setting)
    front = pareto_front(compared, setting.utility == "perplexity")
    judged = dataclasses.replace(setting, cells=tuple(compared))
    vanilla = judged.vanilla
    if vanilla is None and "audit" in setting.about.results:
        return audit_verdict(judged, front, notes)
    if vanilla is None:
        sentence = "There is nothing to compare with: no vanilla run (--lambda 0) went through the same attacks."
        return Verdict(sentence, False, front=front, notes=tuple(notes))
    defended = [cell for cell in compared if not cell.is_vanilla]
    qualifying = [cell for cell in defended if judged.drop(cell) <= max_drop + 1e-12]
    limit = tolerance(setting, max_drop)
    if not defended:
        sentence = "There is nothing but vanilla: no defended run went through the same attacks."
        return Verdict(sentence, False, None, vanilla, front, (), tuple(notes))
    if not qualifying:
        closest = min(defended, key=judged.drop)
        none = f"No cell qualifies: none keeps {setting.utility} within {limit}."
        sentence = f"{none} The closest is {cell_figures(judged, closest)}."
        return Verdict(sentence, False, closest, vanilla, front, (), tuple(notes))
    by_choice, by_report = halved(judged)
    notes.append(what_it_was_chosen_on(by_choice is not judged, vanilla))
    attacks = attacks_behind(compared)
    chosen, tied = choose(by_choice, [place(judged, cell) for cell in qualifying], limit, attacks)
    best = judged.cells[chosen]
    if len(tied) > 1:
        others = named([judged.cells[each] for each in tied if each != chosen])
        notes.append(f"a tie: {others} recover as little")
    notes += within_spread(best, qualifying)
    sentence, found = said(by_report, chosen, limit, attacks)
    if found:
        notes += what_is_still_seen(best)
    base = by_report.vanilla_of(by_report.cells[chosen])
    return Verdict(
        sentence, found, best, judged.vanilla_of(best), front, tuple(qualifying), tuple(notes),
        recovered(by_report.cells[chosen]).mean, recovered(base).mean if base is not None else None,
    )  # fmt: skip


def audit_verdict(setting: Setting, front: tuple[Cell, ...], notes: Sequence[str]) -> Verdict:
    """What is said of networks as they were given: there is no vanilla to compare with, but a leak says enough."""
    least = min(setting.cells, key=lambda cell: recovered(cell).mean)
    found = cell_figures(setting, least)
    which = "" if len(setting.cells) == 1 else f", the least of {len(setting.cells)}"
    notes = [*notes, *(["chosen and reported on the same inputs, so it may be luck"] if which else [])]
    if not setting.by_leak:
        return Verdict(
            f"Audit: {found}{which}. Whether that is more than {setting.floor} gives away is not known: no label-only "
            "attacker was run.", False, least, front=front, notes=tuple(notes), recovery=recovered(least).mean,
        )  # fmt: skip
    leak = recovered(least).mean
    judged = "hardly more than the label comes back" if leak <= NO_PICTURE else "more than the label comes back"
    sentence = f"Audit: {found}{which}: {judged} by these attacks (0 is what the label alone gives, 1 everything)."
    return Verdict(sentence, False, least, front=front, notes=tuple(notes), recovery=leak)


def halved(setting: Setting) -> tuple[Setting, Setting]:
    """The setting by the half of the inputs that cells are chosen on, and by the other half, that is reported.

    Who is the best of many on some inputs is lucky on them. Where there are too few to halve, both are the setting.
    """
    if any(cell.halves is None for cell in setting.cells):
        return setting, setting
    pairs = [(cell.halves.choice, cell.halves.report) if cell.halves else (None, None) for cell in setting.cells]
    choice, report = (
        tuple(dataclasses.replace(cell, recovery=pair[half]) for cell, pair in zip(setting.cells, pairs, strict=True))
        for half in (0, 1)
    )
    return dataclasses.replace(setting, cells=choice), dataclasses.replace(setting, cells=report)


def what_it_was_chosen_on(is_halved: bool, vanilla: Cell) -> str:
    """Which inputs the cell was chosen on, and which the sentence speaks of."""
    if not is_halved or vanilla.halves is None:
        return f"chosen and reported on the same inputs: fewer than {LEAST_TO_HALVE} were attacked, so it may be luck"
    reported = vanilla.halves.inputs // 2
    return f"chosen on {vanilla.halves.inputs - reported} attacked inputs, and said of the other {reported}"


def place(setting: Setting, cell: Cell) -> int:
    """Which of a setting's cells this is."""
    return next(number for number, each in enumerate(setting.cells) if each is cell)


def choose(setting: Setting, qualifying: Sequence[int], limit: str, attacks: Iterable[str]) -> tuple[int, list[int]]:
    """The cell that gives least away, and all that give as little; of these a sweet spot wins, then the most useful."""
    given = {each: recovered(setting.cells[each]).mean for each in qualifying}
    least = min(given.values())
    tied = [each for each in qualifying if given[each] <= least + SAME]
    spots = {each: said(setting, each, limit, attacks)[1] for each in tied}
    return min(tied, key=lambda each: (not spots[each], setting.drop(setting.cells[each]), given[each])), tied


def recovered(cell: Cell) -> Spread:
    """The recovery of a cell that was attacked."""
    assert cell.recovery is not None
    return cell.recovery


def what_is_still_seen(best: Cell) -> list[str]:
    """What a sweet spot gives away all the same: the class of what came back."""
    seen = [run.results["worst_case"].get("recognised") for run in best.runs]
    if best.channel or not all(seen):
        return []
    mean = sum(each["mean"] for each in seen) / len(seen)
    return [f"an independent classifier still sees the class in {100 * mean:.0f} % of what came back"]


def floors(setting: Setting) -> list[str]:
    """A line where leaks were computed here, from scores that runs keep, and not when the runs were attacked."""
    computed = [run for run in setting.runs if run.results.get(COMPUTED)]
    if not setting.by_leak or not computed or setting.by != WORST:
        return []
    some = "all runs" if len(computed) == len(setting.runs) else f"{len(computed)} of {len(setting.runs)} runs"
    return [f"the leak of {some} is against {FLOOR} alone: they are older than the decoder of labels"]


def by_threat(setting: Setting, max_drop: float | None) -> list[tuple[str, str]]:
    """The verdict against an attacker without any data of its own, with some, and with several answers to average."""
    tried = [attack for attack in WITHOUT_DATA if attack in attacks_of(setting)]
    if setting.is_text or not attacks_of(setting):
        return []
    without = "not tried: no white box without data was run"
    if tried:
        without = sweet_spot(by_attacks(setting, tried, "no-data"), max_drop).sentence
    learns = not set(attacks_of(setting)) <= {*WITHOUT_DATA}
    with_data = "as said above, by all attacks" if learns else "not tried: no such attack was run"
    often = [
        (f"Attacker with {count} answers", sweet_spot(by_queries(setting, count), max_drop).sentence)
        for count in queries_of(setting)
    ]
    return [("Attacker without data", without), ("Attacker with data", with_data), *often]


def at_equal_share(setting: Setting, max_drop: float | None) -> list[tuple[str, str]]:
    """The verdict among cells whose client does no more of the work than vanilla's, where that leaves cells out."""
    vanilla, said = setting.vanilla, []
    for part, words in (("macs", "multiply-adds"), ("parameters", "parameters")):
        own = share_of(vanilla, part) if vanilla is not None else None
        shares = {cell.label: share_of(cell, part) for cell in setting.cells}
        if own is None or None in shares.values():
            continue
        kept = tuple(cell for cell in setting.cells if (shares[cell.label] or 0) <= own + SAME_SHARE)
        if 1 < len(kept) < len(setting.cells):
            verdict = sweet_spot(dataclasses.replace(setting, cells=kept), max_drop)
            said.append(
                (f"Equal {words}", f"with a client that has {100 * own:.0f} %, as vanilla's: {verdict.sentence}")
            )
    return said


def share_of(cell: Cell, part: str) -> float | None:
    """The client's share of multiply-adds or of parameters in a cell; None where it was not counted."""
    return client_share(cell.runs[0].results.get("cost") or {}, part)


def advice(setting: Setting, verdict: Verdict) -> str:
    """What to do, in one sentence; empty where nothing can be compared."""
    cell = verdict.cell
    if cell is None or verdict.vanilla is None:
        return ""
    if not verdict.found:
        return f"Do not rely on {cell.label}{' or any other cell here' if len(setting.cells) > 2 else ''}."
    if not setting.by_leak:
        return f"Use {cell.label}: less than half of what vanilla gives away comes back."
    if setting.is_text:
        return f"Use {cell.label}: hardly more than {setting.floor} comes back."
    identity = identity_leak(cell)
    if identity is None:
        then = "whether it tells one input from others of its class was not measured"
    elif identity <= NO_PICTURE:
        then = "nor does it tell one input from others of its class"
    else:
        then = "but it still tells which of several inputs of a class it was"
    return f"Use {cell.label}: hardly more than the label comes back as a picture, {then}."


def said(setting: Setting, chosen: int, limit: str, attacks: Iterable[str]) -> tuple[str, bool]:
    """The sentence about the winning cell, and whether it is a sweet spot at all."""
    best = setting.cells[chosen]
    vanilla = setting.vanilla_of(best)
    assert vanilla is not None
    metric, value = NAMES[setting.recovery], recovered(best).mean
    if value >= recovered(vanilla).mean - SAME:
        return (
            f"No sweet spot: of the cells that keep {setting.utility} within {limit}, none gives away less than "
            f"vanilla ({metric} {recovered(vanilla).mean:.3f}). The least is {cell_figures(setting, best)}.",
            False,
        )
    if max(best.utility.count, vanilla.utility.count) > 1 and seeds_explain(best, vanilla):
        return (
            f"No sweet spot that seeds can tell: {cell_figures(setting, best)} gives away least among the cells that "
            f"keep {setting.utility} within {limit}, by less than two standard errors over seeds.",
            False,
        )
    if setting.by_leak and recovered(vanilla).mean <= NO_PICTURE:
        return (
            f"No sweet spot: not even vanilla gives away more than {NO_PICTURE:g} beyond {setting.floor} ({metric} "
            f"{recovered(vanilla).mean:.3f}), so this says nothing about the defence. The least is "
            f"{cell_figures(setting, best)}.",
            False,
        )
    if setting.by_leak and value > NO_PICTURE:
        return (
            f"No sweet spot: {cell_figures(setting, best)} gives away least among the cells that keep "
            f"{setting.utility} within {limit}, and that is more than {NO_PICTURE:g} beyond {setting.floor}.",
            False,
        )
    if not setting.by_leak and value > HALF * recovered(vanilla).mean:
        return (
            f"No sweet spot: {cell_figures(setting, best)} gives away least among the cells that keep "
            f"{setting.utility} within {limit}, and that is more than half of what vanilla does.",
            False,
        )
    alone = setting.by == WORST and not any(map(is_adaptive, attacks))
    only = f" against {' and '.join(sorted(attacks))} alone (no attacker who adapts was tried)" if alone else ""
    return f"Sweet spot{only}: {cell_figures(setting, best)}.", True


def cell_figures(setting: Setting, cell: Cell) -> str:
    """A cell with its utility and recovery, and vanilla's beside them."""
    vanilla = setting.vanilla_of(cell)
    metric = NAMES[setting.recovery]
    theirs = f" (vanilla {useful(setting, vanilla)})" if vanilla else ""
    seeds = f", {cell.utility.count} seeds" if cell.utility.count > 1 else ""
    given = f", {setting.by} {metric} {spread(recovered(cell), 3)}" if cell.recovery else f", {cell.gap}"
    if vanilla and vanilla.recovery and cell.recovery:
        given += f" (vanilla {spread(vanilla.recovery, 3)})"
    return f"{cell.label} with {setting.utility} {useful(setting, cell)}{theirs}{given}{seeds}"


def useful(setting: Setting, cell: Cell) -> str:
    """Utility as people write it."""
    if setting.utility == "perplexity":
        return spread(cell.utility, 1)
    return f"{spread(Spread(100 * cell.utility.mean, 100 * cell.utility.std, cell.utility.count), 2)} %"


def spread(figure: Spread, digits: int) -> str:
    """Mean, and where there are several seeds ± their standard deviation.

    Example:
        >>> spread(Spread(0.5, 0.0, 1), 2), spread(Spread(0.5, 0.1, 3), 2)
        ('0.50', '0.50 ± 0.10')
    """
    return f"{figure.mean:.{digits}f}" + (f" ± {figure.std:.{digits}f}" if figure.count > 1 else "")


def tolerance(setting: Setting, max_drop: float | None) -> str:
    """What a cell may lose, in words."""
    max_drop = tolerated(setting.utility, max_drop)
    if setting.utility == "perplexity":
        return f"{100 * max_drop:g} % of vanilla's"
    return f"{100 * max_drop:g} percentage point{'' if max_drop == 0.01 else 's'} of vanilla's"


def within_spread(best: Cell, qualifying: Sequence[Cell]) -> list[str]:
    """A line where seeds differ as much as cells do, or where there is one seed and nobody can tell."""
    if best.utility.count < 2:
        return ["one seed: differences of the size that another seed makes cannot be told"]
    near = [cell for cell in qualifying if cell is not best and seeds_explain(cell, best)]
    return [f"no further from it than two standard errors over seeds: {named(near)}"] if near else []


def seeds_explain(one: Cell, other: Cell) -> bool:
    """Whether two recoveries differ by no more than two standard errors of their difference over seeds."""
    ours, theirs = recovered(one), recovered(other)
    return abs(ours.mean - theirs.mean) <= 2 * math.hypot(ours.error, theirs.error)


def pareto_front(cells: Iterable[Cell], lower_is_useful: bool = False) -> tuple[Cell, ...]:
    """The cells that no other cell beats in both utility and recovery, the most useful first.

    Args:
        cells: attacked ones.
        lower_is_useful: as for perplexity.
    """
    sign = 1 if lower_is_useful else -1
    front: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: (sign * cell.utility.mean, recovered(cell).mean)):
        if not front or recovered(cell).mean < recovered(front[-1]).mean:
            front.append(cell)
    return tuple(front)
