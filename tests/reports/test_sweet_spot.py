"""Which cell is the sweet spot, and how plainly it is said when there is none."""

from __future__ import annotations

import itertools
import random

import pytest

from sweetspot.reports.cells import Setting, by_attack, by_attacks, settings_of
from sweetspot.reports.gathering import FoundRun
from sweetspot.reports.sections import beside_verdict
from sweetspot.reports.sweet_spot import advice, at_equal_share, by_threat, pareto_front, recovered, sweet_spot
from tests.reports.settings import found_run, setting


def label(setting: Setting, max_drop: float = 0.01) -> str | None:
    cell = sweet_spot(setting, max_drop).cell
    return cell.label if cell else None


def test_the_smallest_recovery_among_the_useful_cells_wins() -> None:
    grid = setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.985, 0.25), (1, 1e-4): (0.981, 0.2), (10, 1e-4): (0.8, 0.05)})
    verdict = sweet_spot(grid)
    assert verdict.found
    assert label(grid) == "MixCon(1, 1e-4)"
    assert verdict.sentence.startswith("Sweet spot: MixCon(1, 1e-4) with accuracy 98.10 % (vanilla 99.00 %)")
    assert "worst-case SSIM 0.200 (vanilla 0.900)" in verdict.sentence
    assert label(grid, max_drop=0.5) == "MixCon(10, 1e-4)"
    assert label(grid, max_drop=0.006) == "MixCon(1, 0.01)"


def test_a_cell_that_is_exactly_at_the_tolerance_still_counts() -> None:
    grid = setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.98, 0.2)})
    assert label(grid, max_drop=0.01) == "MixCon(1, 0.01)"


def test_no_cell_qualifies_is_said_with_the_closest_one() -> None:
    grid = setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.9, 0.2), (10, 1e-2): (0.5, 0.1)})
    verdict = sweet_spot(grid)
    assert not verdict.found
    assert verdict.cell is not None
    assert verdict.cell.label == "MixCon(1, 0.01)"
    assert verdict.sentence.startswith("No cell qualifies: none keeps accuracy within 1 percentage point of vanilla's.")
    assert "The closest is MixCon(1, 0.01) with accuracy 90.00 %" in verdict.sentence


def test_a_leak_above_the_line_is_no_sweet_spot() -> None:
    verdict = sweet_spot(setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.985, 0.26)}, floor=0.0))
    assert not verdict.found
    assert verdict.cell is not None
    assert "worst-case SSIM leak 0.260 (vanilla 0.900) gives away least" in verdict.sentence
    assert "that is more than 0.25 beyond the label" in verdict.sentence
    assert sweet_spot(setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.985, 0.25)}, floor=0.0)).found


def test_what_the_label_gives_back_is_no_leak() -> None:
    grid = setting({(0, 0): (0.99, 0.95), (1, 1e-2): (0.985, 0.65)}, floor=0.6)
    verdict = sweet_spot(grid)
    assert verdict.found, "an SSIM of 0.65, of which the label alone gives 0.6"
    assert "worst-case SSIM leak 0.125 (vanilla 0.875)" in verdict.sentence
    assert verdict.recovery == pytest.approx(0.125)
    below = sweet_spot(setting({(0, 0): (0.99, 0.95), (1, 1e-2): (0.985, 0.5)}, floor=0.6))
    assert recovered(below.cell).mean == pytest.approx(-0.25) if below.cell else False


def test_a_defence_that_hides_nothing_is_called_so() -> None:
    verdict = sweet_spot(setting({(0, 0): (0.99, 0.2), (1, 1e-2): (0.985, 0.2), (2, 1e-2): (0.985, 0.25)}))
    assert not verdict.found
    assert "none gives away less than vanilla (SSIM 0.200)" in verdict.sentence


def test_where_vanilla_leaks_little_either_no_defence_is_praised() -> None:
    verdict = sweet_spot(setting({(0, 0): (0.99, 0.22), (1, 1e-2): (0.985, 0.2)}, floor=0.0))
    assert not verdict.found
    assert "not even vanilla gives away more than 0.25 beyond the label (SSIM leak 0.220)" in verdict.sentence


def test_without_a_floor_a_sweet_spot_gives_away_less_than_half_of_vanilla() -> None:
    assert sweet_spot(setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.985, 0.44)})).found
    verdict = sweet_spot(setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.985, 0.46)}))
    assert not verdict.found
    assert "more than half of what vanilla does" in verdict.sentence


