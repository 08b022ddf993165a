"""evaluate.py: the same numbers as right after training, nothing twice, nothing lost, one line for what is wrong."""

from __future__ import annotations

import copy
import errno
import json
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import sweetspot.attacks.decoder.attack as decoder_attack
import sweetspot.evaluations.images as images
from sweetspot.attacks import Attack, AttackerData, Reconstruction, Victim
from sweetspot.attacks.descent import Descent
from sweetspot.attacks.whitebox import WhiteBox
from sweetspot.commands import report
from sweetspot.commands.evaluate import main
from sweetspot.commands.train import main as train_main
from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.assets import AssetError
from sweetspot.errors import UserError
from sweetspot.evaluations.chosen import STANDARD, check_asked
from sweetspot.evaluations.dispatch import attacked_already, evaluate
from sweetspot.metrics.perceptual import psim
from sweetspot.metrics.similarity import ssim
from sweetspot.metrics.summary import BESIDE
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.checkpoints import load_checkpoint
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run
from sweetspot.training import train
from tests.conftest import refused_by
from tests.documents import commands, users_files, write_files
from tests.weak_attacks import weaken

Make = Callable[..., TrainConfig]
RunOf = Callable[[TrainConfig], Run]
SUITE = [key for key in STANDARD.attacks if key != "positions"]  # which has nothing to go by here
FLOORS = ["prototype", "label"]  # run first, whatever is asked for; the gallery last


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    weaken(monkeypatch)


@pytest.fixture
def run(config: Make, run_of: RunOf) -> Run:
    """A finished run that nobody has attacked yet."""
    return run_of(config())


def attack(run: Run, *argv: str) -> int:
    return main([str(run.folder), "--device", "cpu", "--samples", "6", *argv])


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """What attacks found, without how long they took."""
    kept = copy.deepcopy({"attacks": results["attacks"], "worst_case": results["worst_case"]})
    for each in kept["attacks"].values():
        del each["seconds"], each["environment"]
    return kept


# ---------------------------------------------------------------------- what comes out


def test_right_after_training_and_later_are_the_same(run: Run, config: Make, tmp_path: Path) -> None:
    together = train(config(attacks=["standard"], samples=6, out=str(tmp_path / "together")))
    assert run.read_results()["attacks"] == {}
    assert attack(run) == 0
    assert timeless(run.read_results()) == timeless(together)
    assert together["name"] == run.name, "how a run is attacked does not change what it is"


def test_the_record_of_an_attack(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert attack(run) == 0
    results = run.read_results()
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ": SSIM" in line]
    assert said == list(results["attacks"]), "each has its line when it ends"
    assert list(results["attacks"]) == [*FLOORS, *SUITE, "gallery"]
    for each in results["attacks"].values():
        for metric in ("ssim", "psim", "psnr", "mse", "recognised", "rank"):
            assert each[metric].keys() >= {"mean", "std", "worst"}
            assert len(each["scores"][metric]) == 6
        assert each["samples"] == 6
        assert each["residual"] >= 0
        assert each["seconds"] >= 0
    worst, real = results["worst_case"], [a for key, a in results["attacks"].items() if key not in BESIDE]
    by_sample = np.max([each["scores"]["ssim"] for each in real], axis=0)
    assert worst["ssim"]["mean"] == pytest.approx(by_sample.mean())
    assert (run.folder / "recovered.png").is_file()


def test_pictures_that_a_kill_prevented_are_made_by_the_same_command(run: Run) -> None:
    asked = AttackConfig(attacks=["whitebox/paper"], samples=6)
    assert attack(run, "--attacks", "whitebox/paper") == 0
    assert attacked_already(run, asked)
    pictures = [run.originals, run.folder / "recovered.png"]
    recovered = run.recovered("whitebox/paper").stat().st_mtime_ns
    for picture in pictures:
        picture.unlink()
        assert not attacked_already(run, asked)
        assert attack(run, "--attacks", "whitebox/paper") == 0
        assert all(each.is_file() for each in pictures)
    assert run.recovered("whitebox/paper").stat().st_mtime_ns == recovered  # the attack itself is not repeated


