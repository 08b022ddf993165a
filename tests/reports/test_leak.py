"""Leak beyond the label as reports read it, or compute it for runs that do not say it."""

from __future__ import annotations

import pytest

from sweetspot.reports.leak import with_leaks
from sweetspot.reports.records import strongest
from tests.reports.settings import found_run


def test_the_prototype_is_the_floor_of_an_older_run() -> None:
    run = found_run(1, 1e-2, 0.98, 0.75, odd=0.25, floor=0.5)
    found = with_leaks(run.results)
    figures = found["attacks"]["whitebox/adaptive"]["ssim leak"]
    assert figures == pytest.approx({"mean": 0.0, "std": 0.5, "worst": 0.5})
    assert strongest({"": found["worst_case"]}, "ssim leak") == pytest.approx([0.5, -0.5])
    assert "ssim leak" not in found["attacks"]["prototype"]
    assert "ssim leak" not in run.results["worst_case"], "the results themselves stay as they are"


def test_the_mean_leak_is_the_leak_of_the_mean_score() -> None:
    run = found_run(1, 1e-2, 0.98, 0.9, odd=0.3, floor=0.5)
    run.results["attacks"]["prototype"]["scores"]["ssim"] = [0.7, 0.1]
    assert with_leaks(run.results)["worst_case"]["ssim leak"]["mean"] == pytest.approx((0.6 - 0.4) / (1 - 0.4))


def test_a_smaller_mse_leaks_more() -> None:
    run = found_run(1, 1e-2, 0.98, 0.9, floor=0.5)
    for key, scores in (("whitebox/adaptive", [0.0, 0.1]), ("prototype", [0.1, 0.1])):
        run.results["attacks"][key]["scores"]["mse"] = scores
    assert with_leaks(run.results)["attacks"]["whitebox/adaptive"]["mse leak"]["mean"] == pytest.approx(0.5)


def test_what_a_run_says_of_its_leak_is_taken_as_it_is() -> None:
    run = found_run(1, 1e-2, 0.98, 0.9, floor=0.5)
    said = {"mean": 0.1, "std": 0.2, "worst": 0.3}
    run.results["worst_case"] |= {"leak": {"ssim": said}, "leaks": {"ssim": [0.3, -0.1]}, "inputs": [0, 1]}
    found = with_leaks(run.results)["worst_case"]
    assert found["ssim leak"] == said
    assert strongest({"": found}, "ssim leak") == [0.3, -0.1]


def test_without_a_floor_there_is_no_leak_and_where_the_label_says_all_nothing_is_left_to_leak() -> None:
    assert "ssim leak" not in with_leaks(found_run(1, 1e-2, 0.98, 0.9, floor=None).results)["worst_case"]
    found = with_leaks(found_run(1, 1e-2, 0.98, 0.9, floor=1.0).results)
    assert found["worst_case"]["ssim leak"]["mean"] == 0


def test_a_floor_on_other_inputs_is_none() -> None:
    run = found_run(1, 1e-2, 0.98, 0.9, floor=0.5)
    run.results["attacks"]["prototype"]["inputs"] = [7, 8]
    assert "ssim leak" not in with_leaks(run.results)["worst_case"]
