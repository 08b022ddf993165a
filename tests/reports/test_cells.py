"""Which runs are cells of one grid."""

from __future__ import annotations

from reports.cells import attacks_of, by_attack, settings_of
from tests.reports.settings import found_run


def test_runs_that_differ_in_more_than_defence_and_seed_are_other_settings() -> None:
    one, longer, larger = (found_run(1, 1e-2, 0.98, 0.2) for _ in range(3))
    longer.results["config"]["epochs"] = 20
    larger.results["data"]["train"] = 5000
    settings = settings_of([one, longer, larger, found_run(0, 0, 0.99, 0.9, seed=3)])
    assert sorted(len(setting.cells) for setting in settings) == [1, 1, 2]
    assert len({setting.title for setting in settings}) == 3


def test_the_order_is_vanilla_then_lambda_up_then_beta_down() -> None:
    runs = [found_run(lam, beta, 0.9, 0.2) for lam in (10, 1, 0) for beta in ((1e-4, 1e-2) if lam else (0,))]
    (setting,) = settings_of(runs)
    labels = ["Vanilla", "MixCon(1, 0.01)", "MixCon(1, 1e-4)", "MixCon(10, 0.01)", "MixCon(10, 1e-4)"]
    assert [cell.label for cell in setting.cells] == labels


def test_a_cell_of_which_one_seed_was_not_attacked_has_no_recovery() -> None:
    (setting,) = settings_of([found_run(1, 1e-2, 0.9, 0.2, seed=0), found_run(1, 1e-2, 0.9, None, seed=1)])
    assert setting.cells[0].recovery is None
    assert setting.cells[0].utility.count == 2


def test_recovery_by_one_attack_instead_of_the_worst_case() -> None:
    run = found_run(1, 1e-2, 0.9, 0.2, attacks=("whitebox/adaptive", "decoder/adaptive"))
    run.results["attacks"]["decoder/adaptive"]["ssim"]["mean"] = 0.7
    (setting,) = settings_of([run])
    assert attacks_of(setting) == ["decoder/adaptive", "whitebox/adaptive"]
    recovery = by_attack(setting, "decoder/adaptive").cells[0].recovery
    assert recovery is not None
    assert recovery.mean == 0.7
    assert by_attack(setting, "whitebox/b").cells[0].recovery is None


def test_settings_of_one_title_are_told_apart_by_what_differs() -> None:
    one, other = (found_run(1, 1e-2, 0.98, 0.2) for _ in range(2))
    one.results["config"]["momentum"], other.results["config"]["momentum"] = 0.0, 0.9
    titles = [setting.title for setting in settings_of([one, other])]
    assert titles == ["digits, lenet cut after conv2, momentum 0.0", "digits, lenet cut after conv2, momentum 0.9"]


def test_runs_without_a_metric_that_others_have_keep_their_own() -> None:
    (setting,) = settings_of([found_run(0, 0, 0.99, 0.9)], "psim")
    assert setting.recovery == "ssim"
    assert setting.cells[0].recovery is not None


def test_a_cell_says_why_it_has_no_recovery() -> None:
    (setting,) = settings_of([found_run(1, 1e-2, 0.9, 0.2, seed=0), found_run(1, 1e-2, 0.9, None, seed=1)])
    assert setting.cells[0].gap == "its seeds were not attacked alike"
    (setting,) = settings_of([found_run(1, 1e-2, 0.9, None)])
    assert setting.cells[0].gap == "not attacked"