def test_the_drop_is_paired_over_seeds() -> None:
    """Seed 1 is a bad one for both; the cell that has it loses nothing by it."""
    runs = [found_run(0, 0, accuracy, 0.9, seed, floor=0.0) for seed, accuracy in ((0, 0.99), (1, 0.96))]
    runs += [found_run(1, 1e-2, 0.955, 0.1, seed=1, floor=0.0), found_run(2, 1e-2, 0.975, 0.2, seed=0, floor=0.0)]
    verdict = sweet_spot(settings_of(runs)[0])
    assert [cell.label for cell in verdict.qualifying] == ["MixCon(1, 0.01)"]


def with_identity(run: FoundRun, rate: float | None, gallery: float | None = None) -> FoundRun:
    """A run whose inputs are re-identified at this rate by the best attack, and with this leak by the gallery."""
    if rate is not None:
        run.results["certificate"] = {"reid_bayes": rate, "gallery": 100, "nats": 1.2, "reid_bound": 0.7}
    if gallery is not None:
        figures = {"mean": gallery, "std": 0.0, "worst": gallery}
        run.results["attacks"]["gallery"] = {"reid": figures, "leak": {"reid": figures}, "settings": {}, "samples": 2}
    return run


@pytest.mark.parametrize(
    ("rate", "gallery", "grade", "advised"),
    [
        (0.109, 0.9, "yes: the re-identification leak is 0.10", "nor does it tell one input from others"),
        (0.604, 0.1, "no: the re-identification leak is 0.60", "but it still tells which of several inputs"),
        (None, 0.2, "yes: the re-identification leak is 0.20, by gallery", "nor does it tell one input from others"),
        (None, None, "not measured", "was not measured"),
    ],
)
def test_both_grades_are_said(rate: float | None, gallery: float | None, grade: str, advised: str) -> None:
    vanilla, cell = found_run(0, 0, 0.99, 0.9, floor=0.0), found_run(1, 1e-2, 0.985, 0.1, floor=0.0)
    (grid,) = settings_of([vanilla, with_identity(cell, rate, gallery)])
    verdict = sweet_spot(grid)
    assert verdict.found
    assert advice(grid, verdict).startswith("Use MixCon(1, 0.01): hardly more than the label comes back as a picture")
    assert advised in advice(grid, verdict)
    said = dict(beside_verdict(grid, verdict, 0.01))
    assert said["No picture"].startswith("yes: the worst-case leak is 0.10")
    assert said["No identity"].startswith(grade)


def test_a_gallery_is_no_attack_that_a_cell_can_be_spared() -> None:
    runs = [found_run(0, 0, 0.99, 0.9, floor=0.0), with_identity(found_run(1, 1e-2, 0.985, 0.1, floor=0.0), None, 0.5)]
    verdict = sweet_spot(settings_of(runs)[0])
    assert verdict.found
    assert verdict.notes[0] == "worst case over whitebox/adaptive"


def test_what_should_not_be_relied_on_is_said() -> None:
    grid = setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.985, 0.5)}, floor=0.0)
    assert advice(grid, sweet_spot(grid)) == "Do not rely on MixCon(1, 0.01)."
    alone = setting({(0, 0): (0.99, 0.9)})
    assert advice(alone, sweet_spot(alone)) == ""


def test_an_attacker_without_data_has_a_verdict_of_his_own() -> None:
    attacks = ("whitebox/no-data", "whitebox/paper", "decoder/adaptive")
    runs = [found_run(lam, 1e-2, 0.99, ssim, attacks=attacks, floor=0.0) for lam, ssim in ((0, 0.9), (1, 0.6))]
    for key, ssim in (("whitebox/no-data", 0.1), ("whitebox/paper", 0.2)):
        record = runs[1].results["attacks"][key]
        record["scores"]["ssim"] = [ssim, ssim]
        record["ssim"] = {"mean": ssim, "std": 0.0, "worst": ssim}
    (grid,) = settings_of(runs)
    said = dict(by_threat(grid, 0.01))
    assert said["Attacker without data"].startswith("Sweet spot: MixCon(1, 0.01)")
    assert "no-data SSIM leak 0.200 (vanilla 0.900)" in said["Attacker without data"]
    assert sweet_spot(grid).sentence.startswith("No sweet spot"), "as an attacker with data has it"
    only = by_attacks(grid, ["decoder/adaptive"], "decoder/adaptive")
    assert recovered(only.cells[1]).mean == pytest.approx(0.6)


