"""Attacks without a run: any two modules, as a call and as a command, with the same figures as evaluate.py."""

from __future__ import annotations

import copy
import functools
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import sweetspot
import sweetspot.evaluations.images as images
from sweetspot.__main__ import main
from sweetspot.attacks import Victim
from sweetspot.attacks.descent import Descent
from sweetspot.commands.attack import parsed_config
from sweetspot.commands.evaluate import main as evaluate_main
from sweetspot.datamodules.npz import npz as npz_arrays
from sweetspot.datamodules.tensors import TensorDataModule
from sweetspot.errors import UserError
from sweetspot.evaluations.audit import Audit, attack
from sweetspot.evaluations.dispatch import evaluate
from sweetspot.evaluations.models import subject_of
from sweetspot.lightning_modules.defences.releases import Gaussian
from sweetspot.lightning_modules.networks.foreign import load_model
from sweetspot.lightning_modules.networks.split import Standardise
from sweetspot.registry import load_file
from sweetspot.reports.page import write_report
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train
from tests.conftest import refused_by
from tests.documents import commands, snippets, write_files
from tests.weak_attacks import weaken

Make = Callable[..., TrainConfig]
FEW: dict[str, Any] = {"samples": 6, "budget": "fast", "device": "cpu"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch)


def foreign() -> tuple[nn.Module, nn.Module]:
    """A client and a server that are no network of ours, in training mode, half of it frozen."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
    encoder[0].requires_grad_(False)
    return encoder, nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 7 * 7, 3))


def images_of(count: int, first: int = 0) -> tuple[Tensor, Tensor]:
    """Images whose class is a bright row; other ones from another `first` on."""
    generator = torch.Generator().manual_seed(first)
    y = torch.arange(count) % 3
    x = 0.3 * torch.rand(count, 1, 16, 16, generator=generator)
    x[torch.arange(count), 0, 4 + 4 * y] = 1
    return x, y


@functools.cache
def audited() -> Audit:
    """An audit of the standard suite, made once: tests look at it and leave it as it is."""
    return attack(*foreign(), test=images_of(20), attacker=images_of(40, 1), **FEW)


@pytest.fixture
def audit() -> Audit:
    return audited()


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """What attacks found, without how long they took."""
    names = ("attacks", "worst_case", "certificate", "cost", "warnings", "random_release", "does_not_fit", "suite")
    kept = copy.deepcopy({name: results[name] for name in names if name in results})
    for each in kept["attacks"].values():
        del each["seconds"], each["environment"]
        for condition in (*each.get("queries", {}).values(), *each.get("channels", {}).values()):
            condition.pop("seconds", None)
            condition.pop("environment", None)
    return kept


# ---------------------------------------------------------------------- what comes out


@pytest.mark.parametrize(
    "fields", [{}, {"lam": 0, "bottleneck": "8", "release": ["gaussian"], "sigma": 1.0}], ids=["plain", "noisy"]
)
def test_the_call_gives_what_evaluate_gives_to_the_last_bit(fields: dict[str, Any], config: Make) -> None:
    chosen = config(**fields)
    run = Run(Path(chosen.out) / train(chosen)["name"])
    asked = AttackConfig(samples=6, budget="fast", device="cpu", draws=2, queries=[1, 3])
    expected = evaluate(run, asked)
    victim = Victim.from_module(load_module(run.checkpoint))
    data: TensorDataModule = images.data_of(expected, victim, None, None)
    found = attack(
        victim.encoder, victim.head, data.test, data.train, victim.release, draws=2, queries=[1, 3], **FEW
    ).results  # fmt: skip
    assert found["utility"] == expected["utility"]
    assert found["separability"] == expected["separability"]
    ours, theirs = timeless(found), timeless(expected)
    ours["warnings"] = [each for each in ours["warnings"] if "guessing" not in each]  # which audits alone are told
    assert ours["attacks"].keys() == theirs["attacks"].keys()
    for key in theirs:
        assert ours[key] == theirs[key], key
    assert (found["certificate"] is None) == (not fields)


def test_modules_torch_and_random_states_are_left_as_they_were() -> None:
    encoder, head = foreign()
    before = copy.deepcopy((encoder.state_dict(), head.state_dict()))
    flags = [parameter.requires_grad for part in (encoder, head) for parameter in part.parameters()]
    head.eval()
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    attack(encoder, head, images_of(20), images_of(40, 1), attacks=["decoder", "whitebox/no-data"], **FEW)
    assert torch.equal(torch.rand(3), expected)
    assert not torch.are_deterministic_algorithms_enabled()
    assert encoder.training
    assert encoder[1].training  # type: ignore[index]
    assert not head.training
    assert [parameter.requires_grad for part in (encoder, head) for parameter in part.parameters()] == flags
    assert all(parameter.grad is None for parameter in encoder.parameters())
    for part, state in zip((encoder, head), before, strict=True):
        assert all(torch.equal(part.state_dict()[name], value) for name, value in state.items())


def test_an_audit_is_a_table_and_says_its_leak(audit: Audit) -> None:
    text = repr(audit)
    assert max(map(len, text.splitlines())) <= 80
    for key in audit.results["attacks"]:
        assert key in text
    assert "worst case" in text
    floor = max(audit.results["attacks"][key]["ssim"]["mean"] for key in ("prototype", "label"))
    assert audit.leak == audit.worst_case["leak"]["ssim"]["mean"]
    assert audit.leak is not None
    assert audit.leak <= (audit.worst_case["ssim"]["mean"] - floor) / (1 - floor) + 1e-6, "against as many floors"
    assert audit.results["suite"] == {"name": "standard", "version": 1}
    assert audit.results["cost"]["client_parameters"] == 4 * 9 + 4 + 8


def test_in_a_notebook_it_has_pictures_and_needs_nothing_else(audit: Audit) -> None:
    html = audit._repr_html_()
    assert html.count("<tr>") == len(audit.results["attacks"]) + 1, "a head, an attack a row without gallery, the worst"
    assert re.search(r'<img src="data:image/webp;base64,[A-Za-z0-9+/=]{100,}"', html)
    assert "from above: original, prototype" in html
    assert not re.search(r'(src|href)="(?!data:)', html)
    odd = Audit({**audit.results, "model": {**audit.results["model"], "name": "<script>"}}, None, {})
    assert "<script>" not in odd._repr_html_()


def test_the_page_and_the_folder_are_those_of_a_run(audit: Audit, tmp_path: Path, config: Make) -> None:
    page = audit.page(tmp_path / "audit.html")
    html = page.read_text("utf-8")
    assert "trained elsewhere" in html
    assert "Audit: as given" in html
    assert not re.search(r'(src|href)="(https?:)?//', html)
    assert list(tmp_path.glob("audit.*")) == [page], "no tables beside it"
    folder = audit.save(tmp_path / "runs" / audit.results["name"])
    assert Run(folder).read_results() == json.loads(json.dumps(audit.results))
    assert (folder / "recovered.png").is_file()
    chosen = config(attacks=["whitebox/paper"], samples=6)
    trained = train(chosen)["name"]
    report = write_report([tmp_path / "runs"], tmp_path / "both.html")
    assert {run.name for run in report.gathered.runs} == {folder.name, trained}
    assert len(report.settings) == 2, "an audit is no cell of a grid of runs"
    assert not report.gathered.skipped
    assert "trained elsewhere" in (tmp_path / "both.html").read_text("utf-8")


def test_an_attacker_without_data_runs_what_needs_none_and_says_so(tmp_path: Path) -> None:
    audit = attack(*foreign(), test=images_of(20), **FEW)
    assert list(audit.results["attacks"]) == ["whitebox/paper", "whitebox/no-data", "gallery"]
    assert audit.leak is None
    assert audit.results["audit"]["attacker"] == "without data"
    assert "decoder/adaptive" in audit.results["needs_data"]
    assert "suite" not in audit.results, "it did not go through the suite"
    assert "server_gain" not in audit.results["cost"]
    assert "no leak" in " ".join(repr(audit).split())
    assert audit.worst_case["ssim"]["mean"] > 0
    assert "is not known" in audit.page(tmp_path / "a.html").read_text("utf-8")
    with pytest.raises(UserError, match=r"decoder/adaptive need inputs of the attacker's own"):
        attack(*foreign(), test=images_of(20), attacks=["decoder"], **FEW)


def test_a_gaussian_release_has_its_certificate_and_any_function_is_gone_through() -> None:
    noisy = attack(*foreign(), images_of(20), images_of(40, 1), Gaussian(sigma=2.0), "whitebox/paper", draws=2, **FEW)
    assert noisy.results["certificate"]["nats"] > 0
    assert noisy.results["attacks"]["whitebox/paper"]["draws"]["count"] == 2
    assert noisy.results["defence"]["release"][0] == {"name": "gaussian", "sigma": 2.0, "unit": "rms", "ramp": 1 / 3}
    assert "gaussian(2)" in repr(noisy)
    nothing = attack(*foreign(), images_of(20), images_of(40, 1), lambda z: 0 * z, ["decoder"], **FEW)
    answers = nothing.recovered["decoder/adaptive"]
    assert np.abs(answers - answers[:1]).max() < 1e-5, "nothing left the client, so all answers are the same"


def test_vectors_have_a_leak_by_cosine_similarity() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 5), torch.arange(60) % 2
    x[:, 0] += 4.0 * y
    audit = attack(
        nn.Linear(5, 4), nn.Linear(4, 2), (x[:20], y[:20]), (x[20:], y[20:]), attacks=["whitebox", "decoder"], **FEW
    )  # fmt: skip
    assert audit.leak == audit.worst_case["leak"]["mcs"]["mean"]
    assert "MCS" in repr(audit)
    assert "<img" not in audit._repr_html_()


def test_what_looks_wrong_is_warned_of() -> None:
    x, y = images_of(40)
    audit = attack(*foreign(), (x[:20], (y[:20] + 1) % 3), (x, y), attacks=["whitebox/paper"], **FEW)
    warned = " ".join(audit.results["warnings"])
    assert "20 of 20 test inputs are among the attacker's own" in warned


# ---------------------------------------------------------------------- wrong inputs


class Two(nn.Module):
    """An encoder that returns a pair."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


