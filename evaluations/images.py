"""What comes back from the representations of images and vectors: attacks chosen, run, scored and written down."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lpips
import torch
from torch import Tensor

from sweetspot.attacks import ATTACKS, Attack, AttackerData, Victim
from sweetspot.attacks.threat_model import device_of
from sweetspot.datamodules import TensorDataModule, load
from sweetspot.datamodules.assets import AssetError
from sweetspot.datamodules.tensors import scaled
from sweetspot.errors import UserError
from sweetspot.evaluations.case import Case
from sweetspot.evaluations.case import is_random as is_random_victim
from sweetspot.evaluations.chosen import chosen_attacks, suite_of
from sweetspot.evaluations.classifier import independent_classifier
from sweetspot.evaluations.conditions import KINDS, Condition, conditions_of, is_random
from sweetspot.evaluations.evidence import GALLERY_FORMAT, add_cost, add_identity, add_leaks, has_identity, warnings_of
from sweetspot.evaluations.store import FolderStore, Pictures, Store
from sweetspot.lightning_modules.defences.releases import Chain
from sweetspot.lightning_modules.utility import utility_of
from sweetspot.metrics.perceptual import perceptual_network
from sweetspot.metrics.scoring import Scorer
from sweetspot.metrics.summary import BESIDE, FLOORS, GALLERY, common_inputs, scored
from sweetspot.reports.tables import attack_line
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.checkpoints import load_module
from sweetspot.runs.choices import BUDGETS
from sweetspot.runs.config import root_of
from sweetspot.runs.environment import pick_device, reproducible
from sweetspot.runs.folder import Run
from sweetspot.runs.matching import check_same_data
from sweetspot.runs.record import complete

BEFORE_MISFITS = 2  # the white box's format when it explained every release by the squared error
RANKED = 1000  # test inputs among which the true one is searched


def evaluate_images(
    run: Run, config: AttackConfig, data_root: str | None = None, dataset: str | None = None
) -> dict[str, Any]:
    """Attack a run on images or vectors; its results, with `attacks` and `worst_case` filled, nothing done twice.

    Args:
        run: the run, held by the caller.
        config: which attacks, how many samples, how hard.
        data_root: where the run's dataset lies, if not where it was.
        dataset: what to call the run's dataset here, for an .npz that was moved.
    """
    results, store = read_attackable(run), FolderStore(run)
    if is_attacked(results, config, store) and is_scored(results, config, store):
        return results
    device = pick_device(config.device)
    reproducible()
    victim = Victim.from_module(load_module(run.checkpoint)).to(device)
    return attack(victim, data_of(results, victim, data_root, dataset), config, store, results)


def attack(
    victim: Victim, datamodule: TensorDataModule, config: AttackConfig, store: Store, results: dict[str, Any]
) -> dict[str, Any]:
    """Attack a victim; the results, with `attacks` and `worst_case` filled, nothing done twice.

    Args:
        victim: what the attackers see, on the device where they run.
        datamodule: its test inputs, some of which are attacked, and in its training split the attacker's own; where
            that is empty, only attackers without data are run.
        config: which attacks, how many samples, how hard.
        store: keeps what is found, and whatever was found before.
        results: what is known so far, with `data`, `defence`, `utility` and `config` filled; it is changed.
    """
    device = device_of(victim)
    asked = Asked.of(store, results, config)
    case = case_of(store, victim, datamodule, asked.samples, asked.seed)
    asked.leave_out(results, victim)
    results["random_release"] = is_random_victim(victim)
    for each in asked.attacks:
        if asked.has(results, each):
            score_again(store, results, each, datamodule, device)
        else:
            attack_once(store, results, each, case, asked)
        if each.key == "label" and asked.lacks_others(results):
            samples = results["attacks"]["label"]["samples"]
            add_others(results, each, case_of(store, victim, datamodule, samples, asked.seed), asked)
        for condition in asked.missing(results, each):
            under_condition(store, results, each, case, condition, asked, datamodule)
    add_identity(results, case, datamodule, asked.queries)
    add_cost(results, victim, datamodule, case.seed)
    enter(store, results)
    if len(victim.shape) == 3:
        draw(store, datamodule, results)
    return results


def case_of(store: Store, victim: Victim, datamodule: TensorDataModule, samples: int, seed: int) -> Case:
    """The victim with so many test inputs that are attacked."""
    inputs, device = datamodule.sample_of_tests(samples), device_of(victim)
    return Case(
        victim,
        AttackerData.of(datamodule) if len(datamodule.train[1]) else None,
        datamodule.test[0][inputs].to(device),
        datamodule.test[1][inputs].to(device),
        inputs.tolist(),
        seed,
        functools.cache(lambda: scorer_of(store, datamodule, inputs, device)),
    )


def attack_once(store: Store, results: dict[str, Any], attack: Attack, case: Case, asked: Asked) -> None:
    """Run one attack and write it down; what was finished is never replaced by what was stopped."""
    found = case.attacked(attack.anew(), asked.draws)
    if not (found.stopped and attack.key in results["attacks"]):
        store.keep(attack.key, found.x)
        before = results["attacks"].get(attack.key, {})
        # of the same attack what came back under conditions stays; those of a weaker one are asked for again
        same = before.get("settings") == attack.settings and before.get("samples") == len(case.inputs)
        kept = {name: before[name] for name in (*KINDS, "not_under") if same and name in before}
        results["attacks"][attack.key] = {**found.record, **kept}
        enter(store, results)
        print(attack_line(attack.key, results["attacks"][attack.key]), flush=True)
    if found.stopped:  # the best so far is kept; the same command does the attack in full
        raise KeyboardInterrupt


def add_others(results: dict[str, Any], label: Attack, case: Case, asked: Asked) -> None:
    """Score more label-only attackers, of other seeds, as the recorded one was made: a worst case needs many floors."""
    record = results["attacks"]["label"]
    record["others"] = []
    for number in range(1, asked.label_attackers(results) - 1):
        other = label.anew()
        other.seed, other.budget = label.seed + number, record["settings"]["budget"]
        record["others"].append(case.attacked(other).record["scores"])


def under_condition(
    store: Store,
    results: dict[str, Any],
    attack: Attack,
    case: Case,
    condition: Condition,
    asked: Asked,
    datamodule: TensorDataModule,
) -> None:
    """Run one attack under a condition and write it down beside what it recovers without."""
    own = results["attacks"][attack.key]
    changed = condition.victim(case.victim, case.unit)
    if not attack.fits(changed):
        own["not_under"] = [*own.get("not_under", []), condition.said]
        return
    found = case.attacked(attack.anew(), asked.draws_under, condition)
    if found.stopped:
        raise KeyboardInterrupt
    record = {name: value for name, value in found.record.items() if name not in ("environment", "trace")}
    if condition.kind == "channels":
        channel = changed.release
        assert isinstance(channel, Chain)
        record["accuracy"] = utility_behind(case, datamodule, results["config"]["seed"], channel[-1])
        record["noise_unit"] = case.unit
    own.setdefault(condition.kind, {})[condition.name] = record
    enter(store, results)
    print(attack_line(f"{attack.key}, {condition.said}", record), flush=True)


def utility_behind(case: Case, datamodule: TensorDataModule, seed: int, channel: Callable[[Tensor], Tensor]) -> float:
    """The accuracy of the server behind a channel."""
    victim = case.victim
    return utility_of(victim.released, victim.head, datamodule, seed, case.device, channel).accuracy


def enter(store: Store, results: dict[str, Any]) -> None:
    """Write down what is known so far, with what follows from it."""
    add_leaks(results)
    results["warnings"] = warnings_of(results)
    if suite := suite_of(results["attacks"], results.get("does_not_fit", [])):
        results["suite"] = suite
    store.write(results)


@dataclass
class Asked:
    """What is asked of a run.

    Args:
        seed: of the attacks.
        samples: how many inputs are attacked.
        draws: how often each is released, where the run's own release is random.
        draws_under: the same under a condition, which may be random where the run is not.
        queries: how many answers the attacker averages.
        attacks: in the order in which they are run.
        conditions: under which they are run beside the usual one.
        release: of the run, as results record it.
        ungranted: attacks that are asked for and need data, where the attacker has none.
    """

    seed: int
    samples: int
    draws: int
    draws_under: int
    queries: list[int]
    attacks: list[Attack]
    conditions: list[Condition]
    release: Any
    ungranted: list[str]

    @classmethod
    def of(cls, store: Store, results: dict[str, Any], config: AttackConfig) -> Asked:
        """What a config asks of a run or an audit with these results."""
        seed = results["config"]["seed"] if config.attack_seed is None else config.attack_seed
        data, release = results["data"], results["defence"].get("release") or []
        attacks = those_that_fit(chosen_attacks(config, seed, store.cache), results)
        ungranted = [] if data["train"] else [attack.key for attack in attacks if attack.has_data]
        attacks = granted(attacks, ungranted)
        conditions = list(conditions_of(config, data["train"]))
        draws = config.draws if is_random(release) else 1
        samples = min(config.samples, data["test"])
        return cls(seed, samples, draws, config.draws, config.queries, attacks, conditions, release, ungranted)

    def leave_out(self, results: dict[str, Any], victim: Victim) -> None:
        """Forget attacks that have nothing to go by with this victim, and let the results say which."""
        unfit = {attack.key for attack in self.attacks if not attack.fits(victim)}
        results["does_not_fit"] = sorted({*results.get("does_not_fit", []), *unfit})
        if self.ungranted:
            results["needs_data"] = sorted({*results.get("needs_data", []), *self.ungranted} - {*FLOORS})
        self.attacks = those_that_fit(self.attacks, results)

    def has(self, results: dict[str, Any], attack: Attack) -> bool:
        """Whether the results have an attack under the usual conditions, on as many inputs and draws."""
        record = results["attacks"].get(attack.key)
        return finished(record, attack, self.samples) and (attack.is_floor or draws_of(record) >= self.draws)

    def missing(self, results: dict[str, Any], attack: Attack) -> list[Condition]:
        """The conditions under which an attack is asked for and was not run."""
        record = results["attacks"].get(attack.key, {})
        found = []
        for each in self.conditions:
            done = record.get(each.kind, {}).get(each.name)
            enough = finished(done, attack, self.samples) and draws_of(done) >= self.draws_under
            if each.applies_to(attack, self.release) and not enough and each.said not in record.get("not_under", []):
                found.append(each)
        return found

    def lacks_others(self, results: dict[str, Any]) -> bool:
        """Whether the floor needs more label-only attackers, or their scores are fewer than the first one's."""
        record = results["attacks"]["label"]
        others = record.get("others", [])
        few = len(others) < self.label_attackers(results) - 2
        return few or any(each.keys() != record["scores"].keys() for each in others)

    def label_attackers(self, results: dict[str, Any]) -> int:
        """How many label-only attackers the floor of the worst case needs: as many as there are attacks."""
        asked = {attack.key for attack in self.attacks}
        return len((asked | set(results["attacks"])) - set(BESIDE))

    def is_done(self, store: Store, results: dict[str, Any]) -> bool:
        """Whether everything was run, and drawn."""
        if not (is_drawn(store, results) and all(self.has(results, attack) for attack in self.attacks)):
            return False
        if any(attack.key == "label" and self.lacks_others(results) for attack in self.attacks):
            return False
        if self.attacks and not ("cost" in results and has_identity(results, self.samples, self.queries)):
            return False
        return not any(self.missing(results, attack) for attack in self.attacks)

    def is_scored(self, results: dict[str, Any]) -> bool:
        """Whether every finished attack has every score."""
        return all(fully_scored(results, attack) for attack in self.attacks)


