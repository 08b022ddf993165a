"""Attack saved runs, and write what comes back into their results.

python evaluate.py checkpoints/mnist-*                                       # the default attacks, 100 test images
python evaluate.py checkpoints/mnist-* --attacks whitebox --recipe paper     # one attack, one recipe
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path
from typing import Any

import lpips
import numpy as np
import torch
from jsonargparse import ArgumentParser
from torch import Tensor

from attacks import Attack, AttackerData, Reconstruction, Victim
from attacks.decoder import Decoder
from attacks.prototype import Prototype
from attacks.whitebox import WhiteBox
from datamodules import TensorDataModule, load
from datamodules.assets import AssetError
from datamodules.tensors import scaled
from errors import UserError
from files import replacing
from metrics.classifier import independent_classifier
from metrics.perceptual import perceptual_network
from metrics.scoring import Scorer
from metrics.summary import summary, worst_case
from reports.figures import gallery_figure
from reports.tables import attacks_table
from runs.command_line import Examples, add_dataclass, run_command
from runs.config import AttackConfig, root_of
from runs.environment import environment, pick_device
from runs.folder import Run
from runs.matching import matching_vanilla

GALLERY = 1000  # test inputs among which the true one is searched

EXAMPLES = """\
  python evaluate.py checkpoints/mnist-*                                            white box and decoder on 100 images
  python evaluate.py checkpoints/mnist-* --attacks whitebox decoder --samples 100
  python evaluate.py checkpoints/mnist-lenet-…/last.ckpt --attacks whitebox --recipe paper
  python evaluate.py checkpoints/cifar10-* --attacks decoder/paper decoder/adaptive  the paper's GAN too: 50 epochs
  python evaluate.py checkpoints/mnist-* --budget thorough                          a patient attacker
"""


def evaluate(
    run: Run, config: AttackConfig, data_root: str | None = None, dataset: str | None = None
) -> dict[str, Any]:
    """Attack one run; its results, with `attacks` and `worst_case` filled. A finished attack is not repeated.

    Args:
        run: the run, held by the caller.
        config: which attacks, how many samples, how hard.
        data_root: where the run's dataset lies, if not where it was.
        dataset: what to call the run's dataset here, for an .npz that was moved.
    """
    results = run.read_results()
    seed = results["config"]["seed"] if config.attack_seed is None else config.attack_seed
    samples = min(config.samples, results["data"]["test"])
    attacks = chosen_attacks(config, seed, run.folder)
    todo = [attack for attack in attacks if not finished(results, attack, samples)]
    if not todo:
        return results
    device = pick_device(config.device)
    victim = Victim.from_checkpoint(run.checkpoint).to(device)
    datamodule = data_of(results, victim, data_root, dataset)
    sample, gallery = datamodule.sample_of_tests(samples), datamodule.sample_of_tests(max(GALLERY, samples))
    x = scaled(datamodule.test[0][sample].to(device))
    with torch.no_grad():
        z = victim.release(victim.encoder(x))  # what left the client; from here on only the scorer knows x
    scorer = Scorer(
        original=x,
        classes=datamodule.test[1][sample].to(device),
        gallery=scaled(datamodule.test[0][gallery].to(device)),
        perceptual=perceptual_or_none(device) if x.ndim == 4 else None,
        classifier=independent_classifier(datamodule, run.folder.parent / ".classifiers", device),
    )
    for attack in todo:
        began = time.perf_counter()
        attack.prepare(victim, AttackerData.of(datamodule))
        reconstruction = attack.reconstruct(victim, z)
        seconds = time.perf_counter() - began
        made_with = environment(device, seed, seconds)
        results["attacks"][attack.key] = record(attack, reconstruction, scorer, made_with)
        results["worst_case"] = worst_case(results["attacks"])
        keep(run, attack.key, reconstruction.x)
        run.write_results(results)
        if stopped(reconstruction):  # the best so far is kept; the same command does the attack in full
            raise KeyboardInterrupt
    if x.ndim == 4:
        draw(run, x, results)
    return results


def chosen_attacks(config: AttackConfig, seed: int, cache: Path) -> list[Attack]:
    """The attacks that a config asks for, the prototype first."""
    attacks: list[Attack] = []
    for key in config.attack_keys():
        name, recipe = key.split("/")
        if name == "whitebox":
            attacks.append(WhiteBox(recipe, config.budget, seed))
        else:
            attacks.append(Decoder(recipe, config.budget, seed, cache, config.decoder_epochs))
    return [Prototype(), *attacks] if attacks else []


def finished(results: dict[str, Any], attack: Attack, samples: int) -> bool:
    """Whether this very attack, with these settings, is in the results already."""
    done = results["attacks"].get(attack.key, {})
    return done.get("settings") == repr(attack) and done.get("samples") == samples and not done.get("stopped")


def stopped(reconstruction: Reconstruction) -> bool:
    """Whether someone pressed Ctrl-C before the attack was through."""
    return bool(reconstruction.trace.get("steps", 0) < reconstruction.trace.get("of", 0))


def data_of(results: dict[str, Any], victim: Victim, data_root: str | None, dataset: str | None) -> TensorDataModule:
    """The run's own data, split as they were for training."""
    config, recorded = results["config"], results["data"]
    arrays = load(dataset or config["dataset"], root_of(data_root), config["seed"])
    options = (config[name] for name in ("batch_size", "seed", "validation_fraction", "limit_train", "limit_test"))
    datamodule = TensorDataModule(arrays, *options)
    if datamodule.shape != victim.shape:
        raise UserError(
            f"{results['name']} takes inputs of shape {victim.shape}, and {arrays.name} holds {datamodule.shape}; "
            f"give the data it was trained on with --dataset or --data-root"
        )
    # a file is known by its content, a dataset of torchvision by its name
    theirs = recorded["source"].partition("sha256 ")[2] or recorded["name"]
    ours = arrays.source.partition("sha256 ")[2] or arrays.name
    if theirs != ours or recorded["test"] != len(datamodule.test[1]) or recorded["train"] != len(datamodule.train[1]):
        raise UserError(
            f"{results['name']} was trained on {recorded['name']} ({recorded['source']}), and this is "
            f"{arrays.name} ({arrays.source}); give the data it was trained on with --dataset or --data-root"
        )
    return datamodule


