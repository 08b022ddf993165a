"""Text runs under attack: the same numbers as right after training, nothing twice, and noise that hides text."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sweetspot.evaluations.text as text
from sweetspot.attacks.text.channel import Channel
from sweetspot.attacks.text.posterior import Posterior
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.single_commit import OPERATING_POINTS
from sweetspot.commands.evaluate import main
from sweetspot.commands.train import main as train_main
from sweetspot.datamodules.tokens import TextTokenizer, train_bpe
from sweetspot.errors import UserError
from sweetspot.evaluations.dispatch import evaluate
from sweetspot.evaluations.text import prior_of
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.utility import measure_utility
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import build_language, train
from tests.attacks.text.conftest import Rotation
from tests.conftest import refused_by

FEW = ("--device", "cpu", "--prompts", "6")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operating point of a few steps: what is tested here is not its strength."""
    monkeypatch.setitem(OPERATING_POINTS, "fast", {"loop": InnerLoop(steps=30), "candidates": 20})


@pytest.fixture
def run(text_run: Path, tmp_path: Path) -> Run:
    """A copy of the finished text run, to be attacked."""
    return Run(Path(shutil.copytree(text_run, tmp_path / "runs" / text_run.name)))


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """What attacks found, without how long they took."""
    kept: dict[str, Any] = json.loads(json.dumps({"attacks": results["attacks"], "worst": results["worst_case"]}))
    for each in kept["attacks"].values():
        for name in ("seconds", "seconds_per_token", "preparation", "environment"):
            each.pop(name, None)
        each["observed"].pop("seconds_per_token", None)
        for channel in each["channels"].values():
            del channel["seconds_per_token"]
    return kept


def test_right_after_training_and_later_are_the_same(
    run: Run, text_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"prompts": 6, "channels": ["int8", "1"], "device": "cpu"}
    together = train(text_config(out=str(tmp_path / "together"), attacks=["text"], **asked))
    assert together["name"] == run.name, "how a run is attacked does not change what it is"
    assert timeless(evaluate(run, AttackConfig(attacks=["text"], **asked))) == timeless(together)


def test_the_record_of_every_policy(run: Run) -> None:
    argv = ("--policy", "hybrid", "single-commit", "sipit", "--operating-point", "fast", "--channels", "fp16", "0.3")
    assert main([str(run.folder), *FEW, *argv]) == 0
    results = run.read_results()
    assert list(results["attacks"]) == ["text/blind", "text/hybrid", "text/single-commit", "text/sipit"]
    blind = results["attacks"].pop("text/blind")
    assert blind["samples"] == 6
    for key, each in results["attacks"].items():
        assert each["samples"] == 6
        assert each["margin"]["min"] > 0
        assert each["seconds_per_token"] > 0
        assert [len(prompt["tokens"]) for prompt in each["recovered"]] == [10] * 6
        assert each["observed"]["right"] == [score == 1 for score in each["scores"]["em"]]
        for metric in ("em", "token_accuracy", "similarity"):
            assert each[metric]["mean"] == pytest.approx(sum(each["scores"][metric]) / 6, abs=1e-5)
        assert (run.folder / f"{key.replace('/', '-')}.png").stat().st_size > 10_000
    exact = results["attacks"]["text/hybrid"]
    assert (exact["em"]["mean"], exact["verified"]) == (1, 1)
    assert exact["channels"].keys() == {"fp16", "noise 0.3"}
    assert exact["channels"]["fp16"]["verified"] == 0, "rounded states verify nothing"
    assert exact["channels"]["fp16"]["em"]["mean"] == 1
    assert results["worst_case"]["em"]["mean"] == 1
    assert sorted(results["worst_case"]["attacks"]) == sorted(results["attacks"])


def test_a_release_that_loses_nothing_hides_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def rotated(path: Path) -> Any:
        module = load_module(path)
        module.defence.release = Chain(Rotation(128))
        return module

    monkeypatch.setattr(text, "load_module", rotated)
    found = evaluate(run, AttackConfig(attacks=["text"], prompts=3, channels=["fp16"], device="cpu"))
    exact = found["attacks"]["text/hybrid"]
    assert (exact["em"]["mean"], exact["verified"]) == (1, 1)
    assert exact["channels"]["fp16"]["em"]["mean"] == 1