def those_that_fit(attacks: list[Attack], results: dict[str, Any]) -> list[Attack]:
    """The attacks without those that have nothing to go by, as results say; refused where only floors are left."""
    unfit = results.get("does_not_fit", [])
    kept = [attack for attack in attacks if attack.key not in unfit]
    if attacks and all(attack.is_floor for attack in kept):
        raise UserError(f"{', '.join(unfit)} cannot be tried on {results['name']}: its release gives it nothing")
    return kept


def granted(attacks: list[Attack], ungranted: list[str]) -> list[Attack]:
    """The attacks without those that need data which the attacker does not have; refused where none is left."""
    kept = [attack for attack in attacks if attack.key not in ungranted]
    if attacks and not kept:
        named = ", ".join(key for key in ungranted if key not in FLOORS)
        raise UserError(f"{named} need inputs of the attacker's own, and there are none; whitebox/no-data does without")
    return kept


def is_drawn(store: Store, results: dict[str, Any]) -> bool:
    """Whether what was recovered has its pictures: a run may have been killed just before they were made."""
    kept = any(store.has(key) for key in results["attacks"])
    return not kept or len(results["data"]["shape"]) != 3 or store.is_drawn


def is_attacked(results: dict[str, Any], config: AttackConfig, store: Store) -> bool:
    """Whether results have everything that is asked for; a score may still be missing."""
    return Asked.of(store, results, config).is_done(store, results)


