"""What stands beside the attacks of a run: leak beyond the label, identity, certificate, cost, and warnings."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks import Victim
from sweetspot.attacks.queries import asked_often
from sweetspot.attacks.threat_model import device_of
from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.mapped import part_of
from sweetspot.datamodules.tensors import scaled
from sweetspot.evaluations.case import Case
from sweetspot.evaluations.conditions import KINDS, is_random
from sweetspot.lightning_modules.defences.releases import Chain, Laplace
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.metrics.certificates import certificate, gaussian_of, reid_measured
from sweetspot.metrics.cost import MOST_TRAINED_ON, cost, server_gain
from sweetspot.metrics.leak import floor_on, label_only, leak_record
from sweetspot.metrics.summary import BESIDE, GALLERY, scored, worst_case, worst_scores
from sweetspot.reports.tables import attack_line
from sweetspot.runs.environment import environment

GALLERY_FORMAT = 1  # raised when the gallery attack begins to mean something else
TESTS = 5000  # test inputs, class by class at random, that galleries and certificates are made of
DIAGNOSED = 50  # inputs of which the diagnostic takes the Jacobian
BATCH = 500  # inputs that are encoded together
MASKED = 0.1  # of SSIM: a decoder that is better by more than this says that the white box's gradients fail it
GUESSING = 1.5  # times the accuracy of a guess: a network that is no better was probably loaded wrongly
STILL_HELPS = 0.01  # of SSIM: what the last step of the attacker's data may add before it is said


# ---------------------------------------------------------------------- leak beyond the label


def add_leaks(results: dict[str, Any]) -> None:
    """Give every attack, every condition and the worst case over attacks its leak beyond the label."""
    attacks = results["attacks"]
    results["worst_case"] = worst_case(attacks)
    floors = label_only(attacks)
    if not floors:
        return
    for record in attacks.values():
        add_leak(record, record["inputs"], floors)
        for kind in KINDS:
            for each in record.get(kind, {}).values():
                add_leak(each, each["inputs"], floors)
    inputs, scores = worst_scores(attacks)
    count = len(results["worst_case"].get("attacks", []))
    if count and (floor := floor_on(inputs, floors, count)):
        results["worst_case"] |= leak_record(scores, floor)


def add_leak(record: dict[str, Any], inputs: list[int], floors: list[dict[str, Any]]) -> None:
    """Give one record its leak beyond the best label-only attacker, where that one saw the same inputs."""
    if floor := floor_on(inputs, floors, 1):
        if "blind" in record:  # a guess among the candidates, who all have the label
            floor["reid"] = torch.full((len(inputs),), record["blind"])
        record |= leak_record(record["scores"], floor)


# ---------------------------------------------------------------------- identity, certificate, cost


def add_identity(results: dict[str, Any], case: Case, datamodule: TensorDataModule, queries: list[int]) -> None:
    """Give the run its gallery attack and its certificate, for one answer and for several, where they are not there."""
    if has_identity(results, len(case.inputs), queries):
        return
    tests, done = tests_of(case, datamodule), results["attacks"].get(GALLERY, {})
    if done.get("samples", 0) < len(case.inputs) or "certificate" not in results:
        wanted = sorted({*averaged(results, queries), *done.get("queries", {})}, key=int)
        done = reidentified(case, case.victim, datamodule, tests)
        results["attacks"][GALLERY] = {**done, "queries": {}}
        results["certificate"] = certified(case, datamodule, tests, 1)
        print(attack_line(GALLERY, done), flush=True)
    else:
        wanted = [each for each in averaged(results, queries) if each not in done["queries"]]
    for each in wanted:
        victim = asked_often(case.victim, int(each))
        results["attacks"][GALLERY]["queries"][each] = reidentified(case, victim, datamodule, tests)
        if results["certificate"] is not None:
            more = results["certificate"].setdefault("for_queries", {})
            more[each] = certified(case, datamodule, tests, int(each))


def has_identity(results: dict[str, Any], samples: int, queries: list[int]) -> bool:
    """Whether the gallery attack was run on so many inputs and for so many answers, and there is a certificate."""
    done = results["attacks"].get(GALLERY, {})
    enough = done.get("samples", 0) >= samples and set(averaged(results, queries)) <= set(done.get("queries", {}))
    return enough and "certificate" in results


def averaged(results: dict[str, Any], queries: list[int]) -> list[str]:
    """The numbers of answers that are worth averaging: without noise all are alike."""
    return [str(each) for each in queries if each > 1] if is_random(results["defence"].get("release")) else []


def tests_of(case: Case, datamodule: TensorDataModule) -> Tensor:
    """Test inputs, by index, for galleries: the attacked ones and others, as many of each class as there can be."""
    wanted = min(len(datamodule.test[1]), max(TESTS, len(case.inputs)))
    chosen: Tensor = torch.cat([torch.tensor(case.inputs), datamodule.sample_of_tests(wanted)]).unique()
    return chosen


def reidentified(case: Case, victim: Victim, datamodule: TensorDataModule, tests: Tensor) -> dict[str, Any]:
    """The gallery attack: among inputs of the same class, which one was sent? As results keep it.

    The attacker has the candidates' inputs, and answers with the one whose expected answer is nearest: for Gaussian
    noise nobody can do better.
    """
    began = time.perf_counter()
    x, y = datamodule.test[0][tests], datamodule.test[1][tests]
    expected = encoded(victim.represent, x, case.device)
    releases = victim.release.releases() if isinstance(victim.release, Chain) else []
    distance = "l1" if any(isinstance(each, Laplace) for each in releases) else "squared"
    places = torch.searchsorted(tests, torch.tensor(case.inputs))
    z = case.released(victim).flatten(1)
    found = reid_measured(z, expected, y.to(case.device), seed=case.seed, distance=distance, inputs=places)
    assert found.hits is not None
    assert found.picked is not None
    answers = scaled(x[found.picked.cpu()].to(case.device))
    made_with = environment(case.device, case.seed, time.perf_counter() - began)
    return {
        **scored({**case.scorer().score(answers), "reid": found.hits.float()}),
        "residual": victim.residual(answers, z).mean().item(),
        "blind": found.blind,
        "inputs": case.inputs,
        "samples": len(case.inputs),
        "settings": {"gallery": found.gallery, "seed": case.seed},
        "stopped": False,
        "format": GALLERY_FORMAT,
        "seconds": made_with["seconds"],
        "environment": made_with,
    }


def certified(case: Case, datamodule: TensorDataModule, tests: Tensor, queries: int) -> dict[str, Any] | None:
    """The certificate of a Gaussian release on test inputs; None where nothing of the kind leaves the client."""
    victim = case.victim
    release = gaussian_of(victim.release) if isinstance(victim.release, Chain) else None
    if release is None:
        return None

    def noiseless(x: Tensor) -> Tensor:
        z: Tensor = release.before(victim.encoder(x)).flatten(1)
        return z

    x, y = datamodule.test[0][tests], datamodule.test[1][tests]
    h = encoded(noiseless, x, case.device)
    some = scaled(case.x[:DIAGNOSED])
    return certificate(
        h, y.to(case.device), release.sigma, release.clip, noiseless, some, queries=queries, seed=case.seed
    )


@torch.no_grad()
def encoded(encode: Callable[[Tensor], Tensor], x: Tensor, device: torch.device) -> Tensor:
    """A function of inputs x (N, …), flat, some at a time."""
    return torch.cat([encode(scaled(part.to(device))).flatten(1) for part in x.split(BATCH)])


def add_cost(results: dict[str, Any], victim: Victim, datamodule: TensorDataModule, seed: int) -> None:
    """Give the run what either side computes, and what its server adds to a linear classifier, where it is missing."""
    if "cost" in results:
        return
    spent: dict[str, Any] = {**cost(victim.encoder, victim.head, victim.shape)}
    if len(datamodule.train[1]):  # a linear classifier needs something to be trained on
        spent["server_gain"] = gain_of(results["utility"]["accuracy"], victim, datamodule, seed)
    results["cost"] = spent


def gain_of(accuracy: float, victim: Victim, datamodule: TensorDataModule, seed: int) -> float:
    """What the server adds to the accuracy of a linear classifier on what is released."""
    device = device_of(victim)
    count = min(len(datamodule.train[1]), MOST_TRAINED_ON)
    chosen = torch.linspace(0, len(datamodule.train[1]) - 1, count).long()
    with draws_from(seed, device):
        z_train = encoded(victim.released, part_of(datamodule.train[0], chosen), device)
        z_test = encoded(victim.released, datamodule.test[0], device)
    return server_gain(accuracy, z_train, datamodule.train[1][chosen], z_test, datamodule.test[1], datamodule.classes)


# ---------------------------------------------------------------------- warnings


def warnings_of(results: dict[str, Any]) -> list[str]:
    """What a reader must know before believing the figures, each with its figure."""
    attacks, found = results["attacks"], []
    found += masked_gradients(attacks)
    for key, record in attacks.items():
        found += data_that_still_help(key, record, results["data"]["train"])
        if record.get("stopped"):
            found.append(f"{key} was stopped early: its figure is less than it would get")
    real = {key: each for key, each in attacks.items() if key not in BESIDE}
    if "audit" in results:
        found += warnings_of_audit(results)
    random = results.get("random_release", is_random(results["defence"].get("release")))
    if random and any("draws" not in each for each in real.values()):
        found.append("the release is random and was attacked with one draw of it; --draws 5 says how much draws differ")
    return found


def warnings_of_audit(results: dict[str, Any]) -> list[str]:
    """What may be wrong with what was given to be audited, and what an attacker without data leaves open."""
    data, shared, accuracy = results["data"], results["audit"]["shared_inputs"], results["utility"]["accuracy"]
    found = []
    if not data["train"]:
        left_out = results.get("needs_data", [])
        more = f" and {', '.join(left_out)} were not run" if left_out else ""
        found.append(
            "the attacker had no data of its own: nobody knows what the label alone gives back, so there is no leak"
            f"{more}; an attacker with data may get more"
        )
    if shared:
        found.append(f"{shared:,} of {data['test']:,} test inputs are among the attacker's own: decoders knew them")
    if accuracy <= GUESSING / data["classes"]:
        found.append(
            f"accuracy {100 * accuracy:.1f} % is hardly better than guessing among {data['classes']} classes: look at "
            "the weights, the labels and the normalisation"
        )
    return found


def masked_gradients(attacks: dict[str, Any]) -> list[str]:
    """A line where a decoder, which needs no gradient of the victim, beats every white box by far."""
    boxes = {key: each["ssim"]["mean"] for key, each in attacks.items() if "ssim" in each and "whitebox/" in key}
    decoders = {key: each["ssim"]["mean"] for key, each in attacks.items() if "ssim" in each and "decoder/" in key}
    if not boxes or not decoders:
        return []
    box, decoder = max(boxes, key=boxes.__getitem__), max(decoders, key=decoders.__getitem__)
    if decoders[decoder] - boxes[box] <= MASKED:
        return []
    return [
        f"{decoder} recovers SSIM {decoders[decoder]:.2f} where {box}, the best white box, gets {boxes[box]:.2f}: "
        "gradients may be masked, so white-box figures alone say little here"
    ]


def data_that_still_help(key: str, record: dict[str, Any], inputs: int) -> list[str]:
    """A line where the largest amounts of the attacker's data still differ: more would give more."""
    sizes = sorted(record.get("attacker_data", {}), key=int)
    if not sizes or "ssim" not in record:
        return []
    fewer, all_of_them = record["attacker_data"][sizes[-1]]["ssim"]["mean"], record["ssim"]["mean"]
    if all_of_them - fewer <= STILL_HELPS:
        return []
    return [
        f"more data still help {key}: SSIM {fewer:.3f} with {int(sizes[-1]):,} inputs of its own, "
        f"{all_of_them:.3f} with all {inputs:,}: its figure is a lower bound"
    ]