@functools.cache
def perceptual_or_none(device: torch.device) -> lpips.LPIPS | None:
    """LPIPS, or one line that says why there is no PSIM."""
    try:
        return perceptual_network().to(device)
    except AssetError as error:
        print(f"no PSIM: {error}", flush=True)
        return None


def record(attack: Attack, reconstruction: Reconstruction, scorer: Scorer, made_with: dict[str, Any]) -> dict[str, Any]:
    """What results.json keeps of an attack: summaries, and each sample's scores, for the worst case over attacks."""
    scores = scorer.score(reconstruction.x)
    return {
        **{name: summary(name, values) for name, values in scores.items()},
        "residual": reconstruction.residual.mean().item(),
        "seconds": made_with["seconds"],
        "samples": len(reconstruction.x),
        "settings": repr(attack),
        "stopped": stopped(reconstruction),
        "trace": reconstruction.trace,
        "scores": {name: [round(value, 6) for value in values.tolist()] for name, values in scores.items()},
        "environment": made_with,
    }


def keep(run: Run, key: str, x: Tensor) -> None:
    """The recovered inputs, for pictures and for whoever wants to look at them."""
    with replacing(recovered_file(run, key)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, x=x.cpu().numpy())


def recovered_file(run: Run, key: str) -> Path:
    """Where an attack's reconstructions lie."""
    return run.folder / f"recovered-{key.replace('/', '-')}.npz"


def draw(run: Run, x: Tensor, results: dict[str, Any]) -> None:
    """Originals and reconstructions by attack, from the best-recovered image to the worst."""
    shown: dict[str, Tensor] = {}
    for key, attack in results["attacks"].items():
        if attack["samples"] == len(x) and recovered_file(run, key).is_file():
            shown[key] = torch.from_numpy(np.load(recovered_file(run, key))["x"])
    best = [max(each) for each in zip(*(results["attacks"][key]["scores"]["psnr"] for key in shown), strict=True)]
    gallery_figure(x, shown, torch.tensor(best).argsort(descending=True), run.folder / "recovered.png")


def run_at(path: Path) -> Run:
    """The finished run at a path, or what is wrong with it."""
    if path.suffix == ".ckpt" and path.is_file() and path.name != "last.ckpt":
        raise UserError(f"{path} is no run: give a run's folder, or its last.ckpt")
    run = Run(path.parent if path.suffix == ".ckpt" else path)
    if not run.folder.is_dir():
        raise UserError(f"there is no run {run.folder}; train.py makes one")
    if not run.checkpoint.is_file():
        raise UserError(f"{run.folder} has no last.ckpt, so there is nothing to attack; train.py makes it")
    if not run.finished:
        raise UserError(
            f"{run.folder} has no results.json: its training is not finished; the same train.py command goes on"
        )
    return run


def main(argv: list[str] | None = None) -> int:
    """Parse, attack, print."""
    parser = ArgumentParser(
        prog="evaluate.py",
        usage="python evaluate.py RUN … [--attacks NAME …] [--recipe NAME …] [--samples N] [--budget NAME] [FLAG …]",
        description="Attack saved runs, and say how much of their inputs comes back.",
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=Examples,
        exit_on_error=False,
    )
    parser.add_argument("runs", nargs="+", type=str, help="run folders, or their last.ckpt")
    add_dataclass(parser, AttackConfig)
    parser.add_argument("--data-root", type=str, default=None, help="where the runs' datasets lie; default as train.py")
    parser.add_argument("--dataset", type=str, default=None, help="the runs' dataset, for an .npz that was moved")

    def command() -> None:
        parsed = parser.parse_args(argv).as_dict()
        runs = [run_at(Path(path)) for path in parsed.pop("runs")]
        root, dataset = parsed.pop("data_root"), parsed.pop("dataset")
        config = AttackConfig(**parsed)
        if config.attacks == ["none"]:
            raise UserError("--attacks none leaves nothing to do; name whitebox or decoder")
        for run in runs:
            if len(runs) > 1:
                print(run.folder, flush=True)
            with run.claimed():
                results = evaluate(run, config, root, dataset)
            attacks_table(results, matching_vanilla(run))

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