def is_scored(results: dict[str, Any], config: AttackConfig, store: Store) -> bool:
    """Whether the attacks that are asked for, all of them finished, have every score."""
    return Asked.of(store, results, config).is_scored(results)


def images_attacked(run: Run, config: AttackConfig) -> bool:
    """Whether a run has already been through everything that is asked for; a score may still be missing."""
    return is_attacked(read_attackable(run), config, FolderStore(run))


def images_scored(run: Run, config: AttackConfig) -> bool:
    """Whether the attacks that are asked for, all of them finished, have every score."""
    return is_scored(read_attackable(run), config, FolderStore(run))


def read_attackable(run: Run) -> dict[str, Any]:
    """The results of a run that these attacks can be tried on, without attacks that meant something else."""
    results = run.read_results()
    needed = {"seed", "dataset", "batch_size", "validation_fraction", "limit_train", "limit_test"}
    if not results["config"].keys() >= needed:
        raise UserError(f"{run.results} does not say what the run was trained on; train it again with --force")
    results["attacks"] = up_to_date(results)
    return results


def up_to_date(results: dict[str, Any]) -> dict[str, Any]:
    """The attacks in results without those that meant something else when they were run."""
    released = bool(results["defence"].get("release"))
    versions = {key: version_of(key, record, released) for key, record in results["attacks"].items()}
    return complete(results["attacks"], versions, "stopped")