def test_scores_are_those_of_the_kept_reconstructions(run: Run) -> None:
    """Whoever recomputes a figure from the run's own files gets it."""
    assert attack(run, "--attacks", "whitebox/adaptive") == 0
    results = run.read_results()
    recovered = torch.from_numpy(np.load(run.folder / "recovered-whitebox-adaptive.npz")["x"]).clamp(0, 1)
    data = TensorDataModule(load(results["config"]["dataset"], Path(".")))
    x = data.test[0][data.sample_of_tests(6)].float() / 255
    record = results["attacks"]["whitebox/adaptive"]
    assert record["scores"]["ssim"] == pytest.approx(ssim(recovered, x).tolist(), abs=1e-4)
    network = images.perceptual_or_none(torch.device("cpu"))
    with torch.no_grad():
        expected = psim(recovered, x, network)
    assert record["scores"]["psim"] == pytest.approx(expected.tolist(), abs=1e-4)
    victim = Victim.from_checkpoint(run.checkpoint)
    with torch.no_grad():
        assert record["residual"] == pytest.approx(
            victim.residual(recovered, victim.encoder(x)).mean().item(), rel=1e-3
        )


def test_one_recipe_and_the_gan_on_request(run: Run) -> None:
    assert attack(run, "--attacks", "whitebox", "--recipe", "paper") == 0
    assert list(run.read_results()["attacks"]) == [*FLOORS, "whitebox/paper", "gallery"]
    assert attack(run, "--attacks", "decoder/paper", "--decoder-epochs", "1") == 0
    record = run.read_results()["attacks"]["decoder/paper"]
    assert record["settings"] == {"recipe": "paper", "networks": ["gan"], "epochs": 1, "seed": 0}
    assert list(run.folder.glob("decoder-gan-1-0-*.pt"))
    assert attack(run, "--decoder-epochs", "1") == 0
    assert set(run.read_results()["attacks"]["decoder/adaptive"]["trace"]["held_out_loss"]) == {"inverse", "gan"}


def test_a_gan_that_comes_later_competes_with_the_inverse_network(run: Run) -> None:
    both = ("--attacks", "decoder/paper", "decoder/adaptive", "--decoder-epochs", "1")
    assert attack(run, "--attacks", "decoder") == 0
    assert attack(run, *both) == 0
    found = run.read_results()["attacks"]["decoder/adaptive"]
    assert found["settings"]["networks"] == ["inverse", "gan"]
    before = run.results.read_bytes()
    assert attack(run, *both) == 0
    assert run.results.read_bytes() == before
    assert attack(run, "--attacks", "decoder", "--decoder-epochs", "1", "--attack-seed", "5") == 0
    assert len(list(run.folder.glob("decoder-gan-*"))) == 1, "nobody asked for another GAN"


def test_a_weaker_attack_does_not_replace_a_stronger_one(run: Run, config: Make) -> None:
    assert attack(run, "--attacks", "whitebox/adaptive", "--budget", "thorough") == 0
    before = run.results.read_bytes()
    assert attack(run, "--attacks", "whitebox/adaptive", "--budget", "fast", "--samples", "3") == 0
    train(config(attacks=["whitebox/adaptive"], samples=6))
    assert run.results.read_bytes() == before
    assert attack(run, "--attacks", "whitebox/adaptive", "--samples", "9") == 0
    assert run.read_results()["attacks"]["whitebox/adaptive"]["samples"] == 9, "more inputs are more"


def test_the_headline_counts_inputs_that_every_attack_saw(run: Run) -> None:
    assert attack(run) == 0
    before = run.read_results()["worst_case"]
    assert attack(run, "--attacks", "whitebox/paper", "--samples", "12") == 0
    after = run.read_results()["worst_case"]
    assert after["samples"] == 6
    assert after["ssim"] == before["ssim"]


def test_a_stopped_attack_does_not_replace_a_finished_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attack(run, "--attacks", "whitebox/adaptive") == 0
    before = run.read_results()["attacks"]["whitebox/adaptive"]
    monkeypatch.setattr(Descent, "descend", ctrl_c)
    assert attack(run, "--attacks", "whitebox/adaptive", "--budget", "thorough") == 130
    after = run.read_results()["attacks"]["whitebox/adaptive"]
    assert {name: after[name] for name in before if "leak" not in name} == {
        name: value for name, value in before.items() if "leak" not in name
    }, "its leak is beyond a floor that was trained for longer"


