"""TrainConfig: everything that defines one run, from flags and YAML files.

Parsers are built from the classes here; what needs torch is imported where a config is made, and not before.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweetspot.errors import UserError, check_one_of
from sweetspot.options import options_of
from sweetspot.registries import PENALTIES, RELEASES
from sweetspot.registry import is_users_own
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.choices import LANGUAGE_MODELS, LARGEST_SIZE, LEAST_SIZE, PARTNERS, SCHEDULES, TRAINED
from sweetspot.runs.fields import not_identity
from sweetspot.runs.identity import ONCE_FIELDS, identity_of, run_name
from sweetspot.runs.standardise import standardising

if TYPE_CHECKING:
    from sweetspot.lightning_modules.defences import Part, Penalty

TRAINER_DEFAULTS: dict[str, Any] = {
    "devices": 1,  # a run means the same on every machine; several devices are asked for
    "num_sanity_val_steps": 0,
    "deterministic": "warn",  # same seed, same machine: same weights, also on a GPU
}


def one_spelling(trainer: dict[str, Any]) -> dict[str, Any]:
    """The Trainer's arguments with one spelling for one meaning: 4 for "4", nothing for the default precision.

    Example:
        >>> one_spelling({"devices": "4", "precision": "32-true", "gradient_clip_val": 1.0})
        {'devices': 4, 'gradient_clip_val': 1}
    """
    spelled: dict[str, Any] = {}
    for name, value in trainer.items():
        if (isinstance(value, str) and value.isdecimal()) or (
            isinstance(value, float) and value.is_integer() and name == "gradient_clip_val"
        ):
            value = int(value)
        if not (name == "precision" and value in (None, 32, "32-true")):
            spelled[name] = value
    return spelled


def root_of(data_root: str | None) -> Path:
    """Where datasets lie: what was given, else $SWEETSPOT_DATA, else data/."""
    return Path(data_root or os.environ.get("SWEETSPOT_DATA") or "data")


@dataclass
class TrainConfig(AttackConfig):
    """One run.

    Args:
        lam: λ, the weight of the penalty on the cut layer, 1 where it is not given; 0 is a network without one.
        defence: the penalty on the cut layer: none, mixcon, unicon, nopeek, adversary, compress, vib, cem, or your own
            as path/to/file.py:Class. Not given: mixcon, or none beside a bottleneck or a release alone.
        bottleneck: the client's last layers, that squeeze what is sent: none, 16 (a linear map to 16 numbers), 120-16
            (over 120 hidden units), or 1x1-8 (1×1 convolutions of a feature map to 8 channels). Not given: none.
        release: what happens to a representation before it leaves the client, in order: none, gaussian, laplace,
            dropout, topk, quantise, clip, or your own as path/to/file.py:Class; clip+gaussian is the same as clip
            gaussian. Not given: none, or where the penalty needs noise the release that --sigma or --scale belongs to.
        options: of the penalty and the releases, by name; what is not given has its default.
        dataset: mnist, fashion-mnist, svhn, cifar10, synthetic, mnist-5k, an .npz file, a folder of images (one
            subfolder a class, or such folders in train/ and test/), or hf:OWNER/NAME from the hub; not given: mnist, or
            the embedded mnist-5k where mnist cannot be had. For a language model pydoc (the default), c4, wikipedia, a
            .txt, .tsv or .jsonl file, or a folder of them.
        network: the split network: lenet, vgg16, vgg16-bn or mlp; torchvision:NAME, timm:NAME, or your own as
            path/to/file.py:function or package.module:function, which returns an nn.Module; or a language model:
            gpt2-tiny (from scratch), gpt2, smollm2, any causal LM on the hub or in a folder of the hub's layout.
        cut: where the network is cut: after this block (a number), or after the layer or submodule of this name; ?
            lists the places there are; of a language model also last (all blocks, before the final norm) and final
            (after it).
        head: the server's part of mlp: default, deeper or wider.
        weights: a file of weights that the whole network begins with, .safetensors, or .pt and .pth without code. Not
            given: those that the network is made with.
        standardise: what the client does to images first: data (their own mean and standard deviation by channel),
            none, or a mean and a standard deviation, as in 0.485,0.456,0.406 0.229,0.224,0.225 or 0.5 0.5. Not given:
            data, or none beside --weights.
        train: which weights of a language model are trained: all, or head (the server's part and the bottleneck; the
            client's part stays as it is, and so does a last matrix that is the client's embeddings).
        epochs: passes over the training set.
        batch_size: examples in one step, over all devices together; every batch is class-balanced. MixCon pairs all
            of them where it is a multiple of the number of classes.
        lr: learning rate.
        momentum: momentum of SGD.
        weight_decay: weight decay; that of adam is decoupled from the gradient (AdamW).
        milestones: epochs after which the learning rate is divided by 10. Not given: none.
        schedule: of the learning rate, beside milestones: constant, or cosine (it grows over the first twentieth of the
            steps and falls to 0 along a cosine).
        validation_fraction: the part of the training set that is held out for the validation curve.
        limit_train: use only so many training examples, class-balanced; 0 for all.
        limit_test: use only so many test examples, class-balanced; 0 for all.
        image_size: scale the shorter side of every image to so many pixels and cut out the middle as a square; 0 takes
            images as they are, all of one size.
        skip_corrupt: leave out image files that cannot be read, instead of refusing them; the record says how many.
        augment: random changes of every training image, in this order: crop (moved by up to an eighth), flip (left to
            right), rotate (by up to 15°), colour (brightness, contrast and saturation by up to a fifth). none, the
            default, changes nothing; crop+flip is the same as crop flip.
        optimiser: sgd, or adam (AdamW), which language models need.
        length: tokens in a block of text.
        vocabulary: tokens of the BPE that gpt2-tiny is trained with.
        seed: everything random follows from it.
        data_root: where datasets lie or are downloaded to; default $SWEETSPOT_DATA, else data/.
        out: the folder of all runs.
        force: do a finished run again (an unfinished one is always continued).
        trainer: arguments of Lightning's Trainer that differ from `TRAINER_DEFAULTS`.
    """

    lam: float | None = None
    defence: str | None = None
    bottleneck: str | None = None
    release: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    dataset: str | None = None
    network: str = "lenet"
    cut: int | str = 2
    head: str = "default"
    weights: str | None = None
    standardise: list[str] = field(default_factory=list)
    train: str = "all"
    epochs: int = 20
    batch_size: int = 20  # a multiple of ten classes: MixCon's pairs leave none of the batch out
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    milestones: list[int] = field(default_factory=list)
    schedule: str = "constant"
    validation_fraction: float = 0.05
    limit_train: int = 0
    limit_test: int = 0
    image_size: int = 0
    augment: list[str] = field(default_factory=list)
    optimiser: str = "sgd"
    length: int = 64
    vocabulary: int = 4096
    seed: int = 0
    data_root: str | None = not_identity(None)
    skip_corrupt: bool = not_identity(False)
    out: str = not_identity("checkpoints")
    force: bool = not_identity(False)
    trainer: dict[str, Any] = not_identity({})

    @classmethod
    def of(cls, **flags: Any) -> TrainConfig:
        """The config of some flags, options of parts among them: `TrainConfig.of(lam=1, beta=1e-4)`."""
        fields = {each.name for each in dataclasses.fields(cls)}
        options = {name: value for name, value in flags.items() if name not in fields}
        known = {name: value for name, value in flags.items() if name in fields}
        return cls(**known | {"options": {**flags.get("options", {}), **options}})

    def flags(self) -> dict[str, Any]:
        """Every field by its name, with the options of its parts beside them: what `of` takes again."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "options"}
        for options in (self.defence_options(), *self.release_record(), fields.pop("attack_options")):
            fields |= {name: value for name, value in options.items() if name != "name"}
        return fields

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check()
        self.trainer = {
            name: value for name, value in one_spelling(self.trainer).items() if value != TRAINER_DEFAULTS.get(name)
        }
        if self.augment:
            from sweetspot.datamodules.augment import checked_augmentations

            self.augment = checked_augmentations("--augment", self.augment)
        self.bottleneck = None if self.bottleneck == "none" else self.bottleneck
        is_open = not self.release  # nobody says what is released, not even none
        self.release = [name for each in self.release for name in chained(each)]
        self.release = [] if self.release == ["none"] else self.release
        if self.bottleneck is not None:
            from sweetspot.lightning_modules.defences.bottlenecks import parsed

            parsed(self.bottleneck)
        self.choose_penalty()
        if is_open:
            self.release = implied_release(self.penalty, self.options)
        self.check_options()
        if self.lam == 0 or self.defence == "none":  # one network without a penalty, whatever was written beside it
            kept = {name for each in self.releases for name in each.options}
            of_penalty = self.penalty.options.keys() - kept
            self.options = {name: value for name, value in self.options.items() if name not in of_penalty}
            self.defence, self.lam = "none", 0.0
        self.penalty.check_fits(self.sigma, self.is_language)
        if self.train == "head" and self.defence != "none" and self.bottleneck is None:
            raise UserError(
                f"--defence {self.defence} changes what the client computes, and --train head leaves the client as it "
                f"is: add a --bottleneck, which is trained, or take --defence none"
            )

    def choose_penalty(self) -> None:
        """Which penalty is meant where none is named: MixCon, unless something else defends and nothing asks for it."""
        if self.defence is None:
            speaks = self.lam is not None or bool(self.options.keys() & PENALTIES["mixcon"].options.keys())
            alone = self.bottleneck is None and not self.release
            self.defence = "mixcon" if speaks or alone else "none"
        self.lam = 1.0 if self.lam is None else self.lam
        # runs once recorded MixCon's options whatever their defence was
        has = PENALTIES[self.defence].options
        once = {name for name, value in ONCE_FIELDS.items() if name not in has and self.options.get(name) == value}
        self.options = {name: value for name, value in self.options.items() if name not in once}

    @property
    def penalty(self) -> type[Penalty]:
        """The class of its penalty."""
        return PENALTIES[self.defence or "none"]

    @property
    def weight(self) -> float:
        """λ as it is meant."""
        return self.lam or 0.0

    @property
    def parts(self) -> list[type[Part]]:
        """The classes of its penalty and its releases."""
        return [self.penalty, *self.releases]

    @property
    def releases(self) -> list[type[Part]]:
        """The classes of its releases, in order."""
        return [RELEASES[name] for name in self.release]

    @property
    def sigma(self) -> float | None:
        """The standard deviation of Gaussian noise on z as it is; None where there is no such noise."""
        from sweetspot.lightning_modules.defences.releases import Gaussian

        for part, record in zip(self.releases, self.release_record(), strict=True):
            if issubclass(part, Gaussian) and record["unit"] == "raw":
                return float(record["sigma"])
        return None

    def check_options(self) -> None:
        """Refuse an option that none of the chosen parts has, naming those that do, and a value that cannot be."""
        for name, value in self.options.items():
            flag = name.replace("_", "-")
            having = [part for part in self.parts if name in part.options]
            if not having:
                raise UserError(means_nothing(flag, " + ".join([self.penalty.name, *self.release])))
            for part in having:
                part.options[name].checked(flag, value)

    def check(self) -> None:
        """Refuse what cannot be meant, in one line that names the argument, the rule and the value."""
        for flag, value in (
            ("lambda", 0.0 if self.lam is None else self.lam),
            ("lr", self.lr),
            ("weight-decay", self.weight_decay),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"--{flag} must be a number of at least 0; got {value:g}")
        for flag, count, least in (
            ("epochs", self.epochs, 1),
            ("batch-size", self.batch_size, 2),
            ("limit-train", self.limit_train, 0),
            ("limit-test", self.limit_test, 0),
            ("length", self.length, 2),
            ("vocabulary", self.vocabulary, 257),
            ("seed", self.seed, 0),
        ):
            if not least <= count < 2**32:
                raise UserError(f"--{flag} must be at least {least} and below 2³²; got {count}")
        if self.image_size and not LEAST_SIZE <= self.image_size <= LARGEST_SIZE:
            sizes = f"{LEAST_SIZE} to {LARGEST_SIZE:,} pixels"
            raise UserError(f"--image-size must be {sizes}, or 0 for images as they are; got {self.image_size}")
        if self.image_size and self.is_language:
            raise UserError(f"--image-size {self.image_size} scales images, and {self.network} takes text")
        check_one_of("--train", self.train, TRAINED)
        check_one_of("--schedule", self.schedule, SCHEDULES)
        if self.schedule == "cosine" and self.milestones:
            raise UserError("--schedule cosine and --milestones are two schedules of one learning rate: take one")
        if self.train != "all" and not self.is_language:
            raise UserError(f"--train {self.train} is for language models, and {self.network} is none: leave it out")
        if not 0 <= self.momentum < 1:
            raise UserError(f"--momentum must lie in [0, 1); got {self.momentum:g}")
        if not 0 <= self.validation_fraction < 1:
            raise UserError(f"--validation-fraction must lie in [0, 1); got {self.validation_fraction:g}")
        for name in ("accumulate_grad_batches", "check_val_every_n_epoch"):
            if (every := self.trainer.get(name)) is not None and not (isinstance(every, int) and every >= 1):
                raise UserError(f"--trainer.{name} must be a whole number of at least 1; got {every}")
        for name, value in self.trainer.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--trainer.{name} must be a finite number; got {value}")
        limit = self.trainer.get("max_time")
        if isinstance(limit, str | int | float) and not re.fullmatch(r"\d+(:\d\d?){3}", str(limit)):
            raise UserError(f"--trainer.max_time must be days:hours:minutes:seconds, as in 00:01:30:00; got {limit}")
        standardising(self.standardise)
        if self.optimiser not in ("sgd", "adam"):
            raise UserError(f"--optimiser must be sgd or adam; got {self.optimiser}")
        chain = [name for each in self.release for name in chained(each)]
        if "none" in chain and len(chain) > 1:
            raise UserError("--release none stands alone")

    @property
    def root(self) -> Path:
        """Where datasets lie."""
        return root_of(self.data_root)

    @property
    def is_language(self) -> bool:
        """Whether the network is a language model, and the data a text: gpt2 and its kin, a folder, or owner/name."""
        from sweetspot.lightning_modules.networks import NETWORKS
        from sweetspot.lightning_modules.networks.foreign import is_foreign

        named = self.network.startswith(LANGUAGE_MODELS) or "/" in self.network or Path(self.network).is_dir()
        return self.network not in NETWORKS and named and not is_foreign(self.network)

    def defence_options(self) -> dict[str, Any]:
        """The options of the penalty, with their defaults."""
        options = options_of(self.penalty, self.options)
        if "partners" in options:  # of a language model every position has some, others the pairs of the paper
            options["partners"] = self.options.get("partners") or (PARTNERS if self.is_language else 0)
        return {name: value for name, value in options.items() if name != "partners" or value}

    def release_record(self) -> list[dict[str, Any]]:
        """The releases in order, each with its name and options.

        Noise is added to z as it is where a penalty sets the scale of z, or a clip before it does; otherwise z is
        scaled to unit root mean square first.
        """
        record: list[dict[str, Any]] = []
        is_scaled = self.penalty.sets_scale
        for name, part in zip(self.release, self.releases, strict=True):
            options = options_of(part, self.options)
            if "unit" in options and "unit" not in self.options:
                options["unit"] = "raw" if is_scaled else "rms"
            is_scaled = is_scaled or name == "clip"
            record.append({"name": name, **options})
        return record

    def defence_record(self) -> dict[str, Any]:
        """The defence as `results.json` says it."""
        return {
            "name": self.penalty.name,
            "lambda": self.weight,
            "beta": 0.0,
            **self.defence_options(),
            "bottleneck": self.bottleneck,
            "release": self.release_record(),
        }

    def identity(self, data_name: str, data_source: str, data_identity: str = "") -> dict[str, Any]:
        """What makes this run this run; see `runs.identity.identity_of`."""
        return identity_of(self, data_name, data_source, data_identity)

    def run_name(self, data_name: str, data_source: str, data_identity: str = "") -> str:
        """The name of its folder; see `runs.identity.run_name`."""
        return run_name(self, data_name, data_source, data_identity)

    @property
    def is_vanilla(self) -> bool:
        """Whether nothing defends it."""
        return self.defence == "none" and self.bottleneck is None and not self.release


