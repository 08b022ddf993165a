"""A model by name, with its weights, cut somewhere, and data: what `sweetspot attack` audits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError
from sweetspot.evaluations.audit import Subject
from sweetspot.lightning_modules.defences.defence import release_of
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.networks.foreign import is_code, is_foreign, load_model
from sweetspot.lightning_modules.networks.split import Standardise, built, find_cut
from sweetspot.lightning_modules.networks.splitting import split
from sweetspot.registry import is_users_own
from sweetspot.runs.config import AttackConfig, TrainConfig, not_identity, root_of, standardising

EXAMPLES = 2  # inputs by which both parts of a cut model are compared with the whole


@dataclass
class AuditConfig(AttackConfig):
    """An audit.

    Args:
        model: the model: torchvision:resnet18, timm:NAME, path/to/file.py:function, or a network of sweetspot.
        weights: its weights: .safetensors, or .pt and .pth of a state dict. Not given: as its function makes it.
        cut: the submodule whose output is sent, such as layer1; of a network of sweetspot also a block's number.
        data: the dataset, as --dataset of train.py takes it: its test inputs are attacked, its training inputs are the
            attacker's own.
        standardise: what the model expects to be done to images in [0, 1] first: none, data (the mean and standard
            deviation by channel of the attacker's own), or a mean and a standard deviation, as in
            0.485,0.456,0.406 0.229,0.224,0.225. Not given: none, and data for a network of sweetspot.
        image_size: images are scaled and cut to so many pixels a side; 0: as they are.
        classes: how many logits the model gives, where that is more than the data have classes.
        release: what happens to z before it leaves, in order: none, gaussian, laplace, dropout, topk, quantise, clip,
            or your own as path/to/file.py:Class. Noise is in z's own units, for nothing else was trained with it.
        options: of the releases.
        data_root: where datasets lie or are downloaded to; default $SWEETSPOT_DATA, else data/.
        limit_train: the attacker has only so many inputs of its own, class-balanced; 0 for all.
        limit_test: use only so many test inputs, class-balanced; 0 for all.
        out: the folder of all runs and audits.
        page: an .html file for the page; default: audit.html in the audit's folder.
        seed: everything random follows from it.
    """

    model: str = ""
    weights: str | None = not_identity(None)
    cut: str = not_identity("")
    data: str = not_identity("")
    standardise: list[str] = not_identity([])
    image_size: int = not_identity(0)
    classes: int = not_identity(0)
    release: list[str] = not_identity([])
    options: dict[str, Any] = field(default_factory=dict)
    data_root: str | None = not_identity(None)
    limit_train: int = not_identity(0)
    limit_test: int = not_identity(0)
    out: str = not_identity("checkpoints")
    page: str | None = not_identity(None)
    seed: int = not_identity(0)

    def __post_init__(self) -> None:
        self.attack_seed = self.seed
        super().__post_init__()
        standardising(self.standardise)
        for flag, value in (("cut", self.cut), ("data", self.data)):
            if not value:
                raise UserError(f"--{flag} is needed; see sweetspot attack --help")
        for flag, count in (("image-size", self.image_size), ("classes", self.classes)):
            if count < 0:
                raise UserError(f"--{flag} must be at least 0; got {count}")


def subject_of(config: AuditConfig) -> Subject:
    """What a config asks to be audited: the model with its weights, cut, and the data."""
    release = releases_of(config)  # what is wrong with it is said before anything is loaded
    arrays = load(config.data, root_of(config.data_root), config.seed, config.image_size)
    limits = config.limit_train, config.limit_test
    data = TensorDataModule(arrays, 100, config.seed, 0.0, *limits)
    weights = Path(config.weights) if config.weights is not None else None
    if config.classes and config.classes < data.classes:
        raise UserError(f"--classes must be at least the {data.classes} of the data; got {config.classes}")
    model = load_model(config.model, data.shape, config.classes or data.classes, weights).eval()
    pixels = pixels_of(config, data)
    example = scaled(data.test[0][:EXAMPLES])
    cut = config.cut
    if not is_foreign(config.model):
        cut = find_cut(built(config.model, data.shape, config.classes or data.classes), cut)
    standardise = None if pixels is None else Standardise(**pixels)
    encoder, head = split(model, cut, example if standardise is None else standardise(example))
    if standardise is not None:
        encoder = nn.Sequential(standardise, encoder)
    asked = {"dataset": config.data, "image_size": config.image_size, "pixels": pixels, "classes": config.classes}
    named = weights.name if weights is not None else ""
    return Subject(encoder, head, release, data, config.model, cut, named, code_of(config.model), asked)


def releases_of(config: AuditConfig) -> Chain:
    """The releases that are asked for; noise is raw unless `--unit` says otherwise."""
    chosen = TrainConfig.of(defence="none", lam=0.0, release=config.release or ["none"], options=config.options)
    record = chosen.release_record()
    for each in record:
        if "unit" in each and "unit" not in config.options:
            each["unit"] = "raw"  # the head was trained on z as it is
    return Chain(*map(release_of, record))


def pixels_of(config: AuditConfig, data: TensorDataModule) -> dict[str, list[float]] | None:
    """Mean and standard deviation by channel that the model expects to be taken off its images; None: nothing is."""
    asked = config.standardise or (["none"] if is_foreign(config.model) else ["data"])
    given = standardising(asked)
    if given is None:
        return data.pixels() if asked == ["data"] else None
    if len(data.shape) != 3:
        raise UserError(f"--standardise scales images, and {data.arrays.name} has none")
    channels = data.shape[0]
    if any(len(each) not in (1, channels) for each in given):
        raise UserError(
            f"--standardise must have one number, or one for each of {channels} channels; got {' '.join(asked)}"
        )
    mean, std = (each * channels if len(each) == 1 else each for each in given)
    return {"mean": mean, "std": std}


def code_of(model: str) -> str:
    """What tells the user's code that makes a model from other code; empty where a library makes it."""
    file = Path(model.partition(":")[0])
    if not is_code(model) or not is_users_own(model) or not file.is_file():
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()