def test_a_decoder_that_diverges_is_not_kept(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("sweetspot.attacks.decoder.training.PEAK_LR", 1e30)
        refused(capsys, "decoder/adaptive diverged", str(run.folder), "--attacks", "decoder", "--device", "cpu")
    assert not list(run.folder.glob("decoder-*"))
    assert attack(run, "--attacks", "decoder") == 0


def test_vectors_are_scored_as_vectors(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"dataset": "synthetic", "network": "mlp", "epochs": 1, "out": str(tmp_path)}
    results = train(TrainConfig(**fields, samples=200, trainer={"accelerator": "cpu"}))
    for each in results["attacks"].values():
        assert {"mse", "mcs", "rank"} <= each.keys()
        assert "ssim" not in each
        assert each["samples"] == 200
    assert not (tmp_path / results["name"] / "recovered.png").exists()


def test_vanilla_stands_beside(config: Make, run_of: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
    for lam in (0.0, 1.0):
        run = run_of(config(lam=lam))
        run_of(config(lam=lam, seed=1))  # another vanilla, which does not match
        capsys.readouterr()
        assert attack(run, "--attacks", "whitebox/paper") == 0
        table = capsys.readouterr().out
        assert table.count("  Vanilla") == (4 if lam else 0), table
        assert "worst case" in table
        assert "…" not in table, "nothing is cut off"


# ---------------------------------------------------------------------- what an attack gets


class Spy(Attack):
    name = "spy"

    seen: ClassVar[list[Tensor]] = []

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        assert data is not None
        weights = [weight for part in (victim.encoder, victim.head) for weight in part.state_dict().values()]
        self.seen.extend([data.x.float() / 255, *weights])

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        self.seen.append(z)
        x = torch.zeros(len(z), *victim.shape)
        return Reconstruction(x, victim.residual(x, z), 0.0)


def test_an_attack_is_never_shown_what_it_is_scored_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy()
    spy.seen.clear()
    monkeypatch.setattr(images, "chosen_attacks", lambda *_: [spy])
    results = evaluate(run, AttackConfig(samples=6, device="cpu"))
    x_test = torch.from_numpy(np.load(results["config"]["dataset"])["x_test"]).float().div(255).flatten(1)
    assert len(spy.seen) > 2
    for tensor in spy.seen:
        if tensor.ndim > 1 and tensor.flatten(1).shape[1] == x_test.shape[1]:
            assert torch.cdist(tensor.float().flatten(1), x_test).min() > 0.1
    assert results["attacks"][spy.key]["mse"]["worst"] > 0


# ---------------------------------------------------------------------- nothing twice, nothing lost


def test_a_finished_attack_is_not_repeated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attack(run, "--attacks", "whitebox") == 0
    before = run.results.read_bytes()
    done: list[str] = []
    reconstruct = WhiteBox.reconstruct

    def spied(self: WhiteBox, victim: Victim, z: Tensor) -> Reconstruction:
        done.append(self.key)
        return reconstruct(self, victim, z)

    monkeypatch.setattr(WhiteBox, "reconstruct", spied)
    assert attack(run, "--attacks", "whitebox") == 0
    assert (done, run.results.read_bytes()) == ([], before)
    assert attack(run, "--attacks", "whitebox", "--attack-seed", "7") == 0
    assert done == ["whitebox/no-data", "whitebox/adaptive"], "the paper's recipe draws nothing"


def test_stopped_between_attacks_the_same_command_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(decoder_attack, "train_decoder", ctrl_c)
        assert attack(run) == 130
    kept = run.read_results()["attacks"]
    assert list(kept) == [*FLOORS, "whitebox/paper", "whitebox/no-data", "whitebox/adaptive"]
    assert attack(run) == 0
    results = run.read_results()["attacks"]
    assert list(results)[-3:] == ["decoder/adaptive", "refined", "gallery"]
    assert {key: results[key] for key in kept} == kept


def test_an_attack_of_an_older_version_is_done_again(run: Run) -> None:
    assert attack(run, "--attacks", "whitebox/paper", "decoder/adaptive") == 0
    results = run.read_results()
    results["attacks"]["whitebox/paper"] |= {"format": 1, "residual": 7.0}
    results["attacks"]["decoder/adaptive"]["residual"] = 7.0
    run.write_results(results)
    assert attack(run, "--attacks", "whitebox/paper", "decoder/adaptive") == 0
    assert run.read_results()["attacks"]["whitebox/paper"]["residual"] < 7
    assert run.read_results()["attacks"]["decoder/adaptive"]["residual"] == 7, "this one means what it meant"


def ctrl_c(*_: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_in_the_white_box_keeps_the_best_so_far(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    descend = Descent.descend

    def at_step_3(self: Descent, step: int, steps: int) -> None:
        if step == 3 and self.k > 1:
            raise KeyboardInterrupt
        descend(self, step, steps)

    with monkeypatch.context() as patched:
        patched.setattr(Descent, "descend", at_step_3)
        assert attack(run, "--attacks", "whitebox", "--recipe", "adaptive") == 130
    record = run.read_results()["attacks"]["whitebox/adaptive"]
    assert record["stopped"]
    assert record["trace"]["steps"] == 2
    assert attack(run, "--attacks", "whitebox", "--recipe", "adaptive") == 0
    assert not run.read_results()["attacks"]["whitebox/adaptive"]["stopped"], "it was done in full"


def test_training_goes_on_with_the_attacks_that_are_missing(config: Make, run: Run) -> None:
    assert train(config())["attacks"] == {}
    attacked = train(config(attacks=["whitebox/paper"], samples=4))["attacks"]
    assert list(attacked) == [*FLOORS, "whitebox/paper", "gallery"]
    assert run.read_results()["attacks"]["whitebox/paper"]["samples"] == 4


def test_without_lpips_everything_else_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> None:
        raise AssetError("AlexNet's weights cannot be had; put them there")

    monkeypatch.setattr(images, "perceptual_network", absent)
    assert attack(run, "--attacks", "whitebox/paper") == 0
    assert capsys.readouterr().out.count("no PSIM: AlexNet's weights cannot be had; put them there") == 1
    record = run.read_results()["attacks"]["whitebox/paper"]
    assert "psim" not in record
    assert "ssim" in record


def test_lpips_that_comes_later_scores_what_was_recovered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(images, "perceptual_or_none", lambda device: None)
        assert attack(run, "--attacks", "whitebox/paper") == 0
    before = run.read_results()["attacks"]["whitebox/paper"]
    monkeypatch.setattr(WhiteBox, "reconstruct", ctrl_c)  # whoever attacks again fails
    assert attack(run, "--attacks", "whitebox/paper") == 0
    after = run.read_results()
    assert "psim" in after["worst_case"]
    assert after["attacks"]["whitebox/paper"]["ssim"] == before["ssim"]


# ---------------------------------------------------------------------- wrong input


def refused(capsys: pytest.CaptureFixture[str], says: str, *argv: str) -> None:
    refused_by(main, capsys, says, *argv)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--samples", "0"], "--samples must be at least 1; got 0"),
        (["--samples", "many"], "--samples"),
        (["--attacks", "nope"], "--attacks must be none, or of standard, whitebox, decoder"),
        (["--attacks", "none"], "leaves nothing to do"),
        (["--attacks", "none", "whitebox"], "--attacks must be none, or of"),
        (["--recipe", "secret"], "--recipe must be one of paper, no-data, adaptive; got secret"),
        (["--attacks", "decoder", "--recipe", "no-data"], "--recipe no-data leaves nothing of decoder"),
        (["--budget", "endless"], "--budget must be one of fast, normal, thorough; got endless"),
        (["--decoder-epochs", "0"], "--decoder-epochs must be at least 1"),
        (["--attack-seed", "-1"], "--attack-seed must be at least 0"),
        (["--device", "warp"], "--device warp cannot be used here"),
        (["--device", "meta"], "--device meta cannot be used here"),
        (["--dataset", "nope.npz"], "dataset nope.npz is not there"),
        (["--dataset", "synthetic"], "takes inputs of shape (1, 28, 28), and synthetic holds (10,)"),
        (["--dataset", "mnist-5k"], "was trained on images"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_one_line(run: Run, capsys: pytest.CaptureFixture[str], argv: list[str], says: str) -> None:
    before = run.results.read_bytes()
    refused(capsys, says, str(run.folder), *argv)
    assert run.results.read_bytes() == before


def test_a_folder_that_is_no_finished_run_is_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused(capsys, "there is no run", str(tmp_path / "nothing"))
    (tmp_path / "other.ckpt").touch()
    refused(capsys, "give a run's folder, or its last.ckpt", str(tmp_path / "other.ckpt"))
    checkpoint = run.checkpoint.rename(tmp_path / "aside")
    before = run.results.read_bytes()
    refused(capsys, "has no last.ckpt", str(run.folder))
    assert run.results.read_bytes() == before
    checkpoint.rename(run.checkpoint)
    run.results.unlink()
    refused(capsys, "its training is not finished", str(run.checkpoint))
    assert not run.results.exists()


def test_a_broken_checkpoint_is_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = run.results.read_bytes()
    run.checkpoint.write_bytes(run.checkpoint.read_bytes()[:2000])
    refused(capsys, "last.ckpt", str(run.folder), "--device", "cpu")
    assert run.results.read_bytes() == before


def command_in(line: str) -> list[str]:
    """The train.py command that an error advises, without `python train.py`."""
    return shlex.split(line.split("`")[1])[2:]


def said_by(script: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The line with which a script refuses."""
    capsys.readouterr()
    assert script(list(argv)) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("damage", ["truncated", "something else"])
def test_the_advice_for_a_finished_run_without_a_sound_checkpoint_works(
    damage: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    content = run.checkpoint.read_bytes()
    run.checkpoint.write_bytes(content[:3000] if damage == "truncated" else b"not a checkpoint at all")
    assert train_main(command_in(said_by(main, capsys, str(run.folder), "--device", "cpu"))) == 0
    assert attack(run, "--attacks", "whitebox/paper") == 0


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', "{", "\udcff"])
def test_the_advice_for_broken_results_works(content: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = run.read_results()["utility"]
    run.results.write_bytes(content.encode("utf-8", "surrogateescape"))
    for script, argv in ((main, str(run.folder)), (report.main, str(run.folder.parent))):
        line = said_by(script, capsys, argv)
        assert "results.json cannot be read" in line
        assert "remove it, and `python train.py" in line
    run.results.unlink()
    without_results = said_by(main, capsys, str(run.folder))
    assert "or the file was removed" in without_results
    assert command_in(without_results) == command_in(line)
    assert train_main(command_in(line)) == 0
    assert run.read_results()["utility"] == before
    assert attack(run, "--attacks", "whitebox/paper") == 0
    assert report.main([str(run.folder.parent)]) == 0


def test_what_is_no_damage_is_not_called_damage(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_with(error: BaseException) -> Callable[..., Any]:
        def load(*_: Any, **__: Any) -> Any:
            raise error

        return load

    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        monkeypatch.setattr(torch, "load", failing_with(error))
        with pytest.raises(type(error)):
            load_checkpoint(run.checkpoint)
    monkeypatch.setattr(torch, "load", failing_with(PermissionError(errno.EACCES, "Permission denied")))
    said = said_by(main, capsys, str(run.folder), "--device", "cpu")
    assert "cannot be read (Permission denied)" in said
    assert "remove" not in said
    monkeypatch.setattr(torch, "load", failing_with(KeyboardInterrupt()))
    assert attack(run) == 130


@pytest.mark.parametrize("odd", ["no file", "truncated", "another shape", "texts", "no x"])
def test_damaged_reconstructions_are_one_line_whose_advice_works(
    odd: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert attack(run, "--attacks", "whitebox/paper") == 0
    (run.folder / "recovered.png").unlink()
    file = run.recovered("whitebox/paper")
    if odd == "truncated":
        file.write_bytes(file.read_bytes()[:-200])
    elif odd == "no file":
        file.write_bytes(b"")
    else:
        arrays = {"another shape": {"x": np.zeros(3)}, "texts": {"x": np.array(["a"])}, "no x": {"y": np.zeros(3)}}
        np.savez(file, **arrays[odd])  # type: ignore[arg-type]
    refused(capsys, "is damaged; remove it", str(run.folder), "--attacks", "whitebox/paper", "--samples", "6")
    file.unlink()
    assert attack(run, "--attacks", "whitebox/paper") == 0
    assert (run.folder / "recovered.png").is_file(), "of the other attacks"


ODD_RESULTS: dict[str, tuple[tuple[str, ...], Any]] = {
    "attacks.prototype": (("attacks", "prototype"), 5),
    "attacks.prototype.samples": (("attacks", "prototype", "samples"), "x"),
    "data.test": (("data", "test"), "x"),
    "worst_case.ssim": (("worst_case", "ssim"), 5),
    "attacks.prototype.scores.ssim": (("attacks", "prototype", "scores", "ssim"), ["a", "b"]),
    "attacks.prototype.inputs": (("attacks", "prototype", "inputs"), [10**6] * 6),
    "attacks.prototype.stopped": (("attacks", "prototype", "stopped"), "no"),
    "attacks.prototype.settings.networks": (("attacks", "prototype", "settings"), {"networks": 3}),
}


def test_odd_results_are_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert attack(run, "--attacks", "whitebox/paper") == 0
    for what, ((*path, last), value) in ODD_RESULTS.items():
        results = run.read_results()
        section = results
        for name in path:
            section = section[name]
        before, section[last] = section[last], value
        run.write_results(results)
        refused(capsys, f"its {what} is not", str(run.folder), "--attacks", "whitebox/paper")
        section[last] = before
        run.write_results(results)


def test_an_attack_that_does_not_say_enough_is_done_again(run: Run) -> None:
    assert attack(run, "--attacks", "whitebox/paper") == 0
    for name in ("stopped", "scores", "inputs", "settings", "samples"):
        results = run.read_results()
        del results["attacks"]["whitebox/paper"][name]
        run.write_results(results)
        assert attack(run, "--attacks", "whitebox/paper") == 0
        assert name in run.read_results()["attacks"]["whitebox/paper"]


def test_with_nothing_to_do_nothing_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that finished runs on a disk that can only be read are shown."""
    assert attack(run, "--attacks", "whitebox/paper") == 0
    shutil.rmtree(run.folder.parent / ".locks")
    before = sorted((path, path.stat().st_mtime_ns) for path in run.folder.parent.rglob("*"))
    assert attack(run, "--attacks", "whitebox/paper") == 0
    assert sorted((path, path.stat().st_mtime_ns) for path in run.folder.parent.rglob("*")) == before

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "checkpoints/.locks")

    monkeypatch.setattr(Path, "mkdir", read_only)
    refused(capsys, "make it writable, or work on a copy", str(run.folder), "--attacks", "decoder")


def test_a_run_folder_with_a_name_as_long_as_names_can_be_is_attacked(run: Run) -> None:
    long = Run(run.folder.rename(run.folder.parent / ("r" * 255)))
    assert attack(long, "--attacks", "whitebox/paper") == 0
    assert long.read_results()["worst_case"]


@pytest.mark.parametrize(
    "where",
    ["sweetspot.attacks.descent.Descent.descend", "sweetspot.attacks.decoder.training.InverseModule.training_step"],
)
def test_sigterm_in_an_attack_keeps_what_is_finished(
    where: str, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(where, lambda *_: signal.raise_signal(signal.SIGTERM))
        assert attack(run) == 143
    assert "terminated; what was finished is kept, and the same command goes on" in capsys.readouterr().err
    assert "prototype" in run.read_results()["attacks"]
    assert attack(run) == 0
    assert set(run.read_results()["attacks"]) == {*BESIDE, *SUITE} - {"text/blind"}, "which is the floor of text"


def test_representations_that_are_no_numbers_are_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = load_checkpoint(run.checkpoint)
    for name, weight in checkpoint["state_dict"].items():
        if name.endswith("conv1.weight"):
            weight.fill_(torch.nan)
    torch.save(checkpoint, run.checkpoint)
    before = run.results.read_bytes()
    refused(capsys, "NaN or infinite", str(run.folder), "--device", "cpu", "--samples", "4")
    assert run.results.read_bytes() == before


def test_moved_data_are_found_and_changed_data_are_not_taken(
    run: Run, npz: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = Path(run.read_results()["config"]["dataset"]).rename(tmp_path / "moved.npz")
    assert attack(run, "--attacks", "whitebox/paper", "--dataset", str(moved)) == 0
    changed = npz("changed.npz", count=66)
    refused(capsys, "was trained on images", str(run.folder), "--dataset", str(changed), "--attacks", "decoder")


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "python evaluate.py checkpoints/mnist-*" in shown
    for flag in ("--attacks", "--recipe", "--samples", "--budget", "--data-root", "--device"):
        assert flag in shown


def test_a_run_that_cannot_be_attacked_does_not_stop_the_others(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = [str(tmp_path / "nothing"), str(run.folder), "--attacks", "whitebox/paper", "--samples", "3"]
    refused(capsys, "1 of 2 failed: there is no run", *argv)
    assert run.read_results()["worst_case"]["samples"] == 3


def test_from_inside_its_folder_it_is_the_same_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder)
    assert main(["last.ckpt", "--attacks", "whitebox/paper", "--samples", "3"]) == 0
    assert not (run.folder / ".locks").exists()
    assert (run.folder.parent / ".locks" / f"{run.name}.lock").exists()


def test_results_that_do_not_say_enough_are_one_line(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    results = run.read_results()
    del results["config"]["seed"]
    run.write_results(results)
    refused(capsys, "no config.seed in it", str(run.folder))


def test_several_runs_at_once(config: Make, run_of: RunOf) -> None:
    runs = [run_of(config(lam=lam)) for lam in (0.0, 1.0)]
    assert main([*(str(run.checkpoint) for run in runs), "--attacks", "whitebox/paper", "--samples", "3"]) == 0
    assert all(json.loads(run.results.read_text())["worst_case"]["samples"] == 3 for run in runs)


def test_a_folder_of_runs_is_all_of_them_and_what_is_no_run_is_skipped(
    config: Make, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run_of(config(lam=lam)) for lam in (0.0, 1.0)]
    out = runs[0].folder.parent
    begun = Path(shutil.copytree(runs[0].folder, out / "begun"))
    (begun / "results.json").unlink()
    empty = out / "images-empty"
    empty.mkdir()
    few = ["--attacks", "whitebox/paper", "--samples", "3", "--device", "cpu"]
    assert main([str(out), *few]) == 0
    assert all(run.read_results()["worst_case"]["samples"] == 3 for run in runs)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("skipped")]
    assert len(said) == 1
    assert "its training is not finished" in said[0]
    assert main([*map(str, out.glob("images-*")), *few]) == 0, "the shell's own list has the empty folder in it"
    assert f"skipped  {empty}: there is no run in it" in capsys.readouterr().out
    refused(capsys, "no run to attack in", str(empty))


def test_runs_that_the_attacks_do_not_fit_are_skipped_in_a_folder(
    run: Run, text_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(text_run, run.folder.parent / text_run.name)
    assert main([str(run.folder.parent), "--attacks", "whitebox/paper", "--samples", "3", "--device", "cpu"]) == 0
    assert f"skipped  {run.folder.parent / text_run.name} is a run on text" in capsys.readouterr().out


def test_an_attack_config_is_checked_as_strictly_from_python() -> None:
    with pytest.raises(UserError, match="--attacks needs a name"):
        check_asked(AttackConfig(attacks=[]))


@pytest.mark.parametrize("argv", commands("evaluate"), ids=" ".join)
def test_a_command_of_the_documents_runs(
    argv: list[str], run: Run, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As written, but on a small run, on the CPU, on few inputs, and with one epoch of the GAN."""
    if users_files(argv):
        write_files(tmp_path)
        monkeypatch.chdir(tmp_path)
    if "gpt2" in argv[0]:
        text_run: Path = request.getfixturevalue("text_run")
        run = Run(Path(shutil.copytree(text_run, tmp_path / "text" / text_run.name)))
    if "--prior" in argv:
        argv[argv.index("--prior") + 1] = str(run.folder)
    argv = [argument for argument in argv if "*" not in argument]
    few = ["--samples", "3", "--decoder-epochs", "1", "--prompts", "3"]
    assert main([str(run.folder), *argv, "--device", "cpu", *few]) == 0
    assert run.read_results()["worst_case"]
    if users_files(argv):
        assert run.read_results()["attacks"]["my_attacks/Flat"]["settings"]["grey"] == 0.3