def test_utility_behind_a_channel_is_what_the_server_has(run: Run, text_config: Callable[..., TrainConfig]) -> None:
    config = AttackConfig(attacks=["text"], prompts=3, channels=["2"], device="cpu")
    hybrid = evaluate(run, config)["attacks"]["text/hybrid"]
    found, channel = hybrid["channels"]["noise 2"], Channel(noise=2.0, unit=hybrid["noise_unit"])
    datamodule, _ = build_language(text_config())
    module, (x, y) = load_module(run.checkpoint), datamodule.test
    with torch.no_grad():
        logits = module.network.head(channel(module.encode(x), seed=1))
        nll = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    assert found["perplexity"] == pytest.approx(math.exp(nll), rel=1e-3)
    assert found["accuracy"] == pytest.approx((logits.argmax(dim=-1) == y).float().mean().item(), abs=1e-4)
    assert found["perplexity"] > run.read_results()["utility"]["perplexity"]
    assert found["em"]["mean"] < 1


def test_leak_is_what_comes_back_beyond_a_guess_without_states(run: Run) -> None:
    config = AttackConfig(attacks=["text"], prompts=6, channels=["fp16", "2"], device="cpu")
    results = evaluate(run, config)
    blind, hybrid = results["attacks"]["text/blind"], results["attacks"]["text/hybrid"]
    assert results["worst_case"]["attacks"] == ["text/hybrid"], "a guess is no attack"
    for metric in ("similarity", "em", "token_accuracy"):
        floor = blind["scores"][metric]
        for record in (hybrid, *hybrid["channels"].values(), results["worst_case"]):
            scores = record.get("scores", hybrid["scores"])[metric]
            room = 1 - sum(floor) / 6
            expected = [(s - f) / room for s, f in zip(scores, floor, strict=True)]
            assert record["leaks"][metric] == pytest.approx(expected, abs=1e-4)
            found = record["leak"][metric]
            assert found["mean"] == pytest.approx(sum(expected) / 6, abs=1e-4)
            assert found["worst"] == pytest.approx(max(expected), abs=1e-4)
    assert hybrid["leak"]["em"]["mean"] == 1
    assert blind["leak"]["similarity"]["mean"] == pytest.approx(0, abs=1e-6)
    assert hybrid["channels"]["noise 2"]["leak"]["similarity"]["mean"] < hybrid["leak"]["similarity"]["mean"]


def test_a_guess_is_added_to_results_of_before_there_was_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    results = evaluate(run, AttackConfig(attacks=["text"], prompts=4, channels=["fp16"], device="cpu"))
    del results["attacks"]["text/blind"]
    run.write_results(results)
    monkeypatch.setattr(text, "attacked", lambda *_: pytest.fail("the attack was repeated"))
    config = AttackConfig(attacks=["text"], prompts=2, channels=["fp16"], device="cpu")
    assert not text.text_attacked(run, config)
    after = evaluate(run, config)["attacks"]
    assert after["text/blind"]["samples"] == 4, "on all prompts that were attacked"
    assert after["text/hybrid"]["leak"] == results["attacks"]["text/hybrid"]["leak"]
    assert text.text_attacked(run, config)


def test_another_beam_is_another_attack(run: Run) -> None:
    config = AttackConfig(attacks=["text"], prompts=2, channels=["1"], device="cpu")
    wide = evaluate(run, config)["attacks"]["text/hybrid"]
    assert wide["settings"]["beam"] == 8
    greedy = AttackConfig(attacks=["text"], prompts=2, channels=["1"], device="cpu", beam=1)
    assert not text.text_attacked(run, greedy)
    assert evaluate(run, greedy)["attacks"]["text/hybrid"]["settings"]["beam"] == 1