def asked(run: FoundRun, count: int, ssim: float) -> FoundRun:
    """A run with a random release, of which somebody averaged so many answers."""
    run.results["random_release"] = True
    for record in run.results["attacks"].values():
        more = {"scores": {"ssim": [ssim, ssim]}, "ssim": {"mean": ssim, "std": 0.0, "worst": ssim}, "inputs": [0, 1]}
        record["queries"] = {str(count): more}
    return run


def test_who_may_ask_often_has_a_verdict_of_his_own() -> None:
    runs = [found_run(0, 0, 0.99, 0.9, floor=0.0), asked(found_run(1, 1e-2, 0.985, 0.1, floor=0.0), 10, 0.7)]
    (grid,) = settings_of(runs)
    assert sweet_spot(grid).found
    said = dict(by_threat(grid, 0.01))["Attacker with 10 answers"]
    assert said.startswith("No sweet spot: MixCon(1, 0.01)")
    assert "10-answer SSIM leak 0.700 (vanilla 0.900)" in said, "vanilla answers alike however often it is asked"
    weaker = [runs[0], asked(found_run(1, 1e-2, 0.985, 0.2, floor=0.0), 10, 0.1)]
    assert "leak 0.200" in dict(by_threat(settings_of(weaker)[0], 0.01))["Attacker with 10 answers"], "one is enough"


def test_a_random_release_that_was_asked_once_is_not_judged_for_ten_answers() -> None:
    once = found_run(10, 1e-2, 0.985, 0.05, floor=0.0)
    once.results["random_release"] = True
    runs = [found_run(0, 0, 0.99, 0.9, floor=0.0), asked(found_run(1, 1e-2, 0.985, 0.1, floor=0.0), 10, 0.2), once]
    assert "MixCon(1, 0.01)" in dict(by_threat(settings_of(runs)[0], 0.01))["Attacker with 10 answers"]


def test_cells_are_compared_at_equal_client_share_too() -> None:
    runs = [found_run(lam, 1e-2, 0.99, ssim, floor=0.0) for lam, ssim in ((0, 0.9), (1, 0.5), (10, 0.1))]
    for run, client in zip(runs, (100, 100, 900), strict=True):
        run.results["cost"] = {
            "client_macs": client, "server_macs": 900, "client_parameters": 5, "server_parameters": 5
        }  # fmt: skip
    (grid,) = settings_of(runs)
    assert "MixCon(10, 0.01)" in sweet_spot(grid).sentence
    ((name, said),) = at_equal_share(grid, 0.01)
    assert name == "Equal multiply-adds"
    assert said.startswith("with a client that has 10 %, as vanilla's: No sweet spot: MixCon(1, 0.01)")
    del runs[1].results["cost"]
    assert at_equal_share(settings_of(runs)[0], 0.01) == [], "a share that nobody counted is no equal one"


def test_the_leak_of_older_runs_is_computed_and_that_is_said() -> None:
    old, new = found_run(0, 0, 0.99, 0.9, floor=0.5), found_run(1, 1e-2, 0.985, 0.6, floor=0.5)
    figures = {"ssim": {"mean": 0.05, "std": 0.0, "worst": 0.05}}  # a label decoder gave a higher floor
    for record in (new.results["worst_case"], new.results["attacks"]["whitebox/adaptive"]):
        record |= {"leak": figures, "leaks": {"ssim": [0.05, 0.05]}}
    new.results["worst_case"]["inputs"] = [0, 1]
    verdict = sweet_spot(settings_of([old, new])[0])
    assert "worst-case SSIM leak 0.050 (vanilla 0.800)" in verdict.sentence
    assert any("the leak of 1 of 2 runs is against prototype alone" in note for note in verdict.notes)


def test_a_tie_goes_to_the_more_useful_cell_and_is_named() -> None:
    verdict = sweet_spot(setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.981, 0.2001), (2, 1e-2): (0.985, 0.2002)}))
    assert verdict.cell is not None
    assert verdict.cell.label == "MixCon(2, 0.01)"
    assert any(note.startswith("a tie: MixCon(1, 0.01) recover as little") for note in verdict.notes)


def test_without_vanilla_or_attacks_there_is_no_answer() -> None:
    assert "no vanilla run" in sweet_spot(setting({(1, 1e-2): (0.98, 0.2)})).sentence
    unattacked = sweet_spot(setting({(0, 0): (0.99, None), (1, 1e-2): (0.98, None)}))
    assert unattacked.sentence.startswith("No cell was attacked yet")


