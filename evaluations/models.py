"""A model by name, with its weights, cut somewhere, and data: what `sweetspot attack` audits."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import nn

from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError
from sweetspot.evaluations.audit import Subject
from sweetspot.evaluations.audit_config import AuditConfig
from sweetspot.lightning_modules.defences.defence import release_of
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.networks.foreign import is_code, is_foreign, load_model
from sweetspot.lightning_modules.networks.split import Standardise, built, find_cut
from sweetspot.lightning_modules.networks.splitting import split
from sweetspot.registry import is_users_own
from sweetspot.runs.config import TrainConfig, root_of
from sweetspot.runs.standardise import pixels_by

EXAMPLES = 2  # inputs by which both parts of a cut model are compared with the whole


def subject_of(config: AuditConfig) -> Subject:
    """What a config asks to be audited: the model with its weights, cut, and the data."""
    release = releases_of(config)  # what is wrong with it is said before anything is loaded
    arrays = load(config.data, root_of(config.data_root), config.seed, config.image_size, config.skip_corrupt)
    limits = config.limit_train, config.limit_test
    data = TensorDataModule(arrays, 100, config.seed, 0.0, *limits)
    weights = Path(config.weights) if config.weights is not None else None
    if config.classes and config.classes < data.classes:
        raise UserError(f"--classes must be at least the {data.classes} of the data; got {config.classes}")
    model = load_model(config.model, data.shape, config.classes or data.classes, weights).eval()
    pixels = pixels_by(config.standardise or (["none"] if is_foreign(config.model) else ["data"]), data)
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


def code_of(model: str) -> str:
    """What tells the user's code that makes a model from other code; empty where a library makes it."""
    file = Path(model.partition(":")[0])
    if not is_code(model) or not is_users_own(model) or not file.is_file():
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()
