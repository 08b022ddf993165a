"""A training batch out of one gradient: of a federated round that is played here, or of one that leaked."""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.gradients.activations import Activation
from sweetspot.attacks.gradients.deep import DeepWeights, chosen_deep_weights, deep_gradient, gain, reconstruct_deep
from sweetspot.attacks.gradients.defences import clipped, noisy, pruned
from sweetspot.attacks.gradients.federated import Gradient
from sweetspot.attacks.gradients.reconstruct import EXACT_LABEL, Estimate, Recovered, steepness
from sweetspot.datamodules import load
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError
from sweetspot.evaluations.gradient_config import BATCH, DIM, SCOPE, GradientConfig
from sweetspot.metrics.gradients import BatchScore, batch_score
from sweetspot.runs.choices import LOSSES
from sweetspot.runs.config import root_of
from sweetspot.runs.environment import environment, pick_device
from sweetspot.runs.tensor_files import load_tensors

TENSORS = ("w", "a", "grad_w", "grad_a")
KEYS = (*TENSORS, "bias", "inner", "x", "y")
RIGHT = 0.5  # labels differ by 1 or more


@dataclass(frozen=True)
class Data:
    """What is known of the samples beside themselves.

    Args:
        name: of the dataset.
        source: where it came from.
        shape: of an image (C, H, W); empty for vectors.
        labels: which can occur.
    """

    name: str
    source: str
    shape: list[int] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Round:
    """A federated round, and the truth where it is known.

    Args:
        weights: what the server sent.
        gradient: what the client sent back, shaped as the weights.
        truth: the samples (B, d) and labels (B,), for scores only.
        data: what the samples are.
    """

    weights: DeepWeights
    gradient: DeepWeights
    truth: tuple[Tensor, Tensor] | None
    data: Data


def invert_gradient(config: GradientConfig) -> dict[str, Any]:
    """What was recovered, and whether to believe it; with the true batch known, how far it is from it."""
    device = double_device(config.device)
    began = time.perf_counter()
    played = leaked_round(config, device) if config.states is not None else played_round(config, device)
    data, seconds = played.data, {"client": time.perf_counter() - began}
    batch = config.batch or (len(played.truth[1]) if config.states is None and played.truth else None)
    recovered = reconstruct_deep(
        played.gradient, played.weights, config.sigma,
        batch=batch, seed=config.seed, polish=not config.tensor_only, source=config.source, subspace=config.subspace,
        norm=config.norm, labels=known_labels(config, data),
        loss=None if finds_loss(config) else config.loss or LOSSES[0],
    )  # fmt: skip
    seconds |= recovered.seconds
    stages: dict[str, Estimate] = {"tensor": recovered.tensor}
    if not config.tensor_only:
        stages["polished"] = recovered
    numbers = {name: in_numbers(stage, played.truth, recovered) for name, stage in stages.items()}
    results: dict[str, Any] = {
        "network": network_of(played.weights, config.activation),
        "data": {"name": data.name, "source": data.source, "shape": data.shape, "batch": len(recovered.y)},
        "config": dataclasses.asdict(config),
        "verdict": believed(recovered.verdict, numbers, config.labels),
        "loss": {"name": recovered.loss, "found": list(recovered.fits)},
        "residual": recovered.residual,
        "unknown": list(recovered.unknown),
        "recovered": numbers,
        "seconds": seconds | {"attack": sum(recovered.seconds.values())},
        "environment": environment(device, config.seed, sum(seconds.values())),
    }
    if results["verdict"] == "exact samples" and config.clip is None and not config.labels:
        results["fitting_losses"] = whole_by(recovered)
    if played.truth is not None:
        results["truth"] = {"x": played.truth[0].tolist(), "y": played.truth[1].tolist()}
    return results


def finds_loss(config: GradientConfig) -> bool:
    """Whether the client's loss is found by the known labels; a clipped gradient has no scale to tell it by."""
    return bool(config.labels) and config.loss is None and config.clip is None


def known_labels(config: GradientConfig, data: Data) -> list[float] | None:
    """The labels that occur, where the attack needs them: to find a loss, or to undo clipping."""
    if finds_loss(config):
        return config.labels
    return None if config.clip is None else config.labels or data.labels


