"""What comes back from the representations of images and vectors: attacks chosen, run, scored and written down."""

from __future__ import annotations

import functools
import time
from typing import Any

import lpips
import numpy as np
import torch
from torch import Tensor

from attacks import ATTACKS, Attack, AttackerData, LabelOnly, Reconstruction, Victim
from datamodules import TensorDataModule, load
from datamodules.assets import AssetError
from datamodules.tensors import scaled
from errors import UserError
from evaluations.chosen import chosen_attacks
from files import replacing
from lightning_modules.drawing import draws_from
from metrics.classifier import independent_classifier
from metrics.perceptual import perceptual_network
from metrics.scoring import Scorer
from metrics.summary import common_inputs, scored, worst_case
from reports.figures import gallery_figure
from reports.tables import attack_line
from runs.config import BUDGETS, AttackConfig, root_of
from runs.environment import environment, pick_device, reproducible
from runs.folder import Run
from runs.matching import check_same_data
from runs.record import complete

PICTURE = "recovered.png"
GALLERY = 1000  # test inputs among which the true one is searched
CLIENT = 0x9E3779B9  # added to the seed of what the client draws: an attack never draws the client's own noise


def evaluate_images(
    run: Run, config: AttackConfig, data_root: str | None = None, dataset: str | None = None
) -> dict[str, Any]:
    """Attack a run on images or vectors; its results, with `attacks` and `worst_case` filled, nothing done twice.

    Args:
        run: the run, held by the caller.
        config: which attacks, how many samples, how hard.
        data_root: where the run's dataset lies, if not where it was.
        dataset: what to call the run's dataset here, for an .npz that was moved.
    """
    results = read_attackable(run)
    seed, samples, attacks = asked_of(run, results, config)
    if is_drawn(run, results) and all(
        finished(results, attack, samples) and fully_scored(results, attack) for attack in attacks
    ):
        return results
    device = pick_device(config.device)
    reproducible()
    victim = Victim.from_checkpoint(run.checkpoint).to(device)
    datamodule = data_of(results, victim, data_root, dataset)
    inputs = datamodule.sample_of_tests(samples)
    with torch.no_grad(), draws_from((CLIENT + seed) % 2**32, device):  # what left the client
        z = victim.released(scaled(datamodule.test[0][inputs].to(device)))  # from here on only the scorer knows x
    scorer = functools.cache(lambda: scorer_of(run, datamodule, inputs, device))  # made once, where it is needed
    for attack in attacks:
        if finished(results, attack, samples):
            score_again(run, results, attack, datamodule, device)
            continue
        began = time.perf_counter()
        with draws_from(seed, device):
            attack.prepare(victim, AttackerData.of(datamodule))
            if isinstance(attack, LabelOnly):
                attack.tell(datamodule.test[1][inputs].to(device))
            reconstruction = attack.reconstruct(victim, z)
        made_with = environment(device, seed, time.perf_counter() - began)
        stopped = bool(reconstruction.trace.get("steps", 0) < reconstruction.trace.get("of", 0))
        if not (stopped and attack.key in results["attacks"]):  # what was finished is kept
            keep(run, attack.key, reconstruction.x)
            scores = scorer().score(reconstruction.x)
            about = {"inputs": inputs.tolist(), "settings": attack.settings, "stopped": stopped}
            results["attacks"][attack.key] = {**scored(scores), **record(attack, reconstruction, made_with), **about}
            results["worst_case"] = worst_case(results["attacks"])
            run.write_results(results)
            print(attack_line(attack.key, results["attacks"][attack.key]), flush=True)
        if stopped:  # the best so far is kept; the same command does the attack in full
            raise KeyboardInterrupt
    results["worst_case"] = worst_case(results["attacks"])
    run.write_results(results)
    if len(victim.shape) == 3:
        draw(run, datamodule, results)
    return results


def is_drawn(run: Run, results: dict[str, Any]) -> bool:
    """Whether what was recovered has its pictures: a run may have been killed just before they were made."""
    kept = any(run.recovered(key).is_file() for key in results["attacks"])
    if not kept or len(results["data"]["shape"]) != 3:
        return True
    return run.originals.is_file() and (run.folder / PICTURE).is_file()


def images_attacked(run: Run, config: AttackConfig) -> bool:
    """Whether a run has already been through everything that is asked for; a score may still be missing."""
    results = read_attackable(run)
    _, samples, attacks = asked_of(run, results, config)
    return is_drawn(run, results) and all(finished(results, attack, samples) for attack in attacks)


def images_scored(run: Run, config: AttackConfig) -> bool:
    """Whether the attacks that are asked for, all of them finished, have every score."""
    results = read_attackable(run)
    _, _, attacks = asked_of(run, results, config)
    return all(fully_scored(results, attack) for attack in attacks)


def asked_of(run: Run, results: dict[str, Any], config: AttackConfig) -> tuple[int, int, list[Attack]]:
    """The attacks' seed, how many inputs they are tried on, and the attacks."""
    seed = results["config"]["seed"] if config.attack_seed is None else config.attack_seed
    return seed, min(config.samples, results["data"]["test"]), chosen_attacks(config, seed, run.folder)


def read_attackable(run: Run) -> dict[str, Any]:
    """The results of a run that these attacks can be tried on, without attacks that meant something else."""
    results = run.read_results()
    needed = {"seed", "dataset", "batch_size", "validation_fraction", "limit_train", "limit_test"}
    if not results["config"].keys() >= needed:
        raise UserError(f"{run.results} does not say what the run was trained on; train it again with --force")
    versions = {key: version_of(key, record) for key, record in results["attacks"].items()}
    results["attacks"] = complete(results["attacks"], versions, "stopped")
    return results