def version_of(key: str, record: Any, released: bool) -> int:
    """Today's format of an attack; what a user's own attack left is as its file, which need not be here, left it.

    Args:
        key: of the attack.
        record: what is kept of it.
        released: whether the run has a release.
    """
    name = key.split("/")[0]
    if name == GALLERY:
        return GALLERY_FORMAT
    if name == "whitebox" and not released and record.get("format") == BEFORE_MISFITS:
        return BEFORE_MISFITS  # without a release the white box is what it was, to the last bit
    version: int = ATTACKS[name].version if name in ATTACKS else record.get("format", Attack.version)
    return version


def draws_of(record: dict[str, Any] | None) -> int:
    """How many draws were asked for when a record was made."""
    return 1 if record is None else int(record.get("draws_asked", record.get("draws", {}).get("count", 1)))


def finished(done: dict[str, Any] | None, attack: Attack, samples: int) -> bool:
    """Whether a record is of this attack, on as many inputs and with at least what is asked for spent on it.

    A weaker attack never replaces a stronger one: the ordinary command after a thorough one has nothing to do.
    """
    if done is None or done["stopped"] or done["samples"] < samples:
        return False
    theirs, ours = dict(done["settings"]), dict(attack.settings)
    spent, asked = (BUDGETS.index(each.pop("budget", BUDGETS[0])) for each in (theirs, ours))
    trained, wanted = (each.pop("epochs", 0) for each in (theirs, ours))
    networks, needed = (set(each.pop("networks", [])) for each in (theirs, ours))
    return theirs == ours and spent >= asked and trained >= wanted and networks >= needed