X, Y = images_of(20)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "range": ({"test": (3 * X, Y)}, r"test's x must lie in \[0, 1\]; got values in \[.*, 3\]"),
    "attacker": ({"attacker": (X - 1, Y)}, r"attacker's x must lie in \[0, 1\]"),
    "nan": ({"test": (X * float("nan"), Y)}, "test's x holds NaN"),
    "shape": ({"test": (X[:, 0], Y)}, r"test's x must have the shape \(N, C, H, W\) or \(N, d\); got \(20, 16, 16\)"),
    "last": ({"test": (X.permute(0, 2, 3, 1), Y)}, "channels come first"),
    "whole": ({"test": (X.long(), Y)}, "must be uint8 or float; got int64"),
    "floats": ({"test": (X, Y.float())}, r"test's y must hold class indices.*got float32 of shape \(20,\)"),
    "one-hot": ({"test": (X, torch.eye(3).long()[Y])}, r"class indices.*got int64 of shape \(20, 3\)"),
    "negative": ({"test": (X, Y - 1)}, "test's y has the label -1"),
    "count": ({"test": (X, Y[:5])}, "as many labels as inputs; got 20 inputs and 5 labels"),
    "pair": ({"test": X}, r"test must be a pair \(x, y\)"),
    "few": ({"attacker": (X[:5], Y[:5])}, "attacker must hold at least 20 inputs; got 5"),
    "other shape": ({"attacker": (X[:, :, :8], Y)}, "inputs of one shape"),
    "class": ({"attacker": (X, Y * 0)}, "attacker must hold inputs of every class in test; it has none of class 1"),
    "classes": ({"test": (X, Y + 4)}, r"logits \(N, K\) for K ≥ 7 classes, as y has them; got \(2, 3\)"),
    "tuple": ({"encoder": Two()}, "the encoder must return one tensor; got tuple"),
    "no run": ({"head": nn.Linear(5, 3)}, r"the head does not run on \(2, 4, 7, 7\)"),
    "module": ({"encoder": "lenet"}, "encoder must be a torch.nn.Module; got str"),
    "release": ({"release": 3}, "release must be a Release, a module or a function of z; got int"),
    "attack": ({"attacks": "whitebx"}, r"did you mean whitebox\?"),
    "text": ({"attacks": ["text"]}, "an audit is of images or vectors"),
    "option": ({"depth": 3}, "--depth is an option of no attack"),
    "device": ({"device": "tpu9"}, "--device tpu9 cannot be used here"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_one_line(wrong: str) -> None:
    given, says = WRONG[wrong]
    encoder, head = foreign()
    sound: dict[str, Any] = {"encoder": encoder, "head": head, "test": (X, Y), **FEW}
    with pytest.raises(UserError, match=says) as error:
        sweetspot.attack(**{**sound, **given})
    assert "\n" not in str(error.value)
    assert encoder.training, "what was refused is left as it was, too"


# ---------------------------------------------------------------------- kept in a folder


def test_the_same_call_finds_an_audit_and_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {"test": images_of(20), "attacker": images_of(40, 1), "out": tmp_path, **FEW}
    asked["attacks"] = ["whitebox/paper", "decoder", "whitebox/no-data"]

    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("sweetspot.attacks.decoder.training.InverseModule.training_step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            attack(*foreign(), **asked)
    (folder,) = tmp_path.glob("audit-*")
    done = Run(folder).read_results()["attacks"]
    assert "whitebox/paper" in done
    assert "decoder/adaptive" not in done
    whole = attack(*foreign(), **asked)
    assert whole.folder == folder
    assert whole.results["attacks"]["whitebox/paper"] == done["whitebox/paper"], "not repeated"
    assert timeless(whole.results) == timeless(attack(*foreign(), **{**asked, "out": None}).results)
    with monkeypatch.context() as patched:
        patched.setattr(Descent, "run", killed)
        again = attack(*foreign(), **asked)
    assert again.results == whole.results
    assert repr(again) == repr(whole)
    encoder, head = foreign()
    with torch.no_grad():
        encoder[0].weight.mul_(2)  # type: ignore[index]
    attack(encoder, head, **{**asked, "attacks": ["whitebox/paper"]})
    assert len([*tmp_path.glob("audit-*")]) == 2, "other weights are another audit"


def test_after_ctrl_c_an_audit_in_memory_holds_what_was_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweetspot.attacks.decoder.training.InverseModule.training_step", stopped)
    asked = {"attacks": ["whitebox/paper", "decoder"], **FEW}
    audit = attack(*foreign(), images_of(20), images_of(40, 1), **asked)
    assert "whitebox/paper" in audit.results["attacks"]
    assert "decoder/adaptive" not in audit.results["attacks"]
    assert "whitebox/paper" in repr(audit)


# ---------------------------------------------------------------------- the command

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 5, stride=4), nn.ReLU())
        self.wide = nn.Linear(4 * 6 * 6, 8)
        self.out = nn.Linear(8, classes)

    def forward(self, x):
        h = self.stem(x)
        h = torch.flatten(h, 1)
        return self.out(torch.relu(self.wide(h)))


