"""TrainConfig: everything that defines one run, from flags and YAML files, and the name that follows from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from errors import UserError, check_one_of
from lightning_modules.defences import DEFENCES, PENALTY_FAMILY, Defence
from lightning_modules.networks import NETWORKS

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

# the attacks, and the recipes of each that are run unless someone asks for others: the GAN's 50 epochs are on request
RECIPES = {"whitebox": ("paper", "no-data", "adaptive"), "decoder": ("adaptive",)}
ALL_RECIPES = {"whitebox": ("paper", "no-data", "adaptive"), "decoder": ("paper", "adaptive")}
BUDGETS = ("fast", "normal", "thorough")
POLICIES = ("hybrid", "single-commit", "sipit")  # of the attack on text
OPERATING_POINTS = ("fast", "baseline", "high-accuracy")  # of single-commit
DTYPES = ("fp32", "fp16", "bf16", "int8")  # in which hidden states are sent

FLAG_NAMES = {"lam": "lambda"}  # what Python cannot call a field
CAME_LATER = {"optimiser": "sgd", "length": 64, "vocabulary": 4096}  # fields that older runs did not have
LANGUAGE_MODELS = ("gpt2", "smollm2")
PARTNERS = 8  # others of the batch that the penalty of a language model compares each position with
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
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
            setattr(config, name, value)
        allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (typing.get_origin(hint) or hint,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
            raise UserError(
                f"--{flag} must be {hint if isinstance(hint, types.UnionType) else hint.__name__}; got {value!r}"
            )


@dataclass
class AttackConfig:
    """How a run is attacked.

    Args:
        attacks: for images whitebox and decoder (all recipes of the first, the adaptive one of the second), for text
            text; or one alone, such as decoder/paper or text/sipit; none attacks nothing. The prototype, the floor of
            images, is always beside them.
        recipe: paper, no-data (an attacker without any inputs of its own) or adaptive, or several: the recipes of all
            attacks that are named without one.
        samples: how many test images or vectors are attacked.
        budget: what the adaptive attacker spends: fast, normal or thorough.
        attack_seed: what the attacks draw follows from it; default: the run's own seed.
        decoder_epochs: epochs of the GAN decoder, decoder/paper.
        policy: how text is recovered: hybrid, single-commit or sipit, or several of them.
        operating_point: of single-commit: fast, baseline or high-accuracy.
        prompts: how many prompts of 10 tokens are attacked, the starts of test documents.
        observe: whether loss curves and rank trajectories of text are recorded; false saves a little time.
        channels: what may happen to hidden states on their way, each tried by hybrid beside exact ones: fp16, bf16 or
            int8, or a number, Gaussian noise as a fraction of the states' root mean square (without first positions);
            fp32 alone for none.
        device: where the attacks run: auto, cpu, cuda, cuda:1, …
    """

    attacks: list[str] = not_identity(["whitebox", "decoder", "text"])
    recipe: list[str] = not_identity([])
    samples: int = not_identity(100)
    budget: str = not_identity("normal")
    attack_seed: int | None = not_identity(None)
    decoder_epochs: int = not_identity(50)
    policy: list[str] = not_identity(["hybrid"])
    operating_point: str = not_identity("baseline")
    prompts: int = not_identity(100)
    observe: bool = not_identity(True)
    channels: list[str] = not_identity(["fp16", "int8", "0.1", "0.3", "1"])
    device: str = not_identity("auto")

    def __post_init__(self) -> None:
        check_types(self)
        self.check_attacks()

    def check_attacks(self) -> None:
        """Refuse attacks that there are not, and numbers that cannot be meant."""
        known = [*RECIPES, *(f"{attack}/{recipe}" for attack, recipes in ALL_RECIPES.items() for recipe in recipes)]
        known += ["text", *(f"text/{policy}" for policy in POLICIES)]
        for name in self.attacks:
            if name not in known and not (name == "none" and len(self.attacks) == 1):
                raise UserError(f"--attacks must be none, or of {', '.join(known)}; got {name}")
        if not self.attacks:
            raise UserError(f"--attacks needs a name: none, or of {', '.join(known)}")
        for name in self.recipe:
            check_one_of("--recipe", name, ALL_RECIPES["whitebox"])
        if self.recipe and not self.attack_keys() and set(self.attacks) & set(ALL_RECIPES):
            named = ", ".join(name for name in self.attacks if name in ALL_RECIPES)
            raise UserError(f"--recipe {' '.join(self.recipe)} leaves nothing of {named}: it has no such recipe")
        check_one_of("--budget", self.budget, BUDGETS)
        counts = (("samples", self.samples), ("decoder-epochs", self.decoder_epochs), ("prompts", self.prompts))
        for flag, count in counts:
            if count < 1:
                raise UserError(f"--{flag} must be at least 1; got {count}")
        if self.attack_seed is not None and not 0 <= self.attack_seed < 2**32:
            raise UserError(f"--attack-seed must be at least 0 and below 2³²; got {self.attack_seed}")
        self.check_text()

    def check_text(self) -> None:
        """The same for attacks on text."""
        if not self.policy or any(name not in POLICIES for name in self.policy):
            raise UserError(f"--policy must be of {', '.join(POLICIES)}; got {' '.join(self.policy) or 'none'}")
        check_one_of("--operating-point", self.operating_point, OPERATING_POINTS)
        for name in self.channels:
            if name not in DTYPES and not is_level(name):
                raise UserError(f"--channels must be of {', '.join(DTYPES)}, or positive noise levels; got {name}")

    def attack_keys(self) -> list[str]:
        """What is asked for as results call it: the GAN before the adaptive decoder, which looks whether it is there.

        Example:
            >>> AttackConfig().attack_keys()
            ['whitebox/paper', 'whitebox/no-data', 'whitebox/adaptive', 'decoder/adaptive']
            >>> AttackConfig(attacks=["decoder"], recipe=["paper"]).attack_keys()
            ['decoder/paper']
        """
        asked = [key for key in self.attacks if "/" in key]
        for attack, usual in RECIPES.items():
            if attack in self.attacks:
                asked += [f"{attack}/{recipe}" for recipe in self.recipe or usual]
        return [
            f"{attack}/{recipe}"
            for attack, recipes in ALL_RECIPES.items()
            for recipe in recipes
            if f"{attack}/{recipe}" in asked
        ]

    def text_policies(self) -> list[str]:
        """The policies that are asked for.

        Example:
            >>> AttackConfig().text_policies(), AttackConfig(attacks=["text/sipit"]).text_policies()
            (['hybrid'], ['sipit'])
        """
        asked = self.policy if "text" in self.attacks else []
        return [policy for policy in POLICIES if policy in asked or f"text/{policy}" in self.attacks]


@dataclass
class TrainConfig(AttackConfig):
    """One run.

    Args:
        lam: λ, the weight of the penalty on the cut layer; 0 is the vanilla network.
        beta: β of MixCon, what keeps representations of different classes apart; 0 lets them collapse.
        defence: the defence of the cut layer: mixcon, unicon or none.
        family: MixCon's function of the squared distance d: inverse (the paper's d + β/d), log (d − β·log d) or
            inverse-square (d + β/d²).
        epsilon: squared distances are clamped to [ε, 1/ε].
        normalise: whether the penalty sees representations scaled to unit norm, as the paper does in practice.
        dataset: mnist, fashion-mnist, svhn, cifar10, synthetic, mnist-5k or an .npz file; not given: mnist, or the
            embedded mnist-5k where mnist cannot be had. For a language model pydoc (the default), c4, wikipedia, a
            .txt, .tsv or .jsonl file, or a folder of them.
        network: the split network: lenet, vgg16, vgg16-bn or mlp; or a language model: gpt2-tiny (from scratch), gpt2,
            smollm2, any causal LM on the hub or in a folder of the hub's layout.
        cut: where the network is cut: after this block (a number), or after the layer of this name; of a language
            model also last (all blocks, before the final norm) and final (after it).
        head: the server's part of mlp: default, deeper or wider.
        epochs: passes over the training set.
        batch_size: examples in one step, over all devices together; every batch is class-balanced. MixCon pairs all
            of them where it is a multiple of the number of classes.
        lr: learning rate of SGD.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        milestones: epochs after which the learning rate is divided by 10.
        validation_fraction: the part of the training set that is held out for the validation curve.
        limit_train: use only so many training examples, class-balanced; 0 for all.
        limit_test: use only so many test examples, class-balanced; 0 for all.
        optimiser: sgd, or adam (AdamW), which language models need.
        length: tokens in a block of text.
        vocabulary: tokens of the BPE that gpt2-tiny is trained with.
        seed: everything random follows from it.
        data_root: where datasets lie or are downloaded to; default $SWEETSPOT_DATA, else data/.
        out: the folder of all runs.
        force: do a finished run again (an unfinished one is always continued).
        trainer: arguments of Lightning's Trainer that differ from `TRAINER_DEFAULTS`.
    """

    lam: float = 1.0
    beta: float = 1e-4
    defence: str = "mixcon"
    family: str = "inverse"
    epsilon: float = 1e-6
    normalise: bool = True
    dataset: str | None = None
    network: str = "lenet"
    cut: int | str = 2
    head: str = "default"
    epochs: int = 20
    batch_size: int = 20  # a multiple of ten classes: MixCon's pairs leave none of the batch out
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    milestones: list[int] = field(default_factory=list)
    validation_fraction: float = 0.05
    limit_train: int = 0
    limit_test: int = 0
    optimiser: str = "sgd"
    length: int = 64
    vocabulary: int = 4096
    seed: int = 0
    data_root: str | None = not_identity(None)
    out: str = not_identity("checkpoints")
    force: bool = not_identity(False)
    trainer: dict[str, Any] = not_identity({})

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check()
        self.trainer = {
            name: value for name, value in plain(self.trainer).items() if value != TRAINER_DEFAULTS.get(name)
        }
        if self.lam == 0 and DEFENCES[self.defence].release is Defence.release:
            self.defence = "none"  # one vanilla, whatever β or defence were written beside λ = 0: they change nothing
        if self.defence == "none":
            self.lam = 0.0
        if self.defence != "mixcon":
            self.beta, self.family, self.epsilon = 0.0, "inverse", TrainConfig.epsilon
        if self.defence == "none":
            self.normalise = True

    def check(self) -> None:
        """Refuse what cannot be meant, in one line that names the argument, the rule and the value."""
        for flag, value in (
            ("lambda", self.lam),
            ("beta", self.beta),
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
        if not 0 < self.epsilon < 1:
            raise UserError(f"--epsilon must lie between 0 and 1; got {self.epsilon:g}")
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
        if self.optimiser not in ("sgd", "adam"):
            raise UserError(f"--optimiser must be sgd or adam; got {self.optimiser}")
        check_one_of("--defence", self.defence, sorted(DEFENCES))
        check_one_of("--family", self.family, PENALTY_FAMILY)

    @property
    def root(self) -> Path:
        """Where datasets lie."""
        return root_of(self.data_root)

    @property
    def is_language(self) -> bool:
        """Whether the network is a language model, and the data a text: gpt2 and its kin, a folder, or owner/name."""
        named = self.network.startswith(LANGUAGE_MODELS) or "/" in self.network or Path(self.network).is_dir()
        return self.network not in NETWORKS and named

    def defence_options(self) -> dict[str, Any]:
        """The arguments of the defence itself."""
        options: dict[str, Any] = {"normalise": self.normalise} if self.defence in ("mixcon", "unicon") else {}
        if options and self.is_language:
            options["partners"] = PARTNERS
        if self.defence == "mixcon":
            options |= {"beta": self.beta, "epsilon": self.epsilon, "family": self.family}
        return options

    def defence_record(self) -> dict[str, Any]:
        """The defence as `results.json` says it."""
        return {"name": self.defence, "lambda": self.lam, "beta": self.beta, **self.defence_options()}

    def identity(self, data_name: str, data_source: str) -> dict[str, Any]:
        """What makes this run this run, with the data it really uses and the Trainer arguments that change a result."""
        chosen = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata.get("identity", True)}
        for name, default in CAME_LATER.items():  # runs from before have the same name as ever
            if chosen[name] == default:
                del chosen[name]
        # a file is known by its content, a dataset of torchvision by its name, wherever it was found
        content = data_source.split("sha256 ")[1] if "sha256" in data_source else data_name
        trainer = {name: self.trainer[name] for name in RESULT_CHANGING if name in self.trainer}
        return {**chosen, "dataset": content, "cut": str(self.cut), "trainer": trainer, "format": FORMAT}

    def run_name(self, data_name: str, data_source: str) -> str:
        """A readable prefix and a hash of the resolved config: `mnist-lenet-mixcon-l1-b0.0001-s0-1f2e3d4c`."""
        identity = json.dumps(self.identity(data_name, data_source), sort_keys=True, default=str)
        network = Path(self.network).name  # a model's folder by its name
        parts = [data_name, network, "vanilla" if self.defence == "none" else self.defence]
        if self.defence != "none":
            parts.append(f"l{self.lam:g}")
        if self.defence == "mixcon":
            parts.append(f"b{self.beta:g}")
        return "-".join([*parts, f"s{self.seed}", hashlib.sha256(identity.encode()).hexdigest()[:8]])