def test_a_cell_that_was_spared_an_attack_is_left_out() -> None:
    runs = [
        found_run(0, 0, 0.99, 0.9, attacks=("whitebox/adaptive", "decoder/adaptive")),
        found_run(1, 1e-2, 0.985, 0.25, attacks=("whitebox/adaptive", "decoder/adaptive")),
        found_run(2, 1e-2, 0.985, 0.1, attacks=("whitebox/adaptive",)),
        found_run(3, 1e-2, 0.985, None),
    ]
    verdict = sweet_spot(settings_of(runs)[0])
    assert verdict.cell is not None
    assert verdict.cell.label == "MixCon(1, 0.01)"
    assert "left out, for they did not go through every attack: MixCon(2, 0.01)" in verdict.notes
    assert "not attacked, or not every seed by the same attacks: MixCon(3, 0.01)" in verdict.notes


def test_a_sweet_spot_says_against_what_and_what_is_seen_all_the_same() -> None:
    recipe = [found_run(lam, 1e-2, 0.99, ssim, attacks=("whitebox/paper",)) for lam, ssim in ((0, 0.9), (1, 0.1))]
    verdict = sweet_spot(settings_of(recipe)[0])
    assert verdict.found
    assert verdict.sentence.startswith("Sweet spot against whitebox/paper alone (no attacker who adapts was tried):")

    both = ("whitebox/paper", "whitebox/adaptive")
    runs = [found_run(lam, 1e-2, 0.99, ssim, attacks=both, floor=0.0) for lam, ssim in ((0, 0.9), (1, 0.1))]
    runs[1].results["worst_case"]["recognised"] = {"mean": 0.96, "std": 0.2, "worst": 1.0}
    verdict = sweet_spot(settings_of(runs)[0])
    assert verdict.sentence.startswith("Sweet spot: MixCon(1, 0.01)")
    assert verdict.notes[0] == "worst case over whitebox/adaptive, whitebox/paper"
    assert "an independent classifier still sees the class in 96 % of what came back" in verdict.notes


def test_a_cell_whose_attack_was_stopped_is_left_out() -> None:
    runs = [found_run(lam, 1e-2, 0.99, ssim) for lam, ssim in ((0, 0.9), (1, 0.1), (2, 0.2))]
    runs[1].results["attacks"]["whitebox/adaptive"]["stopped"] = True
    verdict = sweet_spot(settings_of(runs)[0])
    assert verdict.cell is not None
    assert verdict.cell.label == "MixCon(2, 0.01)"
    assert "stopped early, and so weaker than they are: whitebox/adaptive of MixCon(1, 0.01)" in verdict.notes


def test_one_more_attack_on_a_cell_counts_against_it_and_does_not_take_the_answer_away() -> None:
    both = ("whitebox/adaptive", "decoder/adaptive")
    runs = [found_run(0, 0, 0.99, 0.9), found_run(1, 1e-2, 0.99, 0.2), found_run(2, 1e-2, 0.99, 0.8, attacks=both)]
    verdict = sweet_spot(settings_of(runs)[0])
    assert verdict.found
    assert verdict.sentence.startswith("Sweet spot: MixCon(1, 0.01)")
    assert verdict.notes[0] == "worst case over whitebox/adaptive"
    said = "went through more than the others, which counts against them: MixCon(2, 0.01) (decoder/adaptive)"
    assert said in verdict.notes
    harder = [found_run(0, 0, 0.99, 0.9, attacks=both), *runs[1:]]  # vanilla too: now it is asked of all
    assert "MixCon(1, 0.01)" in " ".join(sweet_spot(settings_of(harder)[0]).notes)
    alone = [found_run(0, 0, 0.99, 0.9, attacks=both), runs[1]]  # vanilla alone: nobody else can be asked
    assert sweet_spot(settings_of(alone)[0]).found


def test_cells_that_went_through_other_attacks_than_vanilla_are_not_compared_with_it() -> None:
    runs = [found_run(0, 0, 0.99, 0.9, attacks=("decoder/adaptive",)), found_run(1, 1e-2, 0.99, 0.2)]
    assert "nothing to compare with" in sweet_spot(settings_of(runs)[0]).sentence


