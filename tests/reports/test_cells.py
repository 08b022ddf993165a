"""Which runs are cells of one grid."""

from __future__ import annotations

from typing import Any

import pytest

from sweetspot.reports.cells import attacks_of, by_attack, records_of, settings_of
from sweetspot.reports.gathering import FoundRun
from tests.reports.fabricated import zoo_defence
from tests.reports.settings import found_run


def defended(defence: dict[str, Any], accuracy: float = 0.98, cut: str = "conv2", **more: Any) -> FoundRun:
    """A run with any defence at any cut."""
    run = found_run(0 if defence["name"] == "none" else 1, 1e-2, accuracy, more.pop("ssim", 0.2), **more)
    run.results["defence"] = defence
    run.results["model"]["cut"] = run.results["config"]["cut"] = cut
    return run


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


def test_cuts_and_all_parts_of_a_defence_are_cells_of_one_setting() -> None:
    noise = [zoo_defence(release=["gaussian"], sigma=sigma) for sigma in (0.5, 1.0)]
    squeezed = [zoo_defence("compress", 0.01, each, ["gaussian"]) for each in (None, "16")]
    runs = [defended(each) for each in (*noise, *squeezed)]
    runs += [found_run(0, 0, 0.99, 0.9), defended(noise[0], cut="conv1")]
    (setting,) = settings_of(runs)
    assert setting.title == "digits, lenet cut after conv1 or conv2"
    assert len({cell.label for cell in setting.cells}) == 6
    assert [axis.label for axis in setting.axes] == ["σ", "bottleneck", "cut", "unit"]
    assert [cell.family for cell in setting.cells].count("compress + gaussian") == 2


def test_a_defence_of_an_older_record_is_the_same_cell() -> None:
    old, new = found_run(1, 1e-4, 0.98, 0.2, seed=0), found_run(1, 1e-4, 0.98, 0.3, seed=1)
    new.results["defence"] = zoo_defence("mixcon", 1.0, beta=1e-4)
    bare = found_run(0, 0, 0.99, 0.9)
    bare.results["defence"] |= {"family": "inverse", "epsilon": 1e-6}  # once recorded whatever the defence was
    setting = settings_of([old, new, bare, defended(zoo_defence(), 0.99, seed=1)])[0]
    assert [(cell.label, cell.utility.count) for cell in setting.cells] == [("Vanilla", 2), ("MixCon(1, 1e-4)", 2)]


def test_an_option_that_a_defence_is_not_named_by_tells_cells_apart() -> None:
    runs = [defended(zoo_defence("cem", 1.0, None, ["gaussian"], clusters=each)) for each in (5, 8)]
    runs.append(defended(zoo_defence("mixcon", 1.0, family="log")))
    labels = [cell.label for cell in settings_of(runs)[0].cells]
    assert labels == [
        "MixCon(1, 1e-4) + family log", "cem(1) + gaussian(0.5) + clusters 5", "cem(1) + gaussian(0.5) + clusters 8"
    ]  # fmt: skip


def test_a_cell_is_compared_with_vanilla_of_its_own_cut_where_there_is_one() -> None:
    runs = [defended(zoo_defence(), 0.99, cut, ssim=ssim) for cut, ssim in (("conv1", 0.95), ("conv2", 0.6))]
    noise = zoo_defence(release=["gaussian"])
    runs += [defended(noise, cut=cut, ssim=0.2) for cut in ("conv1", "conv2", "conv3")]
    (setting,) = settings_of(runs)
    against = {cell.cut: setting.vanilla_of(cell) for cell in setting.cells if not cell.is_vanilla}
    assert {cut: vanilla.cut for cut, vanilla in against.items() if vanilla} == {
        "conv1": "conv1", "conv2": "conv2", "conv3": "conv1"
    }  # fmt: skip


def test_a_drop_is_over_the_seeds_that_both_have() -> None:
    runs = [found_run(0, 0, accuracy, 0.9, seed) for seed, accuracy in ((0, 0.99), (1, 0.95))]
    runs.append(found_run(1, 1e-2, 0.985, 0.2, seed=0))
    (setting,) = settings_of(runs)
    assert setting.drop(setting.cells[1]) == pytest.approx(0.005)


def test_images_behind_a_channel_are_a_cell_by_the_attacks_that_were_run_there() -> None:
    run = found_run(1, 1e-2, 0.98, 0.5, attacks=("whitebox/adaptive", "decoder/adaptive"), floor=0.2)
    for key, ssim in (("whitebox/adaptive", [0.1, 0.4]), ("decoder/adaptive", [0.3, 0.2])):
        figures = {"mean": sum(ssim) / 2, "std": 0.1, "worst": max(ssim)}
        behind = {"accuracy": 0.9, "ssim": figures, "scores": {"ssim": ssim}}
        run.results["attacks"][key]["channels"] = {"int8": behind}
    (setting,) = settings_of([found_run(0, 0, 0.99, 0.9, floor=0.2), run])
    cell = setting.cells[-1]
    assert cell.label == "MixCon(1, 0.01) + int8"
    assert cell.utility.mean == 0.9
    assert cell.recovery is not None
    assert records_of(cell, "worst case")[0]["ssim"]["mean"] == pytest.approx(0.35), "0.3 by one, 0.4 by the other"
    assert cell.recovery.mean == pytest.approx((0.35 - 0.2) / 0.8)
    assert cell.attacks == {"whitebox/adaptive", "decoder/adaptive"}
    assert records_of(cell, "decoder/adaptive")[0]["ssim"]["mean"] == 0.25
