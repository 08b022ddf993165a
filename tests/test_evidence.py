"""What stands beside attacks: leak, identity, certificate, cost, conditions, warnings, and attacks of a user's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweetspot.commands.evaluate import main
from sweetspot.evaluations.dispatch import attacked_already
from sweetspot.evaluations.evidence import add_leaks, warnings_of
from sweetspot.reports.page import write_report
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from tests.conftest import refused_by
from tests.weak_attacks import weaken

Make = Callable[..., TrainConfig]
RunOf = Callable[[TrainConfig], Run]
FEW = ["--device", "cpu", "--samples", "6", "--budget", "fast"]
NOISY: dict[str, Any] = {"defence": "compress", "lam": 0.01, "bottleneck": "8", "release": ["gaussian"], "sigma": 1.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch)


@pytest.fixture
def noisy(config: Make, run_of: RunOf) -> Run:
    """A finished run behind a bottleneck and noise."""
    return run_of(config(**NOISY))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run lies that was attacked by every attack, once it was."""
    return tmp_path_factory.mktemp("attacked") / "run"


@pytest.fixture
def attacked(noisy: Run, kept: Path) -> dict[str, Any]:
    """The results of the noisy run after every attack."""
    if not kept.is_dir():
        assert main([str(noisy.folder), *FEW]) == 0
        shutil.copytree(noisy.folder, kept)
    return Run(kept).read_results()


def test_every_attack_and_the_worst_case_have_their_leak(attacked: dict[str, Any]) -> None:
    results = attacked
    for key, record in [*results["attacks"].items(), ("worst_case", results["worst_case"])]:
        assert record["leak"].keys() >= {"ssim", "psim", "mse"}, key
        assert all(each.keys() >= {"mean", "std", "worst"} for each in record["leak"].values())
        assert len(record["leaks"]["ssim"]) == 6
    floors = [results["attacks"][key]["ssim"]["mean"] for key in ("prototype", "label")]
    decoder = results["attacks"]["decoder/adaptive"]
    expected = (decoder["ssim"]["mean"] - max(floors)) / (1 - max(floors))
    assert decoder["leak"]["ssim"]["mean"] == pytest.approx(expected, abs=1e-5)
    assert "reid" in results["attacks"]["gallery"]["leak"]
    assert len(results["attacks"]["label"]["others"]) == 3, "five attacks are held against five label-only ones"


def test_the_worst_case_of_label_only_attackers_does_not_leak(attacked: dict[str, Any]) -> None:
    """The best of several who know the label alone, scored as attacks are, against as many of the same kind."""
    results = attacked
    label = results["attacks"]["label"]
    scores = [label["scores"], results["attacks"]["prototype"]["scores"], *label["others"]]
    for key, each in zip(list(results["worst_case"]["attacks"]), scores, strict=True):
        results["attacks"][key] |= {"scores": each}
    add_leaks(results)
    assert results["worst_case"]["leak"]["ssim"]["mean"] == pytest.approx(0, abs=1e-6)


def test_a_run_says_its_certificate_and_what_it_costs(noisy: Run, config: Make, run_of: RunOf) -> None:
    assert main([str(noisy.folder), *FEW, "--attacks", "whitebox/paper", "--queries", "1", "10"]) == 0
    results = noisy.read_results()
    one, ten = results["certificate"], results["certificate"]["for_queries"]["10"]
    assert one["queries"] == 1
    assert 0 < one["nats"] < ten["nats"]
    assert one["reid_interval"][0] <= one["reid_bound"]
    assert results["cost"].keys() == {
        "client_macs", "server_macs", "client_parameters", "server_parameters", "server_gain"
    }  # fmt: skip
    parameters = 6 * 25 + 6 + 16 * 6 * 25 + 16 + 400 * 8 + 8
    assert results["cost"]["client_parameters"] == parameters, "the bottleneck is the client's"
    silent = run_of(config())
    assert main([str(silent.folder), *FEW, "--attacks", "whitebox/paper"]) == 0
    assert silent.read_results()["certificate"] is None
    assert silent.read_results()["attacks"]["gallery"]["reid"]["mean"] == 1, "nothing hides which input it was"