def test_of_tied_cells_one_that_is_a_sweet_spot_is_preferred() -> None:
    grid = setting({(0, 0): (0.99, 0.9), (1, 1e-2): (0.988, 0.2502), (10, 1e-2): (0.985, 0.2499)}, floor=0.0)
    verdict = sweet_spot(grid)
    assert verdict.found
    assert verdict.sentence.startswith("Sweet spot: MixCon(10, 0.01)")


def test_one_seed_is_compared_with_the_spread_of_vanillas() -> None:
    runs = [found_run(0, 0, 0.99, ssim, seed) for seed, ssim in ((0, 0.31), (1, 0.20), (2, 0.35))]
    verdict = sweet_spot(settings_of([*runs, found_run(1, 1e-2, 0.99, 0.28)])[0])
    assert not verdict.found
    assert verdict.sentence.startswith("No sweet spot that seeds can tell")


def test_seeds_are_one_cell_with_mean_and_spread() -> None:
    runs = [found_run(0, 0, 0.99, 0.9, seed) for seed in (0, 1)]
    runs += [found_run(1, 1e-2, accuracy, ssim, seed) for seed, accuracy, ssim in ((0, 0.98, 0.1), (1, 0.99, 0.2))]
    (grid,) = settings_of(runs)
    cell = sweet_spot(grid).cell
    assert cell is not None
    assert len(grid.cells) == 2
    assert (cell.utility.mean, recovered(cell).mean) == pytest.approx((0.985, 0.15))
    assert recovered(cell).std == pytest.approx(0.1 / 2**0.5)
    assert "98.50 ± 0.71 %" in sweet_spot(grid).sentence


def test_a_difference_that_seeds_explain_is_no_sweet_spot() -> None:
    runs = [found_run(0, 0, 0.99, ssim, seed) for seed, ssim in ((0, 0.1), (1, 0.3))]
    runs += [found_run(1, 1e-2, 0.99, ssim, seed) for seed, ssim in ((0, 0.1), (1, 0.25))]
    verdict = sweet_spot(settings_of(runs)[0])
    assert not verdict.found
    assert verdict.sentence.startswith("No sweet spot that seeds can tell")


def test_many_seeds_tell_what_two_cannot() -> None:
    """Cells that lie closer than one seed from another, told apart by the mean of many: a standard error shrinks."""

    def verdict(seeds: int) -> str:
        away = [0.02 * (-1) ** seed for seed in range(seeds)]
        runs = [found_run(0, 0, 0.99, 0.26 + each, seed, floor=0.0) for seed, each in enumerate(away)]
        runs += [found_run(1, 1e-2, 0.99, 0.24 + each, seed, floor=0.0) for seed, each in enumerate(away)]
        return sweet_spot(settings_of(runs)[0]).sentence

    assert verdict(2).startswith("No sweet spot that seeds can tell")
    assert verdict(4).startswith("No sweet spot that seeds can tell"), "0.02 apart, with a standard error of 0.016"
    assert verdict(24).startswith("Sweet spot: ")


def test_a_cell_is_chosen_on_one_half_of_the_inputs_and_reported_on_the_other() -> None:
    runs = [
        found_run(0, 0, 0.99, 0.9, inputs=40),
        found_run(1, 1e-2, 0.99, 0.05, inputs=40, odd=0.8),  # lucky on the inputs that it is chosen on
        found_run(2, 1e-2, 0.99, 0.2, inputs=40),
    ]
    (grid,) = settings_of(runs)
    verdict = sweet_spot(grid)
    assert verdict.cell is grid.cells[1]
    assert recovered(verdict.cell).mean == pytest.approx(0.425), "maps and plots show all inputs"
    assert not verdict.found
    assert "worst-case SSIM 0.800 (vanilla 0.900)" in verdict.sentence, "what it was not chosen on"
    assert "chosen on 20 attacked inputs, and said of the other 20" in verdict.notes
    few = sweet_spot(settings_of([found_run(0, 0, 0.99, 0.9), found_run(1, 1e-2, 0.99, 0.1)])[0])
    assert any(note.startswith("chosen and reported on the same inputs") for note in few.notes)
    alone = sweet_spot(by_attack(grid, "whitebox/adaptive"))
    assert "whitebox/adaptive SSIM 0.800 (vanilla 0.900)" in alone.sentence