def chained(text: str) -> list[str]:
    """The releases that a text joins by +, in order.

    Example:
        >>> chained("clip+gaussian"), chained("my.py:Shift")
        (['clip', 'gaussian'], ['my.py:Shift'])
    """
    if is_users_own(text) and Path(text.partition(":")[0]).is_file():
        return [text]  # a file's name may have a + in it
    names = text.split("+")
    if not all(names):
        raise UserError(f"--release must name releases, a chain joined by + such as clip+gaussian; got {text!r}")
    return names


def implied_release(penalty: type[Penalty], options: dict[str, Any]) -> list[str]:
    """The release that is meant where none is named: that of `--sigma` or `--scale`, if the penalty needs noise.

    Example:
        >>> implied_release(PENALTIES["compress"], {"sigma": 1.0}), implied_release(PENALTIES["nopeek"], {"sigma": 1.0})
        (['gaussian'], [])
    """
    from sweetspot.lightning_modules.defences.releases import Noise

    noisy = [name for name in RELEASES if issubclass(RELEASES[name], Noise)]
    asked = [name for name in noisy if (RELEASES[name].options.keys() - Noise.options.keys()) & options.keys()]
    return asked if penalty.needs_noise and len(asked) == 1 else []


def means_nothing(flag: str, chosen: str) -> str:
    """What is wrong with an option that none of the chosen parts has, with the parts that do have it."""
    known = [*(PENALTIES[each] for each in PENALTIES), *(RELEASES[each] for each in RELEASES)]
    others = [part.name for part in known if flag.replace("-", "_") in part.options]
    owners = f"it belongs to {', '.join(others)}" if others else "no part has it"
    return f"--{flag} means nothing for {chosen}: {owners}"