def test_an_attacker_may_expect_what_another_run_does(run: Run, tmp_path: Path) -> None:
    def attacked(prior: str | None) -> dict[str, Any]:
        config = AttackConfig(attacks=["text"], prompts=4, channels=["4"], device="cpu", prior=prior)
        found: dict[str, Any] = evaluate(run, config)["attacks"]["text/hybrid"]
        return found

    own = attacked(None)
    assert "prior" not in own["settings"]
    same, other = (Path(shutil.copytree(run.folder, tmp_path / name)) for name in ("same", "other"))
    itself = attacked(str(same))
    assert itself["settings"]["prior"] == "same"
    for name in ("similarity", "em"):
        assert itself["channels"]["noise 4"][name] == own["channels"]["noise 4"][name]
    checkpoint = torch.load(other / "last.ckpt", weights_only=True)
    for name, weight in checkpoint["state_dict"].items():
        if name.endswith("ln_f.weight"):
            weight.zero_()  # it expects all tokens alike
    torch.save(checkpoint, other / "last.ckpt")
    blank = attacked(str(other))
    assert blank["channels"]["noise 4"]["token_accuracy"]["mean"] < own["channels"]["noise 4"]["token_accuracy"]["mean"]
    checkpoint["hyper_parameters"]["language"]["tokenizer"] = train_bpe(["other words " * 9], 300).to_json()
    torch.save(checkpoint, other / "last.ckpt")
    with pytest.raises(UserError, match="tokens"):
        prior_of(Run(other), TextTokenizer.from_json(load_module(run.checkpoint).hparams["language"]["tokenizer"]))
    with pytest.raises(UserError, match="no finished run"):
        attacked(str(tmp_path / "nowhere"))


