"""Which attacks are asked for: by name, by recipe, or as a user's own file, each made with its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweetspot.attacks import ATTACKS, Attack
from sweetspot.attacks.threat_model import key_of
from sweetspot.errors import UserError, check_one_of, meant
from sweetspot.registry import is_users_own
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.choices import POLICIES
from sweetspot.runs.folder import Run

FLOORS = tuple(name for name in ATTACKS if ATTACKS[name].is_floor)  # run beside every attack


def attack_names() -> list[str]:
    """The attacks on images and vectors that can be asked for."""
    return [name for name in ATTACKS if not ATTACKS[name].is_floor]


def known_names() -> list[str]:
    """Everything that `--attacks` takes by name."""
    with_recipes = [f"{name}/{recipe}" for name in attack_names() for recipe in ATTACKS[name].recipes]
    return [STANDARD.name, *attack_names(), *with_recipes, "text", *(f"text/{policy}" for policy in POLICIES)]


def check_asked(config: AttackConfig) -> None:
    """Refuse attacks and recipes that there are not, and options that none of the chosen attacks has."""
    known = known_names()
    if not config.attacks:
        raise UserError(f"--attacks needs a name: none, or of {', '.join(known)}, or your own path/to/file.py:Class")
    for name in config.attacks:
        if is_users_own(name):
            ATTACKS[name]  # what is wrong with the file, or with the class, is said here
        elif name not in (*known, *FLOORS) and not (name == "none" and len(config.attacks) == 1):
            hint = meant(name, known)
            raise UserError(
                f"--attacks must be none, or of {', '.join(known)}, or your own path/to/file.py:Class; got {name}{hint}"
            )
    if set(config.attacks) <= {*FLOORS}:
        said = "is run" if len(set(config.attacks)) == 1 else "are run"
        raise UserError(f"--attacks {' '.join(config.attacks)} {said} beside every other attack: name one of those too")
    recipes = dict.fromkeys(recipe for name in attack_names() for recipe in ATTACKS[name].recipes)
    for recipe in config.recipe:
        check_one_of("--recipe", recipe, recipes)
    with_recipes = [name for name in config.attacks if name in ATTACKS and ATTACKS[name].recipes]
    if config.recipe and with_recipes and not attack_keys(config):
        named = ", ".join(with_recipes)
        raise UserError(f"--recipe {' '.join(config.recipe)} leaves nothing of {named}: it has no such recipe")
    check_options(config)
    if config.prior is not None and not Run(Path(config.prior)).finished:
        raise UserError(f"--prior {config.prior} is no finished run; train one, or leave --prior out")


def check_options(config: AttackConfig) -> None:
    """Refuse an option that no attack has, and a value that cannot be; one of an attack that is not run is idle."""
    classes = [ATTACKS[name] for name in (*ATTACKS, *filter(is_users_own, config.attacks))]
    for name, value in config.attack_options.items():
        having = [each for each in classes if name in each.options]
        if not having:
            raise UserError(f"--{name.replace('_', '-')} is an option of no attack")
        for each in having:
            each.options[name].checked(name.replace("_", "-"), value)


def attack_keys(config: AttackConfig) -> list[str]:
    """What is asked for on images and vectors, as results call it, each once, in the order in which it is run.

    The GAN comes before the adaptive decoder, which looks whether it is there.

    Example:
        >>> attack_keys(AttackConfig())
        ['whitebox/paper', 'whitebox/no-data', 'whitebox/adaptive', 'decoder/adaptive', 'refined', 'positions']
        >>> attack_keys(AttackConfig(attacks=["decoder"], recipe=["paper"]))
        ['decoder/paper']
    """
    return [key_of(name, recipe) for name, recipe in asked(config)]


def asked(config: AttackConfig) -> list[tuple[str, str | None]]:
    """The same as names and recipes."""
    found: list[tuple[str, str | None]] = []
    in_suite = STANDARD.attacks if STANDARD.name in config.attacks else ()
    for name in attack_names():
        known = ATTACKS[name]
        for recipe in known.recipes or (None,):
            by_name = name in config.attacks and (recipe is None or recipe in (config.recipe or known.usual))
            if by_name or key_of(name, recipe) in (*config.attacks, *in_suite):
                found.append((name, recipe))
    return [*found, *((name, None) for name in dict.fromkeys(config.attacks) if is_users_own(name))]


def chosen_attacks(config: AttackConfig, seed: int, cache: Path) -> list[Attack]:
    """The attacks that a config asks for, those that know the label alone first; none where nothing is asked for."""
    made = [make(name, recipe, config, seed, cache) for name, recipe in asked(config)]
    keys = [attack.key for attack in made]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UserError(f"two attacks are called {twice}: call a file or a class otherwise")
    return [*(make(name, None, config, seed, cache) for name in FLOORS), *made] if made else []


@dataclass(frozen=True)
class Suite:
    """A set of attacks with a version: results that carry it were all attacked alike."""

    name: str
    version: int
    attacks: tuple[str, ...]


STANDARD = Suite(
    "standard",
    1,
    ("whitebox/paper", "whitebox/no-data", "whitebox/adaptive", "decoder/adaptive", "refined", "positions"),
)


def suite_of(attacks: dict[str, Any], unfit: Sequence[str]) -> dict[str, Any] | None:
    """The suite that some records went through whole, as results name it; attacks that do not fit are not missed."""
    needed = [key for key in STANDARD.attacks if key not in unfit]
    if any(key not in attacks or attacks[key].get("stopped") for key in needed):
        return None
    return {"name": STANDARD.name, "version": STANDARD.version}


def make(name: str, recipe: str | None, config: AttackConfig, seed: int, cache: Path) -> Attack:
    """One attack with its options."""
    kind = ATTACKS[name]
    own = {option: value for option, value in config.attack_options.items() if option in kind.options}
    # what knows the label alone depends on the data, not on the run: one file serves all runs of a folder
    return kind(recipe, config.budget, seed, cache.parent / ".floors" if kind.is_floor else cache, **own)
