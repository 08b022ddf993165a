"""Audits: any two modules attacked as runs are, without a run.

audit = sweetspot.attack(encoder, head, test=(x, y), attacker=(x2, y2))
audit.leak, audit.results, audit.page("audit.html")
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sweetspot.attacks import Victim
from sweetspot.attacks.threat_model import inputs_at_once
from sweetspot.datamodules import TensorDataModule
from sweetspot.datamodules.tensors import EVALUATION_BATCH
from sweetspot.errors import UserError
from sweetspot.evaluations.chosen import attack_keys, check_asked
from sweetspot.evaluations.given import (
    borrowed,
    check_classes,
    check_modules,
    check_runs,
    data_given,
    fingerprint,
    release_given,
    release_record,
    shared_inputs,
)
from sweetspot.evaluations.images import attack as attack_victim
from sweetspot.evaluations.images import draw, is_attacked, is_scored, up_to_date
from sweetspot.evaluations.store import FolderStore, MemoryStore, Pictures, Store
from sweetspot.files import check_writable, temporary_folder
from sweetspot.lightning_modules.separability import separability
from sweetspot.lightning_modules.utility import utility_of
from sweetspot.reports.audits import audit_html, audit_text
from sweetspot.reports.page import write_page
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.environment import environment, pick_device, reproducible
from sweetspot.runs.folder import Run
from sweetspot.runs.identity import short

RANK_ZERO = "lightning.pytorch.utilities.rank_zero"  # the logger that Lightning's banners come from
HEADLINES = ("ssim", "mcs", "mse")  # by which of them a leak is summed up: the first that was measured


def attack(
    encoder: nn.Module,
    head: nn.Module,
    test: tuple[Any, Any],
    attacker: tuple[Any, Any] | None = None,
    release: Callable[[Tensor], Tensor] | None = None,
    attacks: str | Sequence[str] = "standard",
    samples: int = 100,
    budget: str = "normal",
    seed: int = 0,
    draws: int = 1,
    queries: int | Sequence[int] = 1,
    out: str | Path | None = None,
    device: str = "auto",
    name: str = "model",
    **options: Any,
) -> Audit:
    """Attack any network that is split into two modules, and say how much of its inputs comes back.

    The modules are used in evaluation mode, and left as they were. Images lie in [0, 1] (a network that wants them
    otherwise normalises them in its encoder), so that attacks search there; vectors may have any range.

    Args:
        encoder: the client's part, inputs (N, …) to one tensor (N, …).
        head: the server's part, what the client sends to logits (N, K).
        test: inputs (N, C, H, W) as uint8 or as float in [0, 1], or vectors (N, d), and their class indices (N,);
            some of them are attacked.
        attacker: the same of the attacker's own, of every class, none of them in `test`; None: an attacker without
            data, so that only attacks that need none are run, and there is no leak: nobody says what the label alone
            would give.
        release: what is done to z on its way out: one of `lightning_modules.defences.releases`, any module, or any
            function of z; None: nothing.
        attacks: standard, or names as `--attacks` takes them.
        samples: how many test inputs are attacked.
        budget: fast, normal or thorough.
        seed: of whatever is random.
        draws: how often every input is released and attacked, where the release is random.
        queries: how many answers the attacker averages, or several such numbers.
        out: a folder of runs and audits, such as checkpoints/: the audit is kept there in a folder of its own, and the
            same call goes on with it. None: it stays in memory.
        device: where the attacks run.
        name: what to call the network.
        options: of attacks, such as `decoder_epochs`.

    Example:
        >>> audit = attack(encoder, head, test=(x, y), attacker=(x2, y2))  # doctest: +SKIP
        >>> audit.leak  # doctest: +SKIP
        0.93
    """
    check_modules(encoder, head)
    config = AttackConfig(
        attacks=[attacks] if isinstance(attacks, str) else list(attacks),
        samples=samples,
        budget=budget,
        attack_seed=seed,
        draws=draws,
        queries=[queries] if isinstance(queries, int) else list(queries),
        device=device,
        attack_options=options,
    )
    subject = Subject(encoder, head, release_given(release), data_given(test, attacker), name)
    return audited(subject, config, None if out is None else Path(out))


@dataclass
class Subject:
    """What is audited.

    Args:
        encoder: the client's part.
        head: the server's part.
        release: what is done to z on its way out.
        data: the test inputs, and in its training split the attacker's own.
        model: what to call the network.
        cut: where it is cut, in words.
        weights: what to call its weights; empty: by their fingerprint alone.
        code: what tells the code that makes it from other code, where weights and layers do not.
        asked: how it was asked for, for the record.
    """

    encoder: nn.Module
    head: nn.Module
    release: Callable[[Tensor], Tensor]
    data: TensorDataModule
    model: str = "model"
    cut: str = "encoder"
    weights: str = ""
    code: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)

    def victim(self) -> Victim:
        """What an attacker may see of it."""
        shape = self.data.shape
        bounds = (0.0, 1.0) if len(shape) == 3 else None
        return Victim(self.encoder, self.head, self.release, shape, self.data.classes, bounds)

    def fingerprint(self) -> str:
        """What tells its networks and its weights from others."""
        return fingerprint(self.encoder, self.head)

    def defence(self) -> dict[str, Any]:
        """What is known of its defence: what it releases. Whether anything else defends it is not known."""
        weights = " ".join(filter(None, [self.weights, self.fingerprint()[:8]]))
        release = release_record(self.release)
        return {"name": "none", "lambda": 0.0, "beta": 0.0, "bottleneck": None, "release": release, "weights": weights}

    def name(self, seed: int) -> str:
        """A readable prefix and a hash of everything that defines the audit: `audit-cifar10-resnet18-layer1-…`."""
        arrays, record = self.data.arrays, self.data.record()
        releases = [short(each["name"]) for each in release_record(self.release)]
        identity = [
            self.model, self.cut, self.fingerprint(), fingerprint(self.release), release_record(self.release),
            [record[name] for name in ("identity", "train", "test", "shape", "classes")], self.code, seed,
        ]  # fmt: skip
        text = json.dumps(identity, sort_keys=True, default=str)
        parts = ["audit", arrays.name, re.split(r"[:/]", self.model)[-1], self.cut, *releases, f"s{seed}"]
        readable = "-".join(re.sub(r"[^\w.-]+", "_", part) for part in parts)
        return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Audit:
    """What attacks made of a network. In a terminal it is a table, in a notebook a table and pictures.

    Args:
        results: as `results.json` of a run has them.
        pictures: originals and reconstructions; None for vectors, and where nothing was recovered.
        recovered: what each attack gave back (N, …), by its name.
        folder: where it is kept; None: in memory.
    """

    results: dict[str, Any]
    pictures: Pictures | None
    recovered: dict[str, np.ndarray]
    folder: Path | None = None

    @property
    def worst_case(self) -> dict[str, Any]:
        """For every input the attack that recovered it best, summed up by metric."""
        found: dict[str, Any] = self.results["worst_case"]
        return found

    @property
    def leak(self) -> float | None:
        """The mean worst-case leak beyond the label by SSIM (of vectors by cosine similarity): 0 is what the label
        alone gives back, 1 everything. None where the attacker had no data, and so nobody knows what the label gives.
        """
        leaks = self.worst_case.get("leak") or {}
        return next((float(leaks[metric]["mean"]) for metric in HEADLINES if metric in leaks), None)

    def __repr__(self) -> str:
        return audit_text(self.results)

    def _repr_html_(self) -> str:
        """A table and pictures, for a notebook."""
        original = self.pictures.original.numpy() if self.pictures is not None else None
        shown = {key: each.numpy() for key, each in self.pictures.shown.items()} if self.pictures is not None else {}
        return audit_html(self.results, original, shown)

    def page(self, path: str | Path) -> Path:
        """Write it as one HTML file that needs nothing else, as `report.py` does; where the page is."""
        page = Path(path)
        if page.suffix.lower() != ".html":
            raise UserError(f"a page must end in .html; got {page}")
        check_writable("page", page)
        with temporary_folder("sweetspot-page") as folder:
            write_page([self.folder or self.save(folder / self.results["name"])], page)
        return page

    def save(self, folder: str | Path) -> Path:
        """Write results.json, what was recovered and the picture into a folder, which `report.py` takes; where."""
        run = Run(Path(folder))
        run.create()
        store = FolderStore(run)
        for key, x in self.recovered.items():
            store.keep(key, torch.from_numpy(x))
        if self.pictures is not None:
            store.draw(self.pictures)
        store.write(self.results)
        return run.folder


def audited(subject: Subject, config: AttackConfig, out: Path | None) -> Audit:
    """Attack a subject, or find it attacked already, or go on where it was stopped.

    Args:
        subject: what is attacked.
        config: how.
        out: the folder of the audit's own folder; None: the audit stays in memory.
    """
    check_asked(config)
    if not attack_keys(config):
        raise UserError(f"an audit is of images or vectors: --attacks {' '.join(config.attacks)} has nothing to do")
    check_classes(subject.data)
    device, seed = pick_device(config.device), config.attack_seed or 0
    parts = [subject.encoder, subject.head, subject.release]
    with borrowed(parts, device), reproducibly(), without_banners():
        check_runs(subject.encoder, subject.head, subject.release, subject.data, device)
        name = subject.name(seed)
        if out is None:
            with temporary_folder("sweetspot-audit") as folder:
                return in_memory(subject, config, MemoryStore(folder), begun(subject, name, seed, device))
        run = Run(out / name)
        run.check_name()
        run.create()
        with run.claimed():
            store = FolderStore(run)
            results = run.read_results() if run.finished else begun(subject, name, seed, device)
            results["attacks"] = up_to_date(results)
            if not run.finished:
                store.write(results)
            if is_attacked(results, config, store) and is_scored(results, config, store):
                print(f"already done: {run.folder}", flush=True)
            else:
                attack_victim(subject.victim(), subject.data, config, store, results)
            return gathered(subject, store, results, run.folder)


def in_memory(subject: Subject, config: AttackConfig, store: MemoryStore, results: dict[str, Any]) -> Audit:
    """The audit; after Ctrl-C with what was finished, for nothing else keeps it."""
    try:
        attack_victim(subject.victim(), subject.data, config, store, results)
    except KeyboardInterrupt:
        if not store.kept:
            raise
        print("stopped; the audit holds what was finished", flush=True)
    return gathered(subject, store, results, None)


def gathered(subject: Subject, store: Store, results: dict[str, Any], folder: Path | None) -> Audit:
    """An audit with what a store has kept of it."""
    shape = tuple(results["data"]["shape"])
    kept = {key: each for key, each in results["attacks"].items() if store.has(key)}
    recovered = {key: store.recovered(key, (len(each["inputs"]), *shape)) for key, each in kept.items()}
    memory = MemoryStore(Path(), kept={key: torch.from_numpy(each) for key, each in recovered.items()})
    if len(shape) == 3 and kept:
        draw(memory, subject.data, results)
    return Audit(results, memory.pictures, recovered, folder)


def begun(subject: Subject, name: str, seed: int, device: torch.device) -> dict[str, Any]:
    """Results before the first attack: what is audited, and what it is good for."""
    began = time.perf_counter()
    victim, data = subject.victim(), subject.data
    at_once = inputs_at_once(victim, EVALUATION_BATCH)
    useful = utility_of(victim.released, victim.head, data, seed, device, at_once=at_once)
    if not useful.representations.isfinite().all():
        raise UserError("the encoder returns NaN or infinite values; nothing can be recovered from them")
    return {
        "name": name,
        "data": data.record(),
        "model": {"name": subject.model, "cut": subject.cut, "head": "default"},
        "defence": subject.defence(),
        "utility": {"accuracy": useful.accuracy},
        "separability": separability(useful.representations),
        "attacks": {},
        "worst_case": {},
        "audit": {
            "attacker": "with data" if len(data.train[1]) else "without data",
            "shared_inputs": shared_inputs(data),
            "weights": subject.fingerprint(),
        },
        "config": {"seed": seed, "network": subject.model, "cut": subject.cut, **subject.asked},
        "environment": environment(device, seed, time.perf_counter() - began),
    }


@contextlib.contextmanager
def reproducibly() -> Iterator[None]:
    """Same seed, same machine, same numbers, within the block; torch's own settings are the caller's again after it."""
    strict, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    reproducible()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warns)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


@contextlib.contextmanager
def without_banners() -> Iterator[None]:
    """Lightning, which trains decoders, says nothing of itself within the block; its loggers are as before after it."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", RANK_ZERO)]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