def test_conditions_are_kept_beside_an_attack_and_never_done_twice(
    noisy: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--attacks", "decoder", "whitebox/no-data", "--channels", "int8", "0.5", "--queries", "4"]
    argv = [str(noisy.folder), *FEW, *asked, "--attacker-data", "20", "all", "--draws", "3"]
    assert main(argv) == 0
    attacks = noisy.read_results()["attacks"]
    decoder, box = attacks["decoder/adaptive"], attacks["whitebox/no-data"]
    assert set(decoder["channels"]) == set(box["channels"]) == {"int8", "noise 0.5"}
    assert set(decoder["queries"]) == {"4"}
    assert set(decoder["attacker_data"]) == {"20"}
    assert "attacker_data" not in box, "who has no data cannot have fewer"
    assert decoder["draws"]["count"] == 3
    assert decoder["draws"]["ssim"]["mean"] == pytest.approx(decoder["ssim"]["mean"], abs=1e-6)
    for each in (decoder["channels"]["int8"], decoder["queries"]["4"], decoder["attacker_data"]["20"]):
        assert each["leak"].keys() >= {"ssim", "mse"}
    assert 0 <= decoder["channels"]["int8"]["accuracy"] <= 1
    before = noisy.results.read_bytes()
    capsys.readouterr()
    assert main(argv) == 0
    assert noisy.results.read_bytes() == before
    assert main([*argv, "--channels", "int8", "fp16"]) == 0
    assert set(noisy.read_results()["attacks"]["decoder/adaptive"]["channels"]) == {"int8", "noise 0.5", "fp16"}


def test_a_deterministic_run_needs_neither_draws_nor_queries(config: Make, run_of: RunOf) -> None:
    run = run_of(config())
    assert main([str(run.folder), *FEW, "--attacks", "whitebox/paper", "--draws", "5", "--queries", "1", "10"]) == 0
    record = run.read_results()["attacks"]["whitebox/paper"]
    assert "draws" not in record
    assert "queries" not in record
    assert not run.read_results()["warnings"]
    asked = AttackConfig(attacks=["whitebox/paper"], samples=6, budget="fast", draws=5, queries=[1, 10])
    assert attacked_already(run, asked)


def test_warnings_say_a_figure(attacked: dict[str, Any]) -> None:
    results = attacked
    assert any("one draw" in warning for warning in results["warnings"])
    attacks = results["attacks"]
    attacks["decoder/adaptive"]["ssim"]["mean"] = 0.9
    attacks["decoder/adaptive"]["attacker_data"] = {"100": {"ssim": {"mean": 0.5}}, "1000": {"ssim": {"mean": 0.8}}}
    attacks["whitebox/paper"]["stopped"] = True
    said = "\n".join(warnings_of(results))
    assert "decoder/adaptive recovers SSIM 0.90" in said
    assert "gradients may be masked" in said
    assert "SSIM 0.800 with 1,000 inputs of its own, 0.900 with all" in said
    assert "whitebox/paper was stopped early" in said


def test_the_standard_suite_has_a_version_and_leaves_out_what_does_not_fit(
    noisy: Run, config: Make, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(noisy.folder), *FEW, "--attacks", "whitebox/paper"]) == 0
    assert "suite" not in noisy.read_results()
    assert main([str(noisy.folder), *FEW, "--attacks", "standard"]) == 0
    results = noisy.read_results()
    assert results["suite"] == {"name": "standard", "version": 1}
    assert results["does_not_fit"] == ["positions"]
    assert "positions" not in results["attacks"]
    for _ in range(2):
        refused_by(main, capsys, "positions cannot be tried on", str(noisy.folder), *FEW, "--attacks", "positions")
    sparse = run_of(config(release=["topk"], keep=0.1))
    assert main([str(sparse.folder), *FEW]) == 0
    assert "positions" in sparse.read_results()["worst_case"]["attacks"]


# ---------------------------------------------------------------------- a user's own attack