def believed(verdict: str, stages: dict[str, dict[str, Any]], known: list[float]) -> str:
    """The verdict on samples and labels: "exact" becomes "exact samples" where the labels cannot be right.

    Labels are right if they are the true ones or, where nobody knows these, of the known set, or else whole numbers.
    """
    last = stages["polished" if "polished" in stages else "tensor"]
    wrong = last.get("label_error") or [min(abs(y - each) for each in known or [round(y)]) for y in last["y"]]
    return "exact samples" if verdict == "exact" and max(wrong) > EXACT_LABEL else verdict


def whole_by(recovered: Recovered) -> list[str]:
    """The client's losses by which all labels would be whole numbers, as classes and ±1 are."""
    fitting, batch = [], len(recovered.y)
    for loss in LOSSES:
        r = recovered.r * steepness(recovered.loss, batch) / steepness(loss, batch)
        y = recovered.y + recovered.r - r
        if (y - y.round()).abs().max() <= EXACT_LABEL:
            fitting.append(loss)
    return fitting


def double_device(name: str) -> torch.device:
    """The device of a name, if it computes in double precision: `auto` takes the CPU where the accelerator does not."""
    device = pick_device(name)
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError) as error:  # Apple's
        if name != "auto":
            raise UserError(f"--device {name} does not compute in double precision; try cpu") from error
        return torch.device("cpu")
    return device


def network_of(weights: DeepWeights, activation: str) -> dict[str, Any]:
    """A network in words."""
    width, inputs = weights.last.shape
    dim = inputs // 2 if weights.inner else inputs
    return {
        "activation": activation,
        "width": width,
        "dim": dim,
        "depth": len(weights.inner) + 2,
        "bias": weights.bias,
    }


def in_numbers(stage: Estimate, truth: tuple[Tensor, Tensor] | None, recovered: Recovered) -> dict[str, Any]:
    """A stage's batch, in the order of the true one where that is known, with its scores."""
    numbers: dict[str, Any] = {"x": stage.x.tolist(), "y": stage.y.tolist(), "residual": stage.residual}
    if truth is None:
        return numbers
    sign, scale = ("sign" in recovered.unknown), ("scale" in recovered.unknown)
    score = batch_score(stage.x, stage.y, *truth, up_to_sign=sign, up_to_scale=scale)
    return numbers | scores_of(score, stage)


def scores_of(score: BatchScore, stage: Estimate) -> dict[str, Any]:
    """How far a batch is from the true one."""
    return {
        "x": (score.sign[:, None] * stage.x[score.order]).tolist(),
        "y": stage.y[score.order].tolist(),
        "rms": score.rms,
        "error": score.error.tolist(),
        "worst": float(score.error.max()),
        "label_error": score.labels.tolist(),
        "labels_right": float((score.labels < RIGHT).double().mean()),
    }


def played_round(config: GradientConfig, device: torch.device) -> Round:
    """The round that a config describes: the client's batch, its gradient, and what the client does to it."""
    if config.dataset is None:
        x, y = synthetic_batch(config)
        data = Data(f"synthetic ({config.inputs})", "drawn", [], [1.0, -1.0])
    else:
        x, y, data = images_of(config)
    if len(x) > x.shape[1]:
        raise UserError(
            f"--batch {len(x)} is larger than the dimension {x.shape[1]}: the samples cannot be independent"
        )
    plain = chosen_deep_weights(x.shape[1], config.width, config.depth, config.sigma, config.seed + 1, config.bias)
    weights = replace(
        plain, inner=tuple(w.to(device) for w in plain.inner), last=plain.last.to(device), a=plain.a.to(device)
    )
    x, y = x.to(weights.last), y.to(weights.last)
    gradient = defended(deep_gradient(x, y, weights, config.sigma), config, steepness(config.loss or LOSSES[0], len(x)))
    return Round(weights, gradient, (x, y), data)


