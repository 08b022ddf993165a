"""Language models end to end: trained with a penalty on their cut layer, and their text recovered by invert.py."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from sweetspot.commands.invert import main
from sweetspot.commands.train import main as train_main
from sweetspot.evaluations.dispatch import evaluate
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.lightning_modules.split_module import SplitModule
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.checkpoints import load_checkpoint, load_module
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import build_language, train
from tests.attacks.text.conftest import Rotation
from tests.conftest import ROOT, refused_by
from tests.documents import commands

TEXTS = ["The value is a number.", "Numbers [red] and names: 42!"]


def invert(*argv: Any) -> int:
    return main(["text", "--device", "cpu", *map(str, argv)])


# ---------------------------------------------------------------------- training


def test_a_language_model_learns_beside_its_penalty(text_run: Path) -> None:
    results = json.loads((text_run / "results.json").read_text())
    history = results["training"]["history"]
    assert history[-1]["val/loss"] < history[0]["val/loss"]
    assert results["utility"]["perplexity"] < 300, "better than guessing among all tokens"
    assert 0 < results["utility"]["accuracy"] < 1
    assert results["defence"]["partners"] > 0
    assert results["data"]["tokenizer"].startswith("bpe-")


def test_a_stronger_penalty_pulls_positions_together(text_run: Path, text_config: Callable[..., TrainConfig]) -> None:
    weak = json.loads((text_run / "results.json").read_text())["separability"]["mean"]
    assert train(text_config(lam=10.0))["separability"]["mean"] < 0.7 * weak


def test_perplexity_is_the_exponential_of_the_mean_negative_log_likelihood(
    text_run: Path, text_config: Callable[..., TrainConfig]
) -> None:
    datamodule, _ = build_language(text_config())
    checkpoint = load_checkpoint(text_run / "last.ckpt")
    module = SplitModule(**checkpoint["hyper_parameters"])
    module.load_state_dict(checkpoint["state_dict"])
    x, y = datamodule.test
    with torch.no_grad():
        nll = -module.eval()(x).log_softmax(dim=-1).gather(2, y[..., None]).mean()
    results = json.loads((text_run / "results.json").read_text())
    assert results["utility"]["perplexity"] == pytest.approx(nll.exp().item(), rel=1e-4)


def test_the_same_seed_gives_the_same_weights_and_another_defence_others(
    text_config: Callable[..., TrainConfig],
) -> None:
    def weights(**fields: Any) -> dict[str, torch.Tensor]:
        chosen = text_config(epochs=1, **fields)
        state: dict[str, torch.Tensor] = load_checkpoint(Path(chosen.out) / train(chosen)["name"] / "last.ckpt")[
            "state_dict"
        ]
        return state

    first, again = weights(), weights(force=True)
    assert all(torch.equal(first[name], again[name]) for name in first)
    unicon = weights(defence="unicon")
    assert not all(torch.equal(first[name], unicon[name]) for name in first)


def test_a_cut_that_is_not_there_is_one_line(
    text_config: Callable[..., TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:

    argv = ["--network", "gpt2-tiny", "--dataset", text_config().dataset or "", "--vocabulary", "300", "--cut", "9"]
    assert train_main([*argv, "--out", text_config().out]) == 2
    assert "must be 0 to 4, last or final; got 9" in capsys.readouterr().err


def test_the_experiment_of_gpt2_tiny_is_a_language_run() -> None:
    written = yaml.safe_load((ROOT / "configs" / "gpt2_tiny.yaml").read_text())
    assert TrainConfig.of(**written).is_language
    through_noise = TrainConfig.of(**written, release=["gaussian"], sigma=1.0)
    assert through_noise.defence == "none", "noise alone is not MixCon with noise"
    assert not TrainConfig().is_language


# ---------------------------------------------------------------------- recovering text


@pytest.mark.parametrize("policy", ["hybrid", "sipit"])
def test_noise_free_states_give_the_text_back(
    text_run: Path, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    assert invert("--model", text_run, "--text", *TEXTS, "--policy", policy, "--cache", tmp_path, "--out", out) == 0
    found = json.loads(out.read_text())
    assert (found["em"], found["verified"], found["similarity"]) == (1, 1, 1)
    shown = capsys.readouterr().out
    assert TEXTS[1] in shown, "brackets are text, not markup"
    assert "EM 100.0 %" in shown


def test_the_text_comes_back_through_a_release_that_loses_nothing(
    text_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rotated(path: Path) -> SplitModule:
        module = load_module(path)
        module.defence.release = Chain(Rotation(128))
        return module

    monkeypatch.setattr("sweetspot.evaluations.leak.load_module", rotated)
    ids = torch.tensor([[5, 77, 120]])
    torch.save(rotated(text_run / "last.ckpt").encode(ids), tmp_path / "leaked.pt")
    out = tmp_path / "found.json"
    argv = ("--model", text_run, "--cache", tmp_path, "--out", out)
    assert invert(*argv, "--states", tmp_path / "leaked.pt") == 0
    assert json.loads(out.read_text())["prompts"][0]["tokens"] == ids[0].tolist()
    assert invert(*argv, "--text", TEXTS[0]) == 0
    found = json.loads(out.read_text())
    assert (found["em"], found["verified"]) == (1, 1)


def test_single_commit_runs_at_an_operating_point(text_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    argv = ("--policy", "single-commit", "--operating-point", "fast", "--out", out)
    assert invert("--model", text_run, "--text", "A name", *argv) == 0
    assert json.loads(out.read_text())["token_accuracy"] > 0
    assert invert("--model", text_run, "--text", "A name", *argv, "--text-loss", "scaled") == 0
    assert json.loads(out.read_text())["config"]["text_loss"] == "scaled"


def test_a_leaked_tensor_gives_a_text_and_whether_to_believe_it(
    text_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = load_checkpoint(text_run / "last.ckpt")
    module = SplitModule(**checkpoint["hyper_parameters"])
    module.load_state_dict(checkpoint["state_dict"])
    assert isinstance(module.network, SplitLanguageModel)
    with torch.no_grad():
        z = module.eval().network.encoder(torch.tensor([[5, 77, 120]]))
    torch.save(z, tmp_path / "leaked.pt")
    assert invert("--model", text_run, "--states", tmp_path / "leaked.pt", "--cache", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "3 of 3" in shown
    assert "yes" in shown
    torch.save(z + 0.5 * torch.randn(z.shape, generator=torch.Generator().manual_seed(0)), tmp_path / "noisy.pt")
    assert invert("--model", text_run, "--states", tmp_path / "noisy.pt", "--cache", tmp_path) == 0
    assert "up to token 0" in capsys.readouterr().out


def test_noise_hides_text_and_nothing_is_called_verified(text_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    argv = ("--noise", "4", "--dtype", "fp16", "--candidates", "50", "--beam", "2", "--cache", tmp_path, "--out", out)
    assert invert("--model", text_run, "--text", *TEXTS, *argv) == 0
    found = json.loads(out.read_text())
    assert found["verified"] == 0
    assert found["em"] == 0
    for prompt in found["prompts"]:
        assert prompt["confidence"] < 0.5
        assert len(prompt["probability"]) == len(prompt["tokens"])


def test_noise_has_the_unit_of_the_run(text_run: Path, tmp_path: Path) -> None:
    run, out = Run(Path(shutil.copytree(text_run, tmp_path / text_run.name))), tmp_path / "found.json"
    argv = ("--model", run.folder, "--text", "A name", "--noise", "1", "--cache", tmp_path, "--out", out)
    assert invert(*argv) == 0
    measured = json.loads(out.read_text())["noise"]
    channel = AttackConfig(attacks=["text"], prompts=1, channels=["1"], device="cpu")
    assert evaluate(run, channel)["attacks"]["text/hybrid"]["noise_unit"] == pytest.approx(measured, rel=1e-5)
    results = run.read_results()
    results["attacks"]["text/hybrid"]["noise_unit"] = 7.0
    run.write_results(results)
    assert invert(*argv) == 0
    assert json.loads(out.read_text())["noise"] == 7.0, "measured once, then on record"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--text"], "--text"),
        ([], "there is nothing to recover"),
        (["--text", ""], "a prompt is empty"),
        (["--text", "a", "--prompts", "b"], "give one of --text, --prompts and --states"),
        (["--prompts", "nowhere.txt"], "--prompts nowhere.txt cannot be read"),
        (["--states", "nowhere.pt"], "--states nowhere.pt cannot be read"),
        (["--text", "word " * 400], "the model's context ends at 128"),
        (["--text", "a", "--policy", "guess"], "--policy must be one of hybrid, single-commit, sipit; got guess"),
        (["--text", "a", "--operating-point", "slow"], "--operating-point must be one of"),
        (["--text", "a", "--text-loss", "l1"], "--text-loss must be one of paper, scaled; got l1"),
        (["--text", "a", "--prepare", "much"], "--prepare must be one of auto, full, none; got much"),
        (["--text", "a", "--dtype", "fp3"], "--dtype must be one of fp32, fp16, bf16, int8"),
        (["--text", "a", "--beam", "0"], "--beam must be at least 1; got 0"),
        (["--text", "a", "--noise", "-1"], "--noise must be a number of at least 0"),
        (["--text", "a", "--layer", "1"], "was cut after 2"),
        (["--text", "a", "--device", "warp"], "--device warp"),
        (["--text", "a", "--out", "nowhere/found.json"], "--json nowhere/found.json: its folder is not there"),
        (["--text", "a", "--json", "/proc/found.json"], "--json /proc/found.json cannot be written"),
        (["--text", "a", "--json", "x" * 300], "cannot be written (File name too long)"),
        (["--text", "a", "--figure", "found.xyz"], "--figure found.xyz must end in .png"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_one_line(
    text_run: Path, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_by(main, capsys, says, "text", "--model", str(text_run), *argv)


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (torch.zeros(3, 7), "must be (positions, 128)"),
        (torch.full((3, 128), torch.nan), "NaN or infinite"),
        (torch.zeros(0, 128), "is empty"),
        ([1, 2], "must hold a real tensor"),
        ({"a": torch.zeros(3, 128), "b": torch.zeros(3, 128)}, "alone or called states"),
        (torch.zeros(3, 128, dtype=torch.complex64), "must hold a real tensor"),
        (torch.zeros(3, 128).to_sparse(), "save it as a dense one"),
        (torch.zeros(3, 128, device="meta"), "save it as a dense one"),
    ],
)
def test_states_that_cannot_be_inverted_are_one_line(
    text_run: Path, states: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(states, tmp_path / "leaked.pt")
    argv = ["text", "--model", str(text_run), "--states", str(tmp_path / "leaked.pt"), "--cache", str(tmp_path)]
    refused_by(main, capsys, says, *argv)


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_quantised_states_are_one_line(text_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(torch.quantize_per_tensor(torch.zeros(3, 128), 0.1, 0, torch.qint8), tmp_path / "leaked.pt")
    argv = ("text", "--model", str(text_run), "--states", str(tmp_path / "leaked.pt"))
    refused_by(main, capsys, "save it as a dense one", *argv)


def test_states_may_lie_in_other_files(text_run: Path, tmp_path: Path) -> None:
    z = load_module(text_run / "last.ckpt").encode(torch.tensor([[5, 77, 120]]))
    np.save(tmp_path / "one.npy", z.numpy().astype(">f4"))
    np.savez(tmp_path / "two.npz", states=z.numpy(), other=np.zeros(3))
    save_file({"whatever": z[0].contiguous()}, tmp_path / "three.safetensors")
    for name in ("one.npy", "two.npz", "three.safetensors"):
        argv = ("--model", text_run, "--states", tmp_path / name, "--cache", tmp_path)
        assert invert(*argv, "--json", tmp_path / "found.json") == 0
        assert json.loads((tmp_path / "found.json").read_text())["prompts"][0]["tokens"] == [5, 77, 120]


def hidden_states(folder: Path, ids: list[int]) -> tuple[torch.Tensor, ...]:
    """What Hugging Face itself gives for a model in a folder: the embeddings, and the states after every block."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        found: tuple[torch.Tensor, ...] = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return found


