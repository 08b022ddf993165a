"""TrainConfig: everything that defines one run, from flags and YAML files, and the name that follows from it.

Parsers are built from the classes here; what needs torch is imported where a config is made, and not before.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweetspot.errors import UserError, check_one_of
from sweetspot.options import options_of
from sweetspot.registries import PENALTIES, RELEASES
from sweetspot.registry import is_users_own

if TYPE_CHECKING:
    from sweetspot.datamodules import TensorDataModule
    from sweetspot.lightning_modules.defences import Part, Penalty

TRAINER_DEFAULTS: dict[str, Any] = {
    "devices": 1,  # a run means the same on every machine; several devices are asked for
    "num_sanity_val_steps": 0,
    "deterministic": "warn",  # same seed, same machine: same weights, also on a GPU
}
# the Trainer's arguments that change what comes out, and so belong to a run's identity
RESULT_CHANGING: tuple[str, ...] = (
    "precision",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "devices",
    "num_nodes",
)
RESULT_CHANGING += (
    "limit_train_batches",
    "max_steps",
    "min_epochs",
    "min_steps",
    "max_time",
    "overfit_batches",
    "fast_dev_run",
    "sync_batchnorm",
)

BUDGETS = ("fast", "normal", "thorough")
POLICIES = ("hybrid", "single-commit", "sipit")  # of the attack on text
OPERATING_POINTS = ("fast", "baseline", "high-accuracy")  # of single-commit
TEXT_LOSSES = ("paper", "scaled")  # of single-commit
PREPARE = ("auto", "full", "none")  # what hybrid learns of a model first
LEAST_DATA = 20  # inputs of an attacker's own: fewer teach nothing
TEXT_CHANNELS = ("fp16", "int8", "0.1", "0.3", "1")  # tried on text where no others are named
DTYPES = ("fp32", "fp16", "bf16", "int8")  # in which hidden states are sent
SOURCES = ("w", "a")  # of the attack on a gradient: the part of it that its tensor stage takes the moments of,
SUBSPACES = ("span", "moment")  # where that stage works,
LOSSES = ("half-sum", "sum", "mean")  # what the client minimised: ½·Σ(f − y)², Σ(f − y)², Σ(f − y)² / B,
BIAS = 30.0  # and Remark 1: large against labels and outputs, so that all residues have one sign and a like size

FLAG_NAMES = {"lam": "lambda"}  # what Python cannot call a field
CAME_LATER: dict[str, Any] = {"optimiser": "sgd", "length": 64, "vocabulary": 4096, "bottleneck": None, "release": []}
CAME_LATER |= {
    "augment": [],
    "image_size": 0,
    "weights": None,
    "standardise": [],
    "train": "all",
    "schedule": "constant",
}
ONCE_FIELDS = {"beta": 0.0, "family": "inverse", "epsilon": 1e-6, "normalise": True}
LANGUAGE_MODELS = ("gpt2", "smollm2")
SCHEDULES = ("constant", "cosine")  # of the learning rate
TRAINED = ("all", "head")  # which weights of a language model are trained
PARTNERS = 8  # others of the batch that the penalty of a language model compares each position with
LEAST_SIZE, LARGEST_SIZE = 8, 4096  # of a square image, in pixels
FORMAT = 1  # raised when the same config begins to mean another network: old runs are then not taken for new ones


def plain(trainer: dict[str, Any]) -> dict[str, Any]:
    """The Trainer's arguments with one spelling for one meaning: 4 for "4", nothing for the default precision.

    Example:
        >>> plain({"devices": "4", "precision": "32-true", "gradient_clip_val": 1.0})
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


def is_level(text: str) -> bool:
    """Whether a text is a positive number, as a noise level must be."""
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def not_identity(default: Any) -> Any:
    """A field that says where or how a run is made, not what it is: two runs that differ only here are the same run."""
    if isinstance(default, dict | list):
        return field(default_factory=lambda: default.copy(), metadata={"identity": False})
    return field(default=default, metadata={"identity": False})


