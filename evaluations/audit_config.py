"""AuditConfig: which model is attacked without a run, on what, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sweetspot.errors import UserError
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.fields import not_identity
from sweetspot.runs.standardise import standardising


@dataclass
class AuditConfig(AttackConfig):
    """An audit.

    Args:
        model: the model: torchvision:resnet18, timm:NAME, path/to/file.py:function, or a network of sweetspot.
        weights: its weights: .safetensors, or .pt and .pth of a state dict. Not given: as its function makes it.
        cut: the submodule whose output is sent, such as layer1; of a network of sweetspot also a block's number;
            ? lists them.
        data: the dataset, as --dataset of train.py takes it: its test inputs are attacked, its training inputs are the
            attacker's own.
        standardise: what the model expects to be done to images in [0, 1] first: none, data (the mean and standard
            deviation by channel of the attacker's own), or a mean and a standard deviation, as in
            0.485,0.456,0.406 0.229,0.224,0.225. Not given: none, and data for a network of sweetspot.
        image_size: images are scaled and cut to so many pixels a side; 0: as they are.
        skip_corrupt: leave out image files that cannot be read, instead of refusing them.
        classes: how many logits the model gives, where that is more than the data have classes.
        release: what happens to z before it leaves, in order: none, gaussian, laplace, dropout, topk, quantise, clip,
            or your own as path/to/file.py:Class. Noise is in z's own units, for nothing else was trained with it. Not
            given: none.
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
    skip_corrupt: bool = not_identity(False)
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