OWN = """
import torch
from sweetspot.attacks import Attack, Reconstruction
from sweetspot.options import option

class Flat(Attack):
    grey: float = option(0.5, "the grey that it answers with", least=0, most=1)

    def reconstruct(self, victim, z):
        x = torch.full((len(z), *victim.shape), self.grey)
        return Reconstruction(x, victim.residual(x, z), 0.0)

class Clash(Attack):
    samples: int = option(3, "how many")

class Plain:
    pass
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own_attacks.py"
    path.write_text(OWN)
    return str(path)


def test_an_attack_of_ones_own_joins_the_table_the_worst_case_and_the_page(
    own: str, config: Make, run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(config())
    argv = [str(run.folder), *FEW, "--attacks", f"{own}:Flat", "whitebox/paper", "--grey", "0.25"]
    assert main(argv) == 0
    assert "own_attacks/Flat" in capsys.readouterr().out
    results = run.read_results()
    record = results["attacks"]["own_attacks/Flat"]
    assert record["settings"]["grey"] == 0.25
    assert "own_attacks/Flat" in results["worst_case"]["attacks"]
    before = run.results.read_bytes()
    assert main(argv) == 0
    assert run.results.read_bytes() == before, "a finished attack is not repeated"
    assert main([*argv, "--grey", "0.75"]) == 0
    assert run.read_results()["attacks"]["own_attacks/Flat"]["settings"]["grey"] == 0.75
    page = write_report([run.folder.parent], tmp_path / "report.html").page
    assert "own_attacks" in page.read_text()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--attacks", "OWN:Flatt"], "has no class Flatt; did you mean Flat?"),
        (["--attacks", "OWN:Plain"], "is no attack: it must be a subclass of Attack"),
        (["--attacks", "OWN:Clash"], "has an option samples, and --samples is a flag already"),
        (["--attacks", "OWN:Flat", "--grey", "2"], "--grey must be at most 1; got 2"),
        (["--attacks", "nowhere.py:Flat"], "there is no file nowhere.py"),
        (["--attacks", "whitbox"], "did you mean whitebox?"),
        (["--draws", "0"], "--draws must be at least 1; got 0"),
        (["--queries", "0"], "--queries must be at least 1; got 0"),
        (["--attacker-data", "3"], "--attacker-data must be all, or whole numbers of at least 20; got 3"),
        (["--channels", "int4"], "--channels must be of fp32, fp16, bf16, int8, or positive noise levels; got int4"),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_one_line(
    argv: list[str], says: str, own: str, config: Make, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(config())
    refused_by(main, capsys, says, str(run.folder), *(each.replace("OWN", own) for each in argv))


# ---------------------------------------------------------------------- what was done before


def test_a_condition_may_be_asked_for_on_fewer_inputs_than_the_attack(noisy: Run) -> None:
    asked = [str(noisy.folder), *FEW, "--attacks", "whitebox/no-data"]
    assert main([*asked, "--samples", "9"]) == 0
    assert main([*asked, "--queries", "4"]) == 0
    record = noisy.read_results()["attacks"]["whitebox/no-data"]
    assert (record["samples"], record["queries"]["4"]["samples"]) == (9, 6)
    assert len(record["queries"]["4"]["leaks"]["ssim"]) == 6


def test_conditions_of_a_weaker_attack_are_done_again_with_the_stronger_one(noisy: Run) -> None:
    asked = [str(noisy.folder), *FEW, "--attacks", "whitebox/no-data", "--queries", "4"]
    assert main(asked) == 0
    assert main([*asked, "--budget", "normal"]) == 0
    record = noisy.read_results()["attacks"]["whitebox/no-data"]
    assert record["queries"]["4"]["settings"]["budget"] == "normal"
    before = noisy.results.read_bytes()
    assert main(asked) == 0
    assert noisy.results.read_bytes() == before, "a weaker one never replaces a stronger one"


def test_an_attack_that_has_nothing_to_go_by_under_a_condition_is_left_out_there(config: Make, run_of: RunOf) -> None:
    run = run_of(config(release=["dropout"]))
    argv = [str(run.folder), *FEW, "--attacks", "positions", "--queries", "4", "--channels", "0.5"]
    assert main(argv) == 0
    record = run.read_results()["attacks"]["positions"]
    assert record["not_under"] == ["channels noise 0.5", "queries 4"]
    assert "queries" not in record
    before = run.results.read_bytes()
    assert main(argv) == 0
    assert run.results.read_bytes() == before


def test_answers_for_other_numbers_of_queries_join_those_that_are_there(noisy: Run) -> None:
    for queries in ("4", "2"):
        assert main([str(noisy.folder), *FEW, "--attacks", "whitebox/paper", "--queries", queries]) == 0
    results = noisy.read_results()
    assert set(results["attacks"]["gallery"]["queries"]) == set(results["certificate"]["for_queries"]) == {"2", "4"}


def test_one_more_attack_leaves_a_stronger_floor_as_it_is(noisy: Run) -> None:
    few = [str(noisy.folder), "--device", "cpu", "--attacks"]
    assert main([*few, "whitebox", "--samples", "9", "--budget", "normal"]) == 0
    before = noisy.read_results()["attacks"]["label"]
    assert main([*few, "decoder", "--samples", "6", "--budget", "fast"]) == 0
    after = noisy.read_results()["attacks"]["label"]
    assert (after["samples"], after["settings"]) == (9, before["settings"])
    assert (len(before["others"]), len(after["others"])) == (1, 2)
    assert all(len(each["ssim"]) == 9 for each in after["others"])


def test_a_deterministic_release_of_ones_own_is_not_attacked_for_ever(
    config: Make, run_of: RunOf, tmp_path: Path
) -> None:
    own = tmp_path / "own_release.py"
    own.write_text(
        "from sweetspot import Release\nclass Double(Release):\n    def forward(self, z):\n        return 2 * z\n"
    )
    run = run_of(config(release=[f"{own}:Double"]))
    argv = [str(run.folder), *FEW, "--attacks", "whitebox/paper", "--draws", "3"]
    assert main(argv) == 0
    before = run.results.read_bytes()
    assert main(argv) == 0
    assert run.results.read_bytes() == before
    assert run.read_results()["warnings"] == []


def test_draws_count_behind_a_noisy_channel_of_a_quiet_run(config: Make, run_of: RunOf) -> None:
    run = run_of(config())
    argv = ["--attacks", "whitebox/paper", "--draws", "3", "--channels", "0.5", "int8"]
    assert main([str(run.folder), *FEW, *argv]) == 0
    channels = run.read_results()["attacks"]["whitebox/paper"]["channels"]
    assert channels["noise 0.5"]["draws"]["count"] == 3
    assert "draws" not in channels["int8"]


def test_label_only_attackers_may_be_named_beside_others_and_not_alone(
    config: Make, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(config())
    refused_by(main, capsys, "label is run beside every other attack", str(run.folder), "--attacks", "label")
    assert main([str(run.folder), *FEW, "--attacks", "label", "whitebox/paper"]) == 0
    assert list(run.read_results()["attacks"]) == ["prototype", "label", "whitebox/paper", "gallery"]
