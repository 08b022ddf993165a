"""Where what attacks find is kept: in the folder of a run or of an audit, or in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sweetspot.files import replacing
from sweetspot.reports.figures import gallery_figure
from sweetspot.runs.folder import Run

PICTURE = "recovered.png"


@dataclass(frozen=True)
class Pictures:
    """What is drawn of an audit or a run.

    Args:
        original: the attacked images that every attack saw (N, C, H, W), in [0, 1].
        inputs: their indices in the test set.
        shown: what each attack made of them, by its name.
        order: the rows from the best-recovered image to the worst.
    """

    original: Tensor
    inputs: list[int]
    shown: Mapping[str, Tensor]
    order: Tensor


class Store(ABC):
    """What attacks need of the place where their findings are kept.

    Label-only decoders and independent classifiers, which depend on the data alone, lie beside `cache`.
    """

    @property
    @abstractmethod
    def cache(self) -> Path:
        """The folder in which attackers of this victim keep what they learned."""

    @abstractmethod
    def write(self, results: dict[str, Any]) -> None:
        """Keep the results as they are now: called after every attack."""

    @abstractmethod
    def has(self, key: str) -> bool:
        """Whether what an attack gave back is there."""

    @abstractmethod
    def keep(self, key: str, x: Tensor) -> None:
        """Keep what an attack gave back (N, …)."""

    @abstractmethod
    def recovered(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        """What an attack gave back, if it is of this shape (N, …)."""

    @property
    @abstractmethod
    def is_drawn(self) -> bool:
        """Whether there are pictures of what came back."""

    @abstractmethod
    def draw(self, pictures: Pictures) -> None:
        """Keep originals and reconstructions side by side."""


@dataclass(frozen=True)
class FolderStore(Store):
    """The folder of a run, or of an audit: after a kill the same command goes on from what is in it."""

    run: Run

    @property
    def cache(self) -> Path:
        return self.run.folder

    def write(self, results: dict[str, Any]) -> None:
        self.run.write_results(results)

    def has(self, key: str) -> bool:
        return self.run.recovered(key).is_file()

    def keep(self, key: str, x: Tensor) -> None:
        with replacing(self.run.recovered(key)) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, x=x.cpu().numpy())

    def recovered(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.run.read_recovered(key, shape)

    @property
    def is_drawn(self) -> bool:
        return self.run.originals.is_file() and (self.run.folder / PICTURE).is_file()

    def draw(self, pictures: Pictures) -> None:
        with replacing(self.run.originals) as temporary, temporary.open("wb") as file:  # reports have no dataset
            np.savez_compressed(file, x=pictures.original.numpy(), inputs=np.array(pictures.inputs))
        gallery_figure(pictures.original, pictures.shown, pictures.order, self.run.folder / PICTURE)


@dataclass
class MemoryStore(Store):
    """Memory: nothing outlives the object, and what attackers learn lies in a folder for as long as they need it.

    Args:
        folder: for what attackers learn; it is theirs alone.
    """

    folder: Path
    pictures: Pictures | None = None
    kept: dict[str, Tensor] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        cache = self.folder / "attackers"
        cache.mkdir(exist_ok=True)
        return cache

    def write(self, results: dict[str, Any]) -> None:
        """The results are the caller's own already."""

    def has(self, key: str) -> bool:
        return key in self.kept

    def keep(self, key: str, x: Tensor) -> None:
        self.kept[key] = x.detach().cpu()

    def recovered(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        found: np.ndarray = self.kept[key].numpy()
        return found

    @property
    def is_drawn(self) -> bool:
        return self.pictures is not None

    def draw(self, pictures: Pictures) -> None:
        self.pictures = pictures