def synthetic_batch(config: GradientConfig) -> tuple[Tensor, Tensor]:
    """Unit vectors (B, d) and labels 1, −1, 1, … (B,)."""
    batch, dim = config.batch or BATCH, config.dim or DIM
    y = torch.where(torch.arange(batch) % 2 == 0, 1.0, -1.0).double()
    if config.inputs == "basis":
        return torch.eye(batch, dim, dtype=torch.float64), y
    x = torch.randn(batch, dim, generator=torch.Generator().manual_seed(config.seed), dtype=torch.float64)
    return x / torch.linalg.vector_norm(x, dim=1, keepdim=True), y


def images_of(config: GradientConfig) -> tuple[Tensor, Tensor, Data]:
    """Training images (B, d) of unit norm, their classes (B,), and what they are.

    One of every class in turn, or all of the same class.
    """
    arrays, batch = load(config.dataset, root_of(config.data_root), config.seed), config.batch or BATCH
    generator = torch.Generator().manual_seed(config.seed)
    classes = torch.randperm(arrays.classes, generator=generator).tolist()
    queues = [(arrays.y_train == c).nonzero()[:, 0] for c in (classes[:1] if config.same_label else classes)]
    queues = [queue[torch.randperm(len(queue), generator=generator)] for queue in queues]
    rounds = max(len(queue) for queue in queues)
    picked = [int(queue[turn]) for turn in range(rounds) for queue in queues if turn < len(queue)][:batch]
    if len(picked) < batch:
        raise UserError(f"--batch {batch}: {arrays.name} has only {len(picked)} such samples")
    images = scaled(arrays.x_train[picked]).double()
    x = images.flatten(1)
    size = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    if not (size > 0).all():
        raise UserError(
            f"--dataset {config.dataset}: a sample is 0 everywhere and cannot be scaled; try another --seed"
        )
    shape = list(images.shape[1:]) if images.ndim == 4 else []
    data = Data(arrays.name, arrays.source, shape, [float(c) for c in range(arrays.classes)])
    return x / size, arrays.y_train[picked].double(), data


def defended(gradient: DeepWeights, config: GradientConfig, factor: float = 1.0) -> DeepWeights:
    """The gradient as it leaves the client: of its own loss, clipped, then noisy, then pruned."""
    sent = Gradient(factor * gradient.a, factor * gradient.last)
    sent = sent if config.clip is None else clipped(sent, config.clip)
    sent = noisy(sent, config.noise, config.seed + 2) if config.noise else sent
    sent = pruned(sent, config.prune) if config.prune else sent
    return replace(gradient, a=sent.a, last=sent.w)


def leaked_round(config: GradientConfig, device: torch.device) -> Round:
    """The round in a file; tensors only, nothing that runs."""
    path = Path(str(config.states))
    loaded = load_tensors("--states", path)
    held = {name: value.to(device) for name, value in checked_states(loaded, path).items()}
    bias = held.pop("bias", torch.tensor(0.0))
    inner = tuple(held[name] for name in sorted(name for name in held if name.startswith("inner.")))
    weights = DeepWeights(inner, held["w"], held["a"], float(bias), gain(config.sigma) if inner else 1.0)
    if inner:
        check_inner(weights, config.sigma, path)
    truth = (held["x"].flatten(1), held["y"].flatten()) if {"x", "y"} <= set(held) else None
    if truth is not None and truth[0].shape[1] != network_of(weights, config.activation)["dim"]:
        raise UserError(f"--states {path}: x is {tuple(truth[0].shape)}, which is not what w (m, d) takes")
    return Round(
        weights, DeepWeights((), held["grad_w"], held["grad_a"], 0.0), truth, Data(printable(path.name), "leaked")
    )


def printable(name: str) -> str:
    """A file's name as text, also where its bytes are none."""
    return name.encode("utf-8", "backslashreplace").decode()