def check_types(config: Any) -> None:
    """Refuse what a YAML file can say and a flag cannot, such as `epochs: null`; whole numbers pass for floats."""
    for name, hint in typing.get_type_hints(type(config)).items():
        flag, value = FLAG_NAMES.get(name, name).replace("_", "-"), getattr(config, name)
        if hint in (float, float | None) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
            setattr(config, name, value)
        allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (typing.get_origin(hint) or hint,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
            raise UserError(
                f"--{flag} must be {hint if isinstance(hint, types.UnionType) else hint.__name__}; got {value!r}"
            )


@dataclass
class AttackConfig:
    """How a run is attacked. Which attacks there are is known to `evaluations.chosen`, which also checks their names.

    Args:
        attacks: standard, the suite with a version; for images whitebox (all its recipes), decoder (the adaptive
            one), refined and positions, for text text; one alone, such as decoder/paper or text/sipit; or your own as
            path/to/file.py:Class. none attacks nothing. What the label alone gives away (prototype, label) and who has
            the true input in a gallery are always beside them.
        recipe: paper, no-data (an attacker without any inputs of its own) or adaptive, or several: the recipes of all
            attacks that are named without one. Not given: those that --attacks says.
        samples: how many test images or vectors are attacked.
        budget: what the adaptive attacker spends: fast, normal or thorough.
        attack_seed: what the attacks draw follows from it; default: the run's own seed.
        policy: how text is recovered: hybrid, single-commit or sipit, or several of them.
        operating_point: of single-commit: fast, baseline or high-accuracy.
        beam: how many prefixes of a prompt hybrid keeps where the states have noise; 1 is greedy.
        text_loss: of single-commit: paper, the plain MSE, or scaled, each coordinate by its spread over the training
            text: for models whose states have a few huge coordinates.
        prompts: how many prompts of 10 tokens are attacked, the starts of test documents.
        observe: whether loss curves and rank trajectories of text are recorded; false saves a little time.
        draws: of a random release, how many times every input is released and attacked; figures are means over them.
        queries: how many answers for the same input the attacker averages, or several such numbers, each tried beside
            one answer.
        attacker_data: how many inputs of its own the attacker has, several such numbers or all, each tried beside all:
            where more still help, a figure is a lower bound.
        channels: what may happen to what is released on its way, each tried beside the exact one: fp16, bf16 or int8,
            or a number, Gaussian noise as a fraction of the root mean square of what is released (of text without
            first positions); fp32 alone for none. Not given: for text fp16 int8 0.1 0.3 1, for images none.
        device: where the attacks run: auto, cpu, cuda, cuda:1, …
        attack_options: of the attacks, by name; what is not given has its default.
    """

    attacks: list[str] = not_identity(["standard"])
    recipe: list[str] = not_identity([])
    samples: int = not_identity(100)
    budget: str = not_identity("normal")
    attack_seed: int | None = not_identity(None)
    policy: list[str] = not_identity(["hybrid"])
    operating_point: str = not_identity("baseline")
    beam: int = not_identity(8)
    text_loss: str = not_identity("paper")
    prompts: int = not_identity(100)
    observe: bool = not_identity(True)
    draws: int = not_identity(1)
    queries: list[int] = not_identity([1])
    attacker_data: list[str] = not_identity(["all"])
    channels: list[str] = not_identity([])
    device: str = not_identity("auto")
    attack_options: dict[str, Any] = not_identity({})

    def __post_init__(self) -> None:
        check_types(self)
        check_one_of("--budget", self.budget, BUDGETS)
        counts = (("samples", self.samples), ("prompts", self.prompts), ("draws", self.draws), ("beam", self.beam))
        for flag, count in (*counts, *(("queries", each) for each in self.queries)):
            if count < 1:
                raise UserError(f"--{flag} must be at least 1; got {count}")
        for each in self.attacker_data:
            if each != "all" and not (each.isdecimal() and int(each) >= LEAST_DATA):
                raise UserError(f"--attacker-data must be all, or whole numbers of at least {LEAST_DATA}; got {each}")
        if self.attack_seed is not None and not 0 <= self.attack_seed < 2**32:
            raise UserError(f"--attack-seed must be at least 0 and below 2³²; got {self.attack_seed}")
        self.check_text()

    def check_text(self) -> None:
        """Refuse what no attack on text can mean."""
        if not self.policy or any(name not in POLICIES for name in self.policy):
            raise UserError(f"--policy must be of {', '.join(POLICIES)}; got {' '.join(self.policy) or 'none'}")
        check_one_of("--operating-point", self.operating_point, OPERATING_POINTS)
        check_one_of("--text-loss", self.text_loss, TEXT_LOSSES)
        for name in self.channels:
            if name not in DTYPES and not is_level(name):
                raise UserError(f"--channels must be of {', '.join(DTYPES)}, or positive noise levels; got {name}")

    def text_policies(self) -> list[str]:
        """The policies that are asked for.

        Example:
            >>> AttackConfig().text_policies(), AttackConfig(attacks=["text/sipit"]).text_policies()
            (['hybrid'], ['sipit'])
        """
        asked = self.policy if {"text", "standard"} & set(self.attacks) else []
        return [policy for policy in POLICIES if policy in asked or f"text/{policy}" in self.attacks]


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
            name: value for name, value in plain(self.trainer).items() if value != TRAINER_DEFAULTS.get(name)
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
        """What makes this run this run, with the data it really uses and the Trainer arguments that change a result.

        Args:
            data_name: of the data.
            data_source: where they came from; of older records a hash of the data stands at its end.
            data_identity: a hash of the data; empty where their name says what they are.
        """
        chosen = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata.get("identity", True)}
        for name, default in CAME_LATER.items():  # runs from before have the same name as ever
            if chosen[name] == default:
                del chosen[name]
        del chosen["options"]
        if self.weights is not None:
            chosen["weights"] = digest_of(self.weights)
        if self.release:
            chosen["release"] = self.release_record()
        options = self.defence_options()
        if self.is_language and options.get("partners") == PARTNERS:
            del options["partners"]
        # these four once were fields of every run
        chosen |= {name: options.pop(name, default) for name, default in ONCE_FIELDS.items()}
        if options:
            chosen["options"] = options
        # a file is known by its content, a dataset of torchvision by its name, wherever it was found
        content = data_identity or data_source.partition("sha256 ")[2] or data_name
        trainer = {name: self.trainer[name] for name in RESULT_CHANGING if name in self.trainer}
        return {**chosen, "dataset": content, "cut": str(self.cut), "trainer": trainer, "format": FORMAT}

    def run_name(self, data_name: str, data_source: str, data_identity: str = "") -> str:
        """A readable prefix and a hash of the resolved config: `mnist-lenet-mixcon-l1-b0.0001-s0-1f2e3d4c`."""
        identity = json.dumps(self.identity(data_name, data_source, data_identity), sort_keys=True, default=str)
        parts = [data_name, short_network(self.network), *self.defence_in_name()]
        return "-".join([*parts, f"s{self.seed}", hashlib.sha256(identity.encode()).hexdigest()[:8]])

    def defence_in_name(self) -> list[str]:
        """The parts of the defence as a folder's name has them: `compress l0.01 k120-16 gaussian1`."""
        if self.is_vanilla:
            return ["vanilla"]
        parts = []
        if self.defence != "none":
            parts += [short(self.penalty.name), f"l{self.weight:g}"]
            if self.defence == "mixcon":
                parts.append(f"b{self.defence_options()['beta']:g}")
        if self.bottleneck is not None:
            parts.append(f"k{self.bottleneck}")
        for each in self.release_record():
            first = next((value for name, value in each.items() if name not in ("name", "unit", "ramp")), "")
            parts.append(short(each["name"]) + (f"{first:g}" if isinstance(first, int | float) else ""))
        return parts

    @property
    def is_vanilla(self) -> bool:
        """Whether nothing defends it."""
        return self.defence == "none" and self.bottleneck is None and not self.release