def build(classes):
    return Model(classes)
"""


@pytest.fixture
def given(tmp_path: Path, npz: Callable[..., Path]) -> list[str]:
    """A command line about a model of a user's own, with its weights, on small images."""
    file = tmp_path / "my_model.py"
    file.write_text(MODEL)
    torch.manual_seed(0)
    torch.save(load_file(str(file)).build(3).state_dict(), tmp_path / "w.pt")
    paths = ["--weights", str(tmp_path / "w.pt"), "--data", str(npz()), "--out", str(tmp_path / "runs")]
    return [f"{file}:build", *paths, "--samples", "6", "--budget", "fast", "--device", "cpu"]


def test_the_command_audits_a_model_of_ones_own_and_finds_it_again(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [*given, "--cut", "stem", "--attacks", "whitebox/paper", "decoder"]
    assert main(["attack", *argv]) == 0
    said = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").glob("audit-images-build-stem-s0-*")
    assert f"audit  {folder}" in said
    results = Run(folder).read_results()
    assert list(results["attacks"]) == ["prototype", "label", "whitebox/paper", "decoder/adaptive", "gallery"]
    assert results["model"] == {"name": argv[0], "cut": "stem", "head": "default"}
    assert results["cost"]["client_parameters"] == 4 * 25 + 4
    assert all((folder / name).is_file() for name in ("recovered.png", "originals.npz", "audit.html"))
    with monkeypatch.context() as patched:
        patched.setattr(Descent, "run", None)
        before = (folder / "results.json").read_bytes()
        assert main(["attack", *argv, "--page", str(tmp_path / "mine.html")]) == 0
    assert "already done" in capsys.readouterr().out
    assert (folder / "results.json").read_bytes() == before
    assert "w.pt" in (tmp_path / "mine.html").read_text("utf-8")
    refused_by(evaluate_main, capsys, "is an audit, and no run", str(folder))
    assert main(["report", str(tmp_path / "runs")]) == 0
    assert "Audit: as given" in capsys.readouterr().out


def test_the_command_gives_what_the_call_gives(given: list[str], tmp_path: Path) -> None:
    file = given[0].partition(":")[0]
    argv = [*given, "--cut", "stem", "--attacks", "whitebox/paper", "--standardise", "0.1", "0.2", "--draws", "2"]
    assert main(["attack", *argv, "--release", "gaussian", "--sigma", "0.5"]) == 0
    (folder,) = (tmp_path / "runs").glob("audit-*")
    model = load_file(file).build(3)
    model.load_state_dict(torch.load(tmp_path / "w.pt"))
    data = npz_arrays(tmp_path / "images.npz")
    encoder = nn.Sequential(Standardise([0.1], [0.2]), model.stem)
    head = nn.Sequential(nn.Flatten(), model.wide, nn.ReLU(), model.out)
    expected = attack(
        encoder, head, (data.x_test, data.y_test), (data.x_train, data.y_train), Gaussian(sigma=0.5, unit="raw"),
        "whitebox/paper", draws=2, **FEW,
    ).results  # fmt: skip
    found = Run(folder).read_results()
    assert found["utility"] == expected["utility"]
    for key in ("prototype", "label", "whitebox/paper", "gallery"):
        assert found["attacks"][key]["scores"] == expected["attacks"][key]["scores"], key
    assert found["certificate"] == expected["certificate"]


def test_audits_of_several_cuts_weights_and_networks_of_ours_are_cells_of_one_page(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for cut in ("stem", "wide"):
        assert main(["attack", *given, "--cut", cut, "--attacks", "whitebox/paper"]) == 0
    model = load_file(given[0].partition(":")[0]).build(3)
    torch.save(model.state_dict(), tmp_path / "other.pt")
    other = [str(tmp_path / "other.pt") if each.endswith("w.pt") else each for each in given]
    assert main(["attack", *other, "--cut", "stem", "--attacks", "whitebox/paper"]) == 0
    ours = ["lenet", *given[3:], "--cut", "2", "--attacks", "whitebox/paper"]
    assert main(["attack", *ours]) == 0
    report = write_report([tmp_path / "runs"], tmp_path / "all.html")
    assert not report.gathered.skipped
    assert sorted(len(setting.cells) for setting in report.settings) == [1, 3]
    html = (tmp_path / "all.html").read_text("utf-8")
    assert "other.pt" in html
    assert "cut wide" in html
    assert (tmp_path / "all.csv").read_text("utf-8").count("\n") == 5


def test_a_killed_command_goes_on(given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [*given, "--cut", "stem", "--attacks", "whitebox/paper", "decoder"]
    with monkeypatch.context() as patched:
        where = "sweetspot.attacks.decoder.training.InverseModule.training_step"
        patched.setattr(where, lambda *_: signal.raise_signal(signal.SIGTERM))
        assert main(["attack", *argv]) == 143
    (folder,) = (tmp_path / "runs").glob("audit-*")
    done = Run(folder).read_results()["attacks"]["whitebox/paper"]
    assert main(["attack", *argv]) == 0
    attacks = Run(folder).read_results()["attacks"]
    assert attacks["whitebox/paper"] == done
    assert "decoder/adaptive" in attacks


def test_the_command_lists_where_a_model_can_be_cut(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", *given, "--cut", "?"]) == 0
    assert any(line.startswith("stem ") for line in capsys.readouterr().out.splitlines())


def test_a_page_names_no_tables_that_are_not_there(audit: Audit, tmp_path: Path) -> None:
    assert "lie beside this page" not in audit.page(tmp_path / "page.html").read_text()


def test_the_command_leaves_out_damaged_images_where_told(given: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("L", (28, 28), number).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "a" / "3.png").write_bytes(b"no image")
    argv = [given[0], "--cut", "stem", "--data", str(tmp_path / "photos"), "--classes", "3"]
    with pytest.raises(UserError, match="--skip-corrupt"):
        subject_of(parsed_config(argv))
    data = subject_of(parsed_config([*argv, "--skip-corrupt"])).data
    assert len(data.train[0]) + len(data.test[0]) == 19


def test_a_wrong_command_is_one_line(given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(says: str, *argv: str) -> None:
        refused_by(lambda words: main(["attack", *words]), capsys, says, *argv)

    at = ["--cut", "stem"]
    refused("--cut is needed", *given)
    refused("stemm", *given, "--cut", "stemm")
    refused("--standardise must be data, none, or a mean", *given, *at, "--standardise", "0.1")
    refused("one for each of 1 channels", *given, *at, "--standardise", "0.5,0.5,0.5", "0.5")
    refused("--sigma means nothing for none", *given, *at, "--sigma", "1")
    refused("--page must end in .html", *given, *at, "--page", str(tmp_path / "page.txt"))
    refused("--classes must be at least the 3 of the data", *given, *at, "--classes", "2")
    refused("does not fit Model", *given, *at, "--classes", "5")
    refused("there is no file", given[0], "--weights", "no.pt", *given[3:], *at)
    refused("nothing to do", *given, *at, "--attacks", "none")
    refused("there is no flag --wieghts (did you mean --weights?)", *given, *at, "--wieghts", "w.pt")
    assert not (tmp_path / "runs").exists()


SNIPPETS = [code for code in snippets() if "from_checkpoint" not in code]


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_call_in_the_documents_works(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (x, y), (x2, y2) = images_of(12), images_of(60, first=1)
    encoder, head = foreign()
    scope: dict[str, Any] = {"encoder": encoder, "head": head, "x": x, "y": y, "x2": x2, "y2": y2}
    scope["torchvision"] = pytest.importorskip("torchvision")
    exec(code, scope)
    if "audit.page" in code:
        assert "audit" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    else:
        image = torch.rand(1, 3, 224, 224)
        assert torch.equal(scope["head"].eval()(scope["encoder"].eval()(image)), scope["model"].eval()(image))


def test_an_attack_from_python_in_the_documents_works(config: Make) -> None:
    (code,) = (each for each in snippets() if "from_checkpoint" in each)
    chosen = config()
    run, x2 = Path(chosen.out) / train(chosen)["name"], torch.rand(30, 1, 28, 28)
    scope: dict[str, Any] = {"run": run, "x2": x2, "y2": torch.arange(30) % 3, "z": torch.rand(2, 16, 5, 5)}
    exec(code, scope)
    assert scope["recovered"].shape == (2, 1, 28, 28)


@pytest.mark.parametrize("argv", commands("attack"), ids=" ".join)
def test_a_command_of_the_documents_runs(
    argv: list[str], npz: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written, but on a few small images, with fresh weights and one weak attack."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    size = 64 if "--image-size" in argv else 32
    images = np.random.default_rng(0).integers(0, 255, (60, size, size, 3), dtype=np.uint8)
    torch.save(load_model(argv[0], (3, size, size), 3).state_dict(), argv[argv.index("--weights") + 1])
    argv = [*argv, "--data", str(npz(x_train=images, x_test=images[:30])), "--attacks", "whitebox/paper"]
    assert main(["attack", *argv, "--samples", "3", "--device", "cpu", "--out", "runs"]) == 0
    assert [*(tmp_path / "runs").glob("audit-*/audit.html")]
