"""The runs of MixCon's three experiments, as configs/ has them, and the figures that are read from their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweetspot.reproductions.needs import TrainedRun, experiment_flags
from sweetspot.reproductions.verdict import Figure, Record, Within

IMAGES = ("mnist", "fashion-mnist", "svhn")
TITLES = {"mnist": "MNIST", "fashion-mnist": "F-MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10"}
LAMBDA = {"mnist": 1.0, "fashion-mnist": 1.0, "svhn": 0.5}  # of Tables 3 and 4
QUICK_NOTE = "5 epochs on 5,000 images (MNIST: mnist-5k), 40 attacked, one seed"
PAPER_ATTACK = "whitebox/paper"
ACCURACY = Within(1.0)  # per cent: the last epochs of a MixCon run swing by about half of it
SIMILARITY = Within(0.05)  # SSIM and PSIM of 100 images: four of their standard errors
Defence = Mapping[str, Any]
VANILLA: Defence = {"defence": "none", "lam": 0.0}


def mixcon(lam: float, beta: float) -> Defence:
    """MixCon(λ, β)."""
    return {"defence": "mixcon", "lam": lam, "beta": beta}


def unicon(lam: float) -> Defence:
    """UniCon(λ)."""
    return {"defence": "unicon", "lam": lam}


def lenet(dataset: str, defence: Defence, seed: int, quick: bool, attacks: tuple[str, ...] = ()) -> TrainedRun:
    """Experiment 2: LeNet5, cut after its 2nd block."""
    flags = {**experiment_flags(dataset.replace("-", "_")), **defence, "seed": seed}
    if quick:
        small: dict[str, Any] = {"dataset": "mnist-5k"} if dataset == "mnist" else {"limit_train": 5000}
        flags |= {**small, "epochs": 5}
    return TrainedRun(flags, attacks, samples=40 if quick else 100)


def synthetic(
    defence: Defence, seed: int, quick: bool, head: str = "default", attacks: tuple[str, ...] = ()
) -> TrainedRun:
    """Experiment 1: two Gaussians in R^10, an MLP whose cut layer is a plane."""
    written = experiment_flags("synthetic")
    samples, beta, epsilon = (written.pop(name) for name in ("samples", "beta", "epsilon"))
    own = {"epsilon": epsilon, "beta": beta} if defence["defence"] == "mixcon" else {}
    flags = {**written, **own, **defence, "seed": seed, "head": head} | ({"epochs": 4} if quick else {})
    return TrainedRun(flags, attacks, samples=samples)


def vgg(defence: Defence, seed: int, quick: bool) -> TrainedRun:
    """Experiment 3: VGG16 on CIFAR-10, cut after its 2nd block, attacked by the GAN decoder."""
    written = experiment_flags("cifar10_vgg16")
    del written["beta"]
    small = {"epochs": 1, "limit_train": 1000, "batch_size": 50, "milestones": []} if quick else {}
    options = {"decoder_epochs": 1 if quick else 50}
    flags = {**written, **small, **defence, "seed": seed}
    return TrainedRun(flags, ("decoder/paper",), samples=40 if quick else 100, options=options)


def accuracy(records: Sequence[Record]) -> Figure:
    """Test accuracy in per cent."""
    return Figure(100 * records[0]["utility"]["accuracy"])


def training_accuracy(records: Sequence[Record]) -> Figure | None:
    """Accuracy in the last epoch on what is trained on, in per cent."""
    history = records[0].get("training", {}).get("history", [])
    return Figure(100 * history[-1]["train/accuracy"]) if history and "train/accuracy" in history[-1] else None


def distance(record: Record) -> float:
    """The mean distance of two test representations of unit norm."""
    return float(record["separability"]["mean"])


def score(metric: str, attack: str = PAPER_ATTACK) -> Callable[[Sequence[Record]], Figure | None]:
    """What an attack recovered, by a metric; where it was not measured, as PSIM without AlexNet's weights, nothing."""

    def read(records: Sequence[Record]) -> Figure | None:
        found = records[0]["attacks"][attack].get(metric)
        return Figure(found["mean"], found["std"], found["worst"]) if found else None

    return read