def fully_scored(results: dict[str, Any], attack: Attack) -> bool:
    """Whether a finished attack on images has its PSIM; its weights may not have been there at the time."""
    done = results["attacks"][attack.key]
    return len(results["data"]["shape"]) != 3 or "psim" in done


def score_again(
    store: Store, results: dict[str, Any], attack: Attack, data: TensorDataModule, device: torch.device
) -> None:
    """Bring a finished attack's scores up to date from what it recovered."""
    done = results["attacks"][attack.key]
    if not fully_scored(results, attack) and store.has(attack.key):
        recovered = recovered_by(store, results, attack.key).to(device)
        found = scored(scorer_of(store, data, torch.tensor(done["inputs"]), device).score(recovered))
        done["scores"] = {**found.pop("scores"), **done["scores"]}  # what is there may be a mean over draws
        results["attacks"][attack.key] = {**found, **done}


def scorer_of(store: Store, datamodule: TensorDataModule, inputs: Tensor, device: torch.device) -> Scorer:
    """Who may compare what was recovered with the test inputs of these indices."""
    x_test, y_test = datamodule.test
    gallery = datamodule.sample_of_tests(max(RANKED, len(inputs)))
    classifiers, has_data = store.cache.parent / ".classifiers", len(datamodule.train[1]) > 0
    return Scorer(
        original=scaled(x_test[inputs].to(device)),
        classes=y_test[inputs].to(device),
        gallery=scaled(x_test[gallery].to(device)),
        perceptual=perceptual_or_none(device) if x_test.ndim == 4 else None,
        classifier=independent_classifier(datamodule, classifiers, device) if has_data else None,
    )


def data_of(results: dict[str, Any], victim: Victim, data_root: str | None, dataset: str | None) -> TensorDataModule:
    """The run's own data, split as they were for training."""
    config = results["config"]
    scaling = config.get("image_size", 0), config.get("skip_corrupt", False)
    arrays = load(dataset or config["dataset"], root_of(data_root), config["seed"], *scaling)
    needed = ("batch_size", "seed", "validation_fraction", "limit_train", "limit_test")
    datamodule = TensorDataModule(arrays, *(config[name] for name in needed))
    if datamodule.shape != victim.shape:
        raise UserError(
            f"{results['name']} takes inputs of shape {victim.shape}, and {arrays.name} holds {datamodule.shape}; "
            f"give the data it was trained on with --dataset or --data-root"
        )
    check_same_data(results, datamodule)
    return datamodule


@functools.cache
def perceptual_or_none(device: torch.device) -> lpips.LPIPS | None:
    """LPIPS, or one line that says why there is no PSIM."""
    try:
        return perceptual_network().to(device)
    except AssetError as error:
        print(f"no PSIM: {error}", flush=True)
        return None


def recovered_by(store: Store, results: dict[str, Any], key: str) -> Tensor:
    """What an attack gave back (N, …), as the store kept it."""
    shape = (len(results["attacks"][key]["inputs"]), *results["data"]["shape"])
    return torch.from_numpy(store.recovered(key, shape))


def draw(store: Store, datamodule: TensorDataModule, results: dict[str, Any]) -> None:
    """Originals and reconstructions by attack, from the best-recovered image to the worst."""
    attacks = {key: each for key, each in results["attacks"].items() if store.has(key)}
    inputs = common_inputs(attacks)
    shown: dict[str, Tensor] = {}
    best = torch.full((len(inputs),), -torch.inf)
    for key, each in attacks.items():
        rows = [each["inputs"].index(index) for index in inputs]
        shown[key] = recovered_by(store, results, key)[rows]
        best = best.maximum(torch.tensor(each["scores"]["psnr"])[rows])
    original = scaled(datamodule.test[0][torch.tensor(inputs)])
    store.draw(Pictures(original, inputs, shown, best.argsort(descending=True)))
