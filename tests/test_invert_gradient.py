"""`invert.py gradient` as a user meets it: every example of its help, and one line for what is wrong."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from safetensors.torch import save_file

from sweetspot.attacks.gradients.activations import as_activation
from sweetspot.attacks.gradients.federated import chosen_weights, client_gradient
from sweetspot.commands.invert import GRADIENT_EXAMPLES, main
from tests.conftest import refused_by
from tests.documents import commands

OF_HELP = [
    shlex.split(line.split("    ")[0])[3:] for line in GRADIENT_EXAMPLES.replace("\n  ", "\n").strip().splitlines()
]
OF_DOCUMENTS = [argv[1:] for argv in commands("invert") if argv[0] == "gradient"]
EXAMPLES = [*OF_HELP, *(argv for argv in OF_DOCUMENTS if argv not in OF_HELP)]


def gradient(*argv: Any) -> int:
    return main(["gradient", "--device", "cpu", *map(str, argv)])


def leak(path: Path, x: torch.Tensor, **changed: Any) -> Path:
    """A leak through tanh of samples (B, 12)."""
    weights = chosen_weights(12, 600, seed=1)
    y = torch.arange(len(x)).double()
    sent = client_gradient(x, y, weights, as_activation("tanh"))
    held = {"w": weights.w, "a": weights.a, "bias": weights.bias, "grad_w": sent.w, "grad_a": sent.a, **changed}
    torch.save(held, path / "gradient.pt")
    return path / "gradient.pt"


@pytest.mark.parametrize("argv", EXAMPLES, ids=" ".join)
def test_an_example_runs(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, npz: Any) -> None:
    """As written, but on a small network and, for a dataset that may not be here, on small images."""
    monkeypatch.chdir(tmp_path)
    leak(tmp_path, torch.eye(2, 12, dtype=torch.float64))
    small = {"--width": "800", "--dataset": str(npz(classes=4))}
    argv = [small.get(before, argument) for before, argument in zip(["", *argv], argv, strict=False)]
    assert gradient(*argv) == 0
    for flag in ("--json", "--figure"):
        if flag in argv:
            assert Path(argv[argv.index(flag) + 1]).stat().st_size > 0


def test_the_result_is_printed_written_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figure = tmp_path / "found.json", tmp_path / "found.png"
    assert gradient("--width", 600, "--dim", 12, "--out", out, "--figure", figure) == 0
    shown = capsys.readouterr().out
    assert "polished" in shown
    assert "exact" in shown
    found = json.loads(out.read_text())
    assert found["recovered"]["polished"]["worst"] < 1e-9
    assert found["environment"]["seed"] == 0
    assert imread(figure)[..., :3].min() < 0.5


def test_a_leak_is_inverted_without_its_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = leak(tmp_path, torch.eye(3, 12, dtype=torch.float64))
    assert gradient("--states", states, "--figure", tmp_path / "found.png") == 0
    shown = capsys.readouterr().out
    assert "B = 3" in shown
    assert "exact" in shown


@pytest.mark.parametrize(("loss", "factor"), [("sum", 2.0), ("mean", 2 / 3)])
def test_labels_of_another_loss_are_not_called_exact(
    loss: str, factor: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.eye(3, 12, dtype=torch.float64)
    states, out = leak(tmp_path, x), tmp_path / "found.json"
    held = torch.load(states)
    torch.save({**held, "grad_w": factor * held["grad_w"], "grad_a": factor * held["grad_a"]}, states)
    assert gradient("--states", states) == 0
    shown = capsys.readouterr().out
    assert "exact samples: " in shown
    assert "exact: " not in shown
    assert f"--loss half-sum was assumed; --loss {loss} makes them whole numbers" in shown
    assert gradient("--states", states, "--loss", loss, "--json", out) == 0
    assert "exact: " in capsys.readouterr().out
    assert sorted(json.loads(out.read_text())["recovered"]["polished"]["y"]) == pytest.approx([0, 1, 2], abs=1e-6)


def torch_leak(path: Path, loss: Any, bias: float = 0.3) -> Path:
    """A leak as torch writes it: single precision is not enough, so in double; the last layer is (1, m)."""
    generator = torch.Generator().manual_seed(4)
    first, last = torch.nn.Linear(12, 600, bias=False).double(), torch.nn.Linear(600, 1, bias=False).double()
    with torch.no_grad():
        first.weight.copy_(torch.randn(600, 12, generator=generator))
        last.weight.copy_(torch.randn(1, 600, generator=generator).sign() / 600**0.5)
    x = torch.nn.functional.normalize(torch.randn(3, 12, generator=generator).double(), dim=1)
    y = torch.tensor([1.0, -1.0, 1.0]).double()
    loss(last(torch.tanh(first(x)))[:, 0] + bias, y).backward()
    held = {"w": first.weight, "a": last.weight, "grad_w": first.weight.grad, "grad_a": last.weight.grad}
    kept = {name: value.detach() for name, value in held.items() if value is not None}
    torch.save({**kept, "bias": bias}, path / "leaked.pt")
    return path / "leaked.pt"


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("mean", torch.nn.MSELoss()),
        ("sum", torch.nn.MSELoss(reduction="sum")),
        ("half-sum", lambda f, y: (f - y).square().sum() / 2),
    ],
)
def test_the_loss_is_found_where_labels_are_known(
    name: str, loss: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states, out = torch_leak(tmp_path, loss), tmp_path / "found.json"
    assert gradient("--states", states, "--json", out, "--labels", -1, 1) == 0
    shown = capsys.readouterr().out
    assert f"the client's loss is {name}: by it all labels are of -1, 1" in shown
    assert "exact: " in shown
    found = json.loads(out.read_text())
    assert found["loss"] == {"name": name, "found": [name]}
    assert sorted(found["recovered"]["polished"]["y"]) == pytest.approx([-1, 1, 1], abs=1e-6)


def test_a_gradient_in_single_precision_is_counted_and_labelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states, out = torch_leak(tmp_path, torch.nn.MSELoss()), tmp_path / "found.json"
    held = torch.load(states)
    torch.save({key: value.float() if key != "bias" else value for key, value in held.items()}, states)
    assert gradient("--states", states, "--labels", -1, 1, "--json", out) == 0
    shown = capsys.readouterr().out
    assert "B = 3" in shown
    assert "the client's loss is probably mean: by it all labels are near -1, 1" in shown
    assert "exact" not in shown
    found = json.loads(out.read_text())
    assert sorted(found["recovered"]["polished"]["y"]) == pytest.approx([-1, 1, 1], abs=1e-3)


def test_labels_that_no_squared_loss_gives_are_not_called_exact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = torch_leak(tmp_path, lambda f, y: torch.nn.functional.softplus(-y * f).sum())  # cross-entropy of ±1
    assert gradient("--states", states, "--labels", -1, 1) == 0
    shown = capsys.readouterr().out
    assert "exact samples: " in shown
    assert "exact: " not in shown
    assert "by no squared loss are all labels of those" in shown


def test_a_given_loss_is_kept_and_labels_then_judge_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = torch_leak(tmp_path, torch.nn.MSELoss(), bias=30.0)
    assert gradient("--states", states, "--labels", -1, 1, "--loss", "sum") == 0
    assert "exact samples: " in capsys.readouterr().out
    assert gradient("--states", states, "--labels", -1, 1, "--loss", "mean") == 0
    assert "exact: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"grad_b": torch.ones(600)}, "holds grad_b: biases that are trained are out of scope; in scope are networks"),
        ({"fc1.bias": torch.ones(600)}, "holds fc1.bias: biases that are trained are out of scope"),
        ({"w": torch.ones(6, 1, 5, 5)}, "w is (6, 1, 5, 5), as a convolution's; in scope are networks"),
        ({"a": torch.ones(10, 600)}, "a is (10, 600), of several outputs, as cross-entropy has them; in scope"),
        ({"conv.weight": torch.ones(6, 1, 5, 5)}, "conv.weight is (6, 1, 5, 5), as a convolution's"),
        ({"lr": torch.ones(1)}, "holds lr, which is none of w, a, grad_w, grad_a"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_out_of_scope_is_refused_with_what_is_in_it(
    changed: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = leak(tmp_path, torch.eye(2, 12, dtype=torch.float64), **changed)
    refused_by(main, capsys, says, "gradient", "--states", str(states))


def test_help_says_what_is_in_scope(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gradient", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "In scope are networks f(x) = Σ a·σ(w·x) + bias of two layers with one output, a squared loss" in shown


@pytest.mark.parametrize("loss", ["sum", "mean"])
def test_a_client_of_another_loss_is_played(loss: str, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert gradient("--width", 600, "--dim", 12, "--batch", 3, "--loss", loss, "--json", out) == 0
    found = json.loads(out.read_text())
    assert found["verdict"] == "exact"
    assert max(found["recovered"]["polished"]["label_error"]) < 1e-6


def test_true_labels_that_are_missed_are_not_called_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.eye(2, 12, dtype=torch.float64)
    states = leak(tmp_path, x)
    torch.save({**torch.load(states), "x": x, "y": torch.tensor([0.0, 2.0])}, states)
    assert gradient("--states", states) == 0
    assert "exact samples: " in capsys.readouterr().out


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_a_leak_may_lie_in_other_files(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = torch.load(leak(tmp_path, torch.eye(2, 12, dtype=torch.float64)))
    held["bias"] = torch.tensor(held["bias"])
    states = tmp_path / f"gradient{ending}"
    if ending == ".npz":
        np.savez(states, **held)
    else:
        save_file(held, states)
    assert gradient("--states", states) == 0
    assert "exact: " in capsys.readouterr().out


def test_a_width_that_is_small_is_warned_of_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert gradient("--width", 20, "--dim", 12, "--batch", 4) == 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines == ["warning: a width of 20 is small for 4 samples: recovery needs about 32"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--batch", "51"], "--batch 51 is larger than --dim 50"),
        (["--batch", "0"], "--batch must be at least 1"),
        (["--batch", "many"], "--batch must be a whole number; got many"),
        (["--width", "2"], "a width of 2 cannot determine 2 samples"),
        (["--depth", "1"], "--depth must be at least 2"),
        (["--activation", "swish"], "--activation must be one of square-cubic, tanh"),
        (["--activation", "linear"], "is linear: the gradient holds only"),
        (["--activation", "quadratic"], "the samples are not identifiable"),
        (["--noise", "-1"], "--noise must be a number of at least 0"),
        (["--noise", "nan"], "--noise must be"),
        (["--bias", "inf"], "--bias must be a finite number"),
        (["--clip", "0"], "--clip must be positive"),
        (["--prune", "1"], "--prune must be at least 0 and below 1"),
        (["--norm", "-1"], "--norm must be positive"),
        (["--source", "b"], "--source must be one of w, a"),
        (["--subspace", "all"], "--subspace must be one of span, moment"),
        (["--inputs", "cube"], "--inputs must be one of basis, sphere"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--same-label"], "give --dataset"),
        (["--dataset", "mnist-5k", "--dim", "3"], "leave --dim and --inputs out"),
        (["--dataset", "mist-5k"], "did you mean mnist-5k?"),
        (["--states", "nowhere.pt"], "--states nowhere.pt cannot be read"),
        (["--states", "nowhere.pt", "--noise", "1"], "leave --noise out"),
        (["--device", "warp"], "--device warp"),
        (["--out", "nowhere/found.json"], "--json nowhere/found.json: its folder is not there"),
        (["--figure", "found.xyz"], "--figure found.xyz must end in .png"),
        (["--figure", "found"], "--figure found must end in .png"),
        (["--labels", "1", "nan"], "--labels must be a finite number; got nan"),
        (["--loss", "huber"], "--loss must be one of half-sum, sum, mean; got huber"),
        (["--text", "a"], "--text"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_one_line(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused_by(main, capsys, says, "gradient", *argv)


DEPENDENT = torch.eye(1, 12, dtype=torch.float64) * torch.tensor([[1.0], [2.0]], dtype=torch.float64)
FINE = torch.eye(2, 12, dtype=torch.float64)


@pytest.mark.parametrize(
    ("x", "changed", "says"),
    [
        (DEPENDENT, {}, "the samples are linearly dependent"),
        (FINE, {"grad_w": torch.ones(600, 11)}, "grad_w is (600, 11)"),
        (FINE, {"grad_w": torch.full((600, 12), torch.nan)}, "grad_w holds NaN"),
        (FINE, {"grad_w": torch.zeros(600, 12)}, "the gradient is 0"),
        (FINE, {"grad_w": torch.randn(600, 12, generator=torch.Generator().manual_seed(0))}, ""),
    ],
    ids=["dependent", "shape", "NaN", "zero", "not a gradient"],
)
def test_a_gradient_that_cannot_be_inverted_is_one_line(
    x: torch.Tensor, changed: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = leak(tmp_path, x, **changed)
    if says:
        refused_by(main, capsys, says, "gradient", "--states", str(states), "--batch", "2")
        return
    assert gradient("--states", states, "--batch", 2) == 0
    assert "not recovered" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--help"], ["gradient", "--help"]], ids=" ".join)
def test_help_shows_the_examples(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "122")
    with pytest.raises(SystemExit):
        main(argv)
    shown = capsys.readouterr().out
    assert GRADIENT_EXAMPLES in shown
    assert ("--activation" in shown.split("examples:")[0]) == (argv[0] == "gradient")


def test_a_wrong_first_word_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    refused_by(main, capsys, "the first word must be text or gradient; got gradients", "gradients")