def version_of(key: str, record: Any) -> int:
    """Today's format of an attack; what a user's own attack left is as its file, which need not be here, left it."""
    name = key.split("/")[0]
    return ATTACKS[name].version if name in ATTACKS else record.get("format", Attack.version)


def record(attack: Attack, reconstruction: Reconstruction, made_with: dict[str, Any]) -> dict[str, Any]:
    """What results.json keeps of an attack, apart from its scores."""
    return {
        "residual": reconstruction.residual.mean().item(),
        "seconds": made_with["seconds"],
        "samples": len(reconstruction.x),
        "format": attack.version,
        "trace": reconstruction.trace,
        "environment": made_with,
    }


def finished(results: dict[str, Any], attack: Attack, samples: int) -> bool:
    """Whether the results have this attack already, on as many inputs and with at least what is asked for spent on it.

    A weaker attack never replaces a stronger one: the ordinary command after a thorough one has nothing to do.
    """
    done = results["attacks"].get(attack.key)
    if done is None or done["stopped"] or done["samples"] < samples:
        return False
    theirs, ours = dict(done["settings"]), dict(attack.settings)
    spent, asked = (BUDGETS.index(each.pop("budget", BUDGETS[0])) for each in (theirs, ours))
    trained, wanted = (each.pop("epochs", 0) for each in (theirs, ours))
    networks, needed = (set(each.pop("networks", [])) for each in (theirs, ours))
    return theirs == ours and spent >= asked and trained >= wanted and networks >= needed


def fully_scored(results: dict[str, Any], attack: Attack) -> bool:
    """Whether a finished attack on images has its PSIM; its weights may not have been there at the time."""
    done = results["attacks"][attack.key]
    return len(results["data"]["shape"]) != 3 or "psim" in done


def score_again(
    run: Run, results: dict[str, Any], attack: Attack, data: TensorDataModule, device: torch.device
) -> None:
    """Bring a finished attack's scores up to date from what it recovered."""
    done = results["attacks"][attack.key]
    if not fully_scored(results, attack) and run.recovered(attack.key).is_file():
        recovered = recovered_by(run, results, attack.key).to(device)
        done |= scored(scorer_of(run, data, torch.tensor(done["inputs"]), device).score(recovered))


def scorer_of(run: Run, datamodule: TensorDataModule, inputs: Tensor, device: torch.device) -> Scorer:
    """Who may compare what was recovered with the test inputs of these indices."""
    x_test, y_test = datamodule.test
    gallery = datamodule.sample_of_tests(max(GALLERY, len(inputs)))
    return Scorer(
        original=scaled(x_test[inputs].to(device)),
        classes=y_test[inputs].to(device),
        gallery=scaled(x_test[gallery].to(device)),
        perceptual=perceptual_or_none(device) if x_test.ndim == 4 else None,
        classifier=independent_classifier(datamodule, run.folder.parent / ".classifiers", device),
    )


def data_of(results: dict[str, Any], victim: Victim, data_root: str | None, dataset: str | None) -> TensorDataModule:
    """The run's own data, split as they were for training."""
    config = results["config"]
    arrays = load(dataset or config["dataset"], root_of(data_root), config["seed"])
    needed = ("batch_size", "seed", "validation_fraction", "limit_train", "limit_test")
    datamodule = TensorDataModule(arrays, *(config[name] for name in needed))
    if datamodule.shape != victim.shape:
        raise UserError(
            f"{results['name']} takes inputs of shape {victim.shape}, and {arrays.name} holds {datamodule.shape}; "
            f"give the data it was trained on with --dataset or --data-root"
        )
    check_same_data(results, datamodule)
    return datamodule


@functools.cache
def perceptual_or_none(device: torch.device) -> lpips.LPIPS | None:
    """LPIPS, or one line that says why there is no PSIM."""
    try:
        return perceptual_network().to(device)
    except AssetError as error:
        print(f"no PSIM: {error}", flush=True)
        return None


def keep(run: Run, key: str, x: Tensor) -> None:
    """The recovered inputs, for pictures and for whoever wants to look at them."""
    with replacing(run.recovered(key)) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, x=x.cpu().numpy())


def recovered_by(run: Run, results: dict[str, Any], key: str) -> Tensor:
    """What an attack gave back (N, …), as `keep` kept it."""
    shape = (len(results["attacks"][key]["inputs"]), *results["data"]["shape"])
    return torch.from_numpy(run.read_recovered(key, shape))


def draw(run: Run, datamodule: TensorDataModule, results: dict[str, Any]) -> None:
    """Originals and reconstructions by attack, from the best-recovered image to the worst."""
    attacks = {key: each for key, each in results["attacks"].items() if run.recovered(key).is_file()}
    inputs = common_inputs(attacks)
    shown: dict[str, Tensor] = {}
    best = torch.full((len(inputs),), -torch.inf)
    for key, each in attacks.items():
        rows = [each["inputs"].index(index) for index in inputs]
        shown[key] = recovered_by(run, results, key)[rows]
        best = best.maximum(torch.tensor(each["scores"]["psnr"])[rows])
    original = scaled(datamodule.test[0][torch.tensor(inputs)])
    with replacing(run.originals) as temporary, temporary.open("wb") as file:  # reports have no dataset
        np.savez_compressed(file, x=original.numpy(), inputs=np.array(inputs))
    gallery_figure(original, shown, best.argsort(descending=True), run.folder / PICTURE)