def test_unequal_budgets_are_said() -> None:
    cheap, dear = found_run(0, 0, 0.99, 0.9), found_run(1, 1e-2, 0.985, 0.1)
    dear.results["attacks"]["whitebox/adaptive"]["settings"] = {"budget": "thorough"}
    notes = sweet_spot(settings_of([cheap, dear])[0]).notes
    said = "whitebox/adaptive was not the same for all runs (budget fast, 2 inputs / budget thorough, 2 inputs)"
    assert any(said in note for note in notes)


@pytest.mark.parametrize("lower_is_useful", [False, True])
def test_the_front_is_what_no_other_cell_beats(lower_is_useful: bool) -> None:
    draw = random.Random(0)
    figures = {(1.0 + n, 1e-2): (draw.choice([0.1, 0.5, 0.9]) + draw.random() / 9, draw.random()) for n in range(40)}
    cells = setting(figures).cells
    sign = -1 if lower_is_useful else 1

    def beats(one: int, other: int) -> bool:
        a, b = cells[one], cells[other]
        better = sign * (a.utility.mean - b.utility.mean), recovered(b).mean - recovered(a).mean
        return min(better) >= 0 and max(better) > 0

    beaten = {other for one, other in itertools.permutations(range(len(cells)), 2) if beats(one, other)}
    expected = {cells[index].label for index in range(len(cells)) if index not in beaten}
    front = pareto_front(cells, lower_is_useful)
    assert {cell.label for cell in front} == expected
    assert [recovered(cell).mean for cell in front] == sorted((recovered(cell).mean for cell in front), reverse=True)


def test_a_cell_and_vanilla_of_other_seeds_are_said_to_be_so() -> None:
    runs = [found_run(0, 0, 0.99, 0.9, seed=1), *(found_run(1, 1e-2, 0.99, 0.1, seed) for seed in (0, 1))]
    notes = sweet_spot(settings_of(runs)[0]).notes
    assert "not all cells have the seeds [0, 1]: Vanilla" in notes


def test_seeds_that_went_through_other_attacks_make_no_mean() -> None:
    runs = [
        found_run(0, 0, 0.99, 0.9, seed=0, attacks=("whitebox/adaptive", "decoder/adaptive")),
        found_run(0, 0, 0.99, 0.2, seed=1),
    ]
    (grid,) = settings_of(runs)
    assert grid.cells[0].recovery is None


def test_vanilla_alone_is_not_blamed_on_its_accuracy() -> None:
    assert sweet_spot(setting({(0, 0): (0.99, 0.9)})).sentence.startswith("There is nothing but vanilla")


# ---------------------------------------------------------------------- text


def text_grid(noisy: float, perplexity: float) -> Setting:
    """Vanilla and one defended model that gives everything away, and the latter behind noise."""
    runs = [found_run(0, 0, 0.2, None), found_run(1, 1e-2, 0.2, None)]
    for run, value in zip(runs, (100.0, 100.5), strict=True):
        run.results["data"]["tokenizer"] = "bpe"
        run.results["utility"]["perplexity"] = value
        whole = {"similarity": {"mean": 1.0, "std": 0.0, "worst": 1.0}}
        run.results["attacks"] = {"text/hybrid": {**whole, "samples": 2, "settings": {}, "channels": {}}}
        run.results["worst_case"] = {"attacks": ["text/hybrid"], "samples": 2, **whole}
    behind = {"similarity": {"mean": noisy, "std": 0.0, "worst": noisy}, "perplexity": perplexity}
    runs[1].results["attacks"]["text/hybrid"]["channels"]["noise 1"] = behind
    (grid,) = settings_of(runs)
    return grid


def test_text_is_judged_by_perplexity_with_every_channel_a_cell() -> None:
    verdict = sweet_spot(text_grid(noisy=0.3, perplexity=109.9))
    assert verdict.found
    assert verdict.cell is not None
    assert verdict.cell.label == "MixCon(1, 0.01) + noise 1"
    assert [cell.label for cell in verdict.qualifying] == ["MixCon(1, 0.01)", "MixCon(1, 0.01) + noise 1"]
    costly = sweet_spot(text_grid(noisy=0.3, perplexity=110.1))  # more than a tenth above vanilla's
    assert costly.cell is not None
    assert costly.cell.label == "MixCon(1, 0.01)"
    assert "none gives away less than vanilla (similarity 1.000)" in costly.sentence


def test_a_little_less_text_is_no_sweet_spot() -> None:
    verdict = sweet_spot(text_grid(noisy=0.9, perplexity=100.9))
    assert not verdict.found
    assert "more than half of what vanilla does" in verdict.sentence