def standardising(texts: list[str]) -> tuple[list[float], list[float]] | None:
    """The mean and the standard deviation that `--standardise` gives, by channel or one for all; None: it gives none.

    Example:
        >>> standardising(["0.5", "0.2,0.3,0.4"]), standardising(["none"])
        (([0.5], [0.2, 0.3, 0.4]), None)
    """
    if texts in ([], ["data"], ["none"]):
        return None
    try:
        mean, std = ([float(number) for number in text.split(",")] for text in texts)
    except ValueError:
        mean, std = [], []
    if not mean or not all(map(math.isfinite, [*mean, *std])) or min(std) <= 0 or len({1, len(mean), len(std)}) > 2:
        raise UserError(
            f"--standardise must be data, none, or a mean and a positive standard deviation, one number each or one a "
            f"channel joined by commas; got {' '.join(texts)}"
        )
    return mean, std


def pixels_by(texts: list[str], data: TensorDataModule) -> dict[str, list[float]] | None:
    """Mean and standard deviation by channel that `--standardise` asks for; None for none, and for what is no image.

    Args:
        texts: data, none, or a mean and a standard deviation.
        data: whose inputs are scaled.
    """
    given = standardising(texts)
    if given is None:
        return data.pixels() if texts == ["data"] else None
    if len(data.shape) != 3:
        raise UserError(f"--standardise scales images, and {data.arrays.name} has none")
    channels = data.shape[0]
    if any(len(each) not in (1, channels) for each in given):
        raise UserError(
            f"--standardise must have one number, or one for each of {channels} channels; got {' '.join(texts)}"
        )
    mean, std = (each * channels if len(each) == 1 else each for each in given)
    return {"mean": mean, "std": std}


def digest_of(file: str) -> str:
    """The SHA-256 of a file: it is known by its content, wherever it lies."""
    try:
        state = os.stat(file)
        return digest_at(file, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise UserError(f"--weights {file} cannot be read ({error.strerror})") from error


@functools.lru_cache(maxsize=64)
def digest_at(file: str, _changed: int, _size: int) -> str:
    """The same, read once as long as the file stays as it is."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def short_network(name: str) -> str:
    """A network in the name of a folder: a model's folder by its name, one that is not ours without its source.

    Example:
        >>> short_network("torchvision:resnet18"), short_network("nets/my_model.py:build"), short_network("lenet")
        ('resnet18', 'my_model.build', 'lenet')
    """
    from sweetspot.lightning_modules.networks.foreign import is_code, is_foreign

    if not is_foreign(name):
        return Path(name).name
    source, _, wanted = name.partition(":")
    parts = [Path(source).name.removesuffix(".py").rpartition(".")[2], wanted] if is_code(name) else [wanted]
    return re.sub(r"[^\w.-]", "-", ".".join(parts))


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


def short(name: str) -> str:
    """A part's name in the name of a folder; of a user's own the class.

    Example:
        >>> short("mixcon"), short("my/defences.py:Shuffle")
        ('mixcon', 'Shuffle')
    """
    return name.rpartition(":")[2]