def checked_states(loaded: Any, path: Path) -> dict[str, Tensor]:
    """What a file holds, in double precision, by name; the layers of `inner` as inner.000, inner.001, …"""
    if not isinstance(loaded, dict):
        raise UserError(f"--states {path} must hold the tensors {', '.join(TENSORS)} by name; see --help")
    check_scope(loaded, path)
    if not set(TENSORS) <= set(loaded):
        raise UserError(f"--states {path} must hold the tensors {', '.join(TENSORS)} by name; {SCOPE}")
    loaded = with_inner_listed(loaded)
    if unknown := sorted(str(key) for key in set(loaded) - set(KEYS)):
        raise UserError(f"--states {path} holds {unknown[0]}, which is none of {', '.join(KEYS)}; {SCOPE}")
    loaded = {key: as_row(value) if key in ("a", "grad_a") else value for key, value in loaded.items()}
    layers = loaded.pop("inner", [])
    if not isinstance(layers, list | tuple):
        raise UserError(f"--states {path}: inner must be a list of tensors")
    held = loaded | {f"inner.{number:03}": layer for number, layer in enumerate(layers)}
    if isinstance(held.get("bias"), int | float):
        held["bias"] = torch.tensor(float(held["bias"]))
    for name, value in held.items():
        if not isinstance(value, Tensor) or value.is_complex() or (name == "bias" and value.numel() != 1):
            raise UserError(f"--states {path}: {name} must be {'a number' if name == 'bias' else 'a real tensor'}")
        if not torch.isfinite(value).all():
            raise UserError(f"--states {path}: {name} holds NaN or infinity")
    rows = held["w"].shape[:1]
    expected = {"w": (*rows, *held["w"].shape[1:2], *[1] * (2 - held["w"].ndim)), "a": rows, "grad_a": rows}
    for name, shape in (expected | {"grad_w": expected["w"]}).items():
        if held[name].shape != shape:
            raise UserError(
                f"--states {path}: {name} is {tuple(held[name].shape)}; w and grad_w must be (m, d), a and grad_a (m,)"
            )
    return {name: value.double() for name, value in held.items()}


def check_scope(loaded: dict[Any, Any], path: Path) -> None:
    """Refuse networks and losses that the attack is not about, each by what it is known by."""
    shapes = {str(key): tuple(value.shape) for key, value in loaded.items() if isinstance(value, Tensor)}
    for name, shape in shapes.items():
        if len(shape) > 2 and name != "x":
            raise UserError(f"--states {path}: {name} is {shape}, as a convolution's; {SCOPE}")
        if re.fullmatch(r"(grad_)?(b\d*|biases)|grad_bias|.*\.bias", name):
            raise UserError(f"--states {path} holds {name}: biases that are trained are out of scope; {SCOPE}")
    for name in ("a", "grad_a"):
        if len(shape := shapes.get(name, ())) == 2 and min(shape) > 1:
            raise UserError(
                f"--states {path}: {name} is {shape}, of several outputs, as cross-entropy has them; {SCOPE}"
            )


def as_row(value: Any) -> Any:
    """The last layer's weights (m,), also where they are written as torch does, (1, m)."""
    return value.flatten() if isinstance(value, Tensor) and value.ndim == 2 and 1 in value.shape else value


def with_inner_listed(loaded: dict[Any, Any]) -> dict[Any, Any]:
    """What a file holds with the layers inner.0, inner.1, … as the list `inner`: not every format has lists."""
    numbered = sorted((key for key in loaded if re.fullmatch(r"inner\.\d+", str(key))), key=lambda key: int(key[6:]))
    rest = {key: value for key, value in loaded.items() if key not in numbered}
    return rest | {"inner": [loaded[key] for key in numbered]} if numbered else rest


def check_inner(weights: DeepWeights, sigma: Activation, path: Path) -> None:
    """Refuse deep weights other than Algorithm 2's: through others, the first layers cannot be undone."""
    dim = weights.last.shape[1] // 2
    ours = chosen_deep_weights(dim, 1, len(weights.inner) + 2, sigma).inner
    halves = weights.last[:, :dim], weights.last[:, dim:]
    same = all(
        theirs.shape == layer.shape and torch.allclose(theirs.cpu(), layer, atol=1e-6)
        for theirs, layer in zip(weights.inner, ours, strict=True)
    )
    if not same or 2 * dim != weights.last.shape[1] or not torch.allclose(halves[0], -halves[1], atol=1e-6):
        raise UserError(f"--states {path}: a deep network's weights must be those of Algorithm 2")