def test_a_noisy_release_is_read_by_its_posterior_and_nobody_beats_bayes(
    text_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    noisy: dict[str, Any] = {"lam": 0.0, "release": ["gaussian"], "sigma": 1.0, "out": str(tmp_path)}
    asked: dict[str, Any] = {"attacks": ["text"], "prompts": 20, "channels": ["0.5"], "device": "cpu"}
    results = train(text_config(**noisy, **asked))
    hybrid = results["attacks"]["text/hybrid"]
    detector, prompt = hybrid["observed"]["detector"], hybrid["recovered"][0]
    assert 0 < hybrid["token_accuracy"]["mean"] < 1
    assert hybrid["verified"] == 0
    assert len(prompt["probability"]) == len(prompt["tokens"]) == 10
    assert detector["flagged"] == [each["confidence"] < 0.5 for each in hybrid["recovered"]]
    assert detector["score"][0] == pytest.approx(1 - prompt["confidence"], abs=1e-3)
    assert set(detector["calibration"]) == {"token", "prompt"}
    assert set(hybrid["channels"]["noise 0.5"]["detector"]["calibration"]) == {"token", "prompt"}
    for record in (hybrid, hybrid["channels"]["noise 0.5"]):
        assert record["bayes"]["positions"] == 200
        spread = 3 * (0.25 / 200) ** 0.5
        assert record["bayes"]["token_accuracy"] > record["token_accuracy"]["mean"] - spread
    assert hybrid["channels"]["noise 0.5"]["bayes"]["token_accuracy"] <= hybrid["bayes"]["token_accuracy"] + spread


class HugeFirst(torch.nn.Module):
    """An encoder whose first position is a hundred times larger than the others, as in models of Llama's kind."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor | None = None, first: int = 0, **options: Any) -> torch.Tensor:
        z: torch.Tensor = self.encoder(ids, first=first, **options)
        size = torch.ones(z.shape[1], 1)
        size[0] = 100.0 if first == 0 else 1.0
        return size * z


def test_attacker_and_server_get_the_same_noise_and_every_batch_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_module(run.checkpoint)
    module.network.encoder = HugeFirst(module.network.encoder)  # type: ignore[assignment]
    tokenizer = TextTokenizer.from_json(module.hparams["language"]["tokenizer"])
    case = text.TextCase(module, tokenizer, text.text_of(run.read_results(), tokenizer), 6, run.folder)
    added: dict[str, list[torch.Tensor]] = {"attacker": [], "server": []}
    invert, measure = Posterior.invert, measure_utility

    def seen_by_the_attacker(self: Posterior, states: torch.Tensor, truth: Any) -> Any:
        added["attacker"].append(states - case.states)
        return invert(self, states, truth)

    def seen_by_the_server(module: Any, datamodule: Any, channel: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        added["server"] += [channel(z) - z for z in torch.zeros(2, 8, 64, 128)]
        return measure(module, datamodule, channel)

    monkeypatch.setattr(Posterior, "invert", seen_by_the_attacker)
    monkeypatch.setattr(text, "measure_utility", seen_by_the_server)
    first, again = (text.through(case, Channel.named("0.5", case.unit), seed=3) for _ in range(2))
    ordinary = case.states[:, 1:].square().mean().sqrt().item()
    assert case.states.square().mean().sqrt() > 10 * ordinary, "the first position drowns the others"
    for noise in (*added["attacker"], *added["server"]):
        assert noise.std().item() == pytest.approx(0.5 * case.unit, rel=0.05)
        assert noise.std().item() == pytest.approx(0.5 * ordinary, rel=0.15)
    assert not torch.equal(*added["server"][:2]), "two batches, two draws"
    assert torch.equal(added["server"][0], added["server"][2]), "one seed, one result"
    assert torch.equal(*added["attacker"])
    for record in (first, again):
        del record["seconds_per_token"]
    assert first == again


def test_channels_that_another_attacker_read_are_done_again(run: Run) -> None:
    config = AttackConfig(attacks=["text"], prompts=2, channels=["fp16", "1"], device="cpu")
    results = evaluate(run, config)
    hybrid = results["attacks"]["text/hybrid"]
    fresh = json.loads(json.dumps(hybrid["channels"]))
    del hybrid["noise_unit"]
    for record in hybrid["channels"].values():
        del record["format"]
        record["perplexity"] = 1.0
    run.write_results(results)
    assert not text.text_attacked(run, config)
    after = evaluate(run, config)["attacks"]["text/hybrid"]
    assert after["channels"]["noise 1"]["perplexity"] == fresh["noise 1"]["perplexity"]
    assert after["channels"]["fp16"]["perplexity"] == fresh["fp16"]["perplexity"]
    assert text.text_attacked(run, config)


def test_what_is_finished_is_not_repeated_and_a_new_channel_costs_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = AttackConfig(attacks=["text"], prompts=4, channels=["fp16"], device="cpu")
    first = timeless(evaluate(run, config))
    before = run.results.read_bytes()
    monkeypatch.setattr(text, "attacked", lambda *_: pytest.fail("the attack was repeated"))
    assert timeless(evaluate(run, config)) == first
    assert run.results.read_bytes() == before
    asked: list[str] = []
    through = text.through

    def noted(case: text.TextCase, channel: Channel, *rest: Any) -> dict[str, Any]:
        asked.append(channel.name)
        return through(case, channel, *rest)

    monkeypatch.setattr(text, "through", noted)
    more = evaluate(run, AttackConfig(attacks=["text"], prompts=2, channels=["fp16", "int8"], device="cpu"))
    assert asked == ["int8"]
    assert more["attacks"]["text/hybrid"]["samples"] == 4, "fewer prompts never replace more"


def test_observing_can_be_left_out(run: Run) -> None:
    argv = ("--policy", "single-commit", "--operating-point", "fast", "--prompts", "1", "--observe", "false")
    assert main([str(run.folder), "--device", "cpu", *argv]) == 0
    seen = run.read_results()["attacks"]["text/single-commit"]["observed"]
    assert not seen.keys() & {"curves", "ranks"}
    assert seen["cumulative_loss"]


def test_a_stopped_attack_leaves_the_results_as_they_were(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = run.results.read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweetspot.attacks.text.hybrid.Hybrid.recover", interrupt)
    assert main([str(run.folder), *FEW]) == 130
    assert run.results.read_bytes() == before


def test_another_text_than_the_runs_own_is_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n".join(f"Another line of number {n} and of some more words." for n in range(400)))
    refused_by(main, capsys, "was trained on sentences", str(run.folder), *FEW, "--dataset", str(other))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--attacks", "whitebox"], "is a run on text"),
        (["--policy", "guess"], "--policy must be of hybrid, single-commit, sipit; got guess"),
        (["--operating-point", "slow"], "--operating-point must be one of fast, baseline, high-accuracy; got slow"),
        (["--channels", "fp3"], "--channels must be of fp32, fp16, bf16, int8, or positive noise levels; got fp3"),
        (["--channels", "-1"], "got -1"),
        (["--beam", "0"], "--beam must be at least 1; got 0"),
        (["--prompts", "0"], "--prompts must be at least 1; got 0"),
    ],
    ids=" ".join,
)
def test_a_wrong_argument_is_one_line(
    text_run: Path, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_by(main, capsys, says, str(text_run), *argv)


@pytest.mark.parametrize("model_type", ["vit", "gpt2"])
def test_a_checkpoint_never_runs_code(
    run: Run, model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nEvil = object\n")
    checkpoint = torch.load(run.checkpoint, weights_only=True)
    language = checkpoint["hyper_parameters"]["language"]
    evil = {"auto_map": {"AutoModelForCausalLM": "evil.Evil"}, "_name_or_path": str(tmp_path)}
    language["config"] = {**(language["config"] if model_type == "gpt2" else {}), "model_type": model_type, **evil}
    torch.save(checkpoint, run.checkpoint)
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # to "Do you wish to run the custom code?"
    argv = (str(run.folder), "--attacks", "text", *FEW, "--channels", "fp32")
    if model_type == "vit":
        refused_by(main, capsys, "is of type vit, which is no causal LM", *argv)
    else:
        assert main(list(argv)) == 0, "what names code is left out, the rest is a model like any other"
    assert not ran.exists()


def test_text_attacks_are_not_for_images(
    config: Callable[..., TrainConfig], run_of: Callable[[TrainConfig], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(config()).folder
    refused_by(main, capsys, "is a run on images or vectors", str(folder), "--attacks", "text")


def test_the_table_says_what_is_left_of_use_and_of_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run.folder), *FEW, "--channels", "fp16"]) == 0
    shown = capsys.readouterr().out
    for words in ("text/hybrid", "100.0 %", "fp16", "perplexity", "one-step margin", "6 prompts"):
        assert words in shown, words
    assert max(map(len, shown.splitlines())) <= 80


def test_original_and_recovered_text_stand_side_by_side(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run.folder), *FEW, "--channels", "2"]) == 0
    shown, written = capsys.readouterr().out, (run.folder / "text-recovered.txt").read_text(encoding="utf-8")
    hybrid = run.read_results()["attacks"]["text/hybrid"]
    exact, noisy = hybrid["recovered"], hybrid["channels"]["noise 2"]["recovered"]
    wrong = [token for token, right in zip(noisy[0]["tokens"], noisy[0]["right"], strict=True) if not right]
    for seen in (shown, written):
        assert seen.count(exact[0]["truth"]) >= 2, "original, and recovered from exact states"
        assert all(f"⟨{token}⟩" in seen for token in wrong)
    assert wrong
    assert all(prompt["truth"] in written for prompt in exact)
    assert exact[2]["truth"] not in shown, "a few are enough on the terminal"


def test_several_runs_are_drawn_against_one_another(
    run: Run, text_config: Callable[..., TrainConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(run.folder.parent)
    other = Path(out) / train(text_config(out=out, lam=0.0, epochs=1))["name"]
    assert main([str(run.folder), str(other), "--device", "cpu", "--prompts", "2", "--channels", "0.5"]) == 0
    assert (run.folder.parent / "text-frontier.png").stat().st_size > 10_000
    shown = capsys.readouterr().out
    assert "text-frontier.png" in shown
    assert "  Vanilla" not in shown, "the other run has fewer epochs and is no counterpart"


def test_the_hubs_gpt2_is_fine_tuned_and_attacked(gpt2_folder: Path, corpus: Path, tmp_path: Path) -> None:
    """The experiment of GPT-2, with a small model in a folder of the hub's layout, cut after its 6th block."""
    argv = ["--config", "configs/gpt2.yaml", "--network", str(gpt2_folder), "--dataset", str(corpus), "--length", "16"]
    few = ["--epochs", "1", "--prompts", "2", "--channels", "fp16", "--device", "cpu", "--trainer.accelerator", "cpu"]
    assert train_main([*argv, *few, "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.glob("sentences-gpt2-mixcon-*")
    results = Run(folder).read_results()
    assert results["model"]["cut"] == "6"
    assert results["attacks"]["text/hybrid"]["em"]["mean"] == 1