def saved(z: torch.Tensor, path: Path) -> Path:
    """A tensor in a file of the kind that its name says."""
    if path.suffix == ".npy":
        np.save(path, z.numpy())
    elif path.suffix == ".npz":
        np.savez(path, states=z.numpy())
    elif path.suffix == ".safetensors":
        save_file({"states": z.contiguous()}, path)
    else:
        torch.save(z, path)
    return path


@pytest.mark.parametrize("kind", [".pt", ".npy", ".npz", ".safetensors"])
def test_the_last_hidden_states_of_hugging_face_are_known_as_such(
    kind: str, gpt2_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids, out = [5, 77, 120, 9], tmp_path / "found.json"
    states = saved(hidden_states(gpt2_folder, ids)[-1], tmp_path / f"leaked{kind}")
    assert invert("--model", gpt2_folder, "--states", states, "--cache", tmp_path, "--json", out) == 0
    found = json.loads(out.read_text())
    assert found["prompts"][0]["tokens"] == ids
    assert (found["model"]["cut"], found["verified"]) == ("final", 1)
    lines = [line for line in capsys.readouterr().out.splitlines() if "--layer" in line]
    assert len(lines) == 1
    assert "these states are of --layer final, after the final norm" in lines[0]


def test_a_layer_that_is_named_is_not_second_guessed(
    gpt2_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = saved(hidden_states(gpt2_folder, [5, 77])[-1], tmp_path / "leaked.pt")
    argv = ("--model", gpt2_folder, "--states", states, "--cache", tmp_path, "--json", tmp_path / "found.json")
    assert invert(*argv, "--layer", "last") == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["model"]["cut"], found["verified"]) == ("last", 0)
    assert "--layer" not in capsys.readouterr().out
    before = saved(hidden_states(gpt2_folder, [5, 77])[3], tmp_path / "third.pt")
    assert invert("--model", gpt2_folder, "--states", before, "--layer", 3, "--cache", tmp_path) == 0
    assert "2 of 2" in capsys.readouterr().out


def test_states_of_neither_layer_are_said_to_be_so(
    gpt2_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = saved(hidden_states(gpt2_folder, [5, 77])[3], tmp_path / "leaked.pt")
    assert invert("--model", gpt2_folder, "--states", states, "--cache", tmp_path) == 0
    assert "nothing is verified at --layer last, nor at --layer final" in capsys.readouterr().out


def test_original_and_recovered_text_stand_side_by_side(
    text_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invert("--model", text_run, "--text", "A name", "--cache", tmp_path) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "original" in line and "recovered" in line]
    assert [line for line in shown if line.count("A name") == 2]
    assert invert("--model", text_run, "--text", "The value is a number, a set, a list", "--cache", tmp_path) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "The value is" in line]
    assert ["original" in lines[0], "recovered" in lines[1], len(lines)] == [True, True, 2]


class Runs:
    """A pickle that would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.path), "w"))


def test_advice_of_a_library_is_not_passed_on(
    text_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(Runs(tmp_path / "ran"), tmp_path / "evil.pt")
    np.save(tmp_path / "evil.npy", np.array([Runs(tmp_path / "ran")]), allow_pickle=True)
    np.savez(tmp_path / "evil.npz", states=np.array([Runs(tmp_path / "ran")]))
    (tmp_path / "cut.pt").write_bytes((tmp_path / "evil.pt").read_bytes()[:100])
    (tmp_path / "cut.safetensors").write_bytes(b"not that")
    for name in ("evil.pt", "evil.npy", "evil.npz", "cut.pt", "cut.safetensors"):
        capsys.readouterr()
        assert invert("--model", text_run, "--states", tmp_path / name, "--cache", tmp_path) == 2
        said = capsys.readouterr().err
        assert f"--states {tmp_path / name} cannot be read" in said
        assert not any(word in said for word in ("pickle", "weights_only", "unsafe", "Traceback")), said
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("flag", ["--states", "--prompts"])
def test_a_pipe_is_not_waited_for(
    flag: str, text_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused_by(main, capsys, "it is no regular file", "text", "--model", str(text_run), flag, str(tmp_path / "pipe"))


def test_a_loop_of_links_is_one_line(text_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "b.json")
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    argv = ["text", "--model", str(text_run), "--text", "a", "--json", str(tmp_path / "a.json")]
    refused_by(main, capsys, "cannot be written", *argv)


def test_a_name_that_is_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"found-\xff.json"))
    refused_by(main, capsys, "is no text in UTF-8", "text", "--model", "gpt2", "--text", "A name", "--json", out)


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert 'python invert.py text --model smollm2 --text "The launch code is 7319."' in capsys.readouterr().out


@pytest.mark.parametrize("argv", [argv for argv in commands("invert") if argv[0] == "text"], ids=" ".join)
def test_a_command_of_the_documents_runs(argv: list[str], text_run: Path, tmp_path: Path) -> None:
    """As written, but on a small model, which was cut after its 2nd block."""
    instead = {"--model": str(text_run), "--layer": "2"}
    argv = [instead.get(before, argument) for before, argument in zip(["", *argv], argv, strict=False)]
    assert main([*argv, "--cache", str(tmp_path), "--device", "cpu"]) == 0
