"""Images from the Hugging Face hub, `hf:OWNER/NAME`, or from a folder of the hub's layout, `hf:path/to/folder`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub

from sweetspot.datamodules.folder import Labelled, arrays_of, chosen_splits
from sweetspot.datamodules.image_cache import ImageFiles, cached_images
from sweetspot.datamodules.tensors import Arrays
from sweetspot.datamodules.torchvision_sets import reachable
from sweetspot.errors import UserError, first_line

PREFIX = "hf:"


def hub_images(dataset: str, image_size: int = 0, skip_corrupt: bool = False) -> Arrays:
    """The labelled images of a hub dataset, on disk; a set without a test split is split 80 to 20 within every class.

    Args:
        dataset: `hf:OWNER/NAME`, with `:SUBSET` behind it where there are several, or `hf:path/to/folder`.
        image_size: as in `cached_images`.
        skip_corrupt: as in `cached_images`.
    """
    name, _, subset = dataset.removeprefix(PREFIX).partition(":")
    loaded = load_hub(dataset, name, subset)
    chosen = labelled_splits(dataset, loaded)
    image, label = columns_of(dataset, next(iter(chosen.values())))
    labels = {split: [int(each) for each in rows[label]] for split, rows in chosen.items()}
    classes = names_of(next(iter(chosen.values())), label, [each for held in labels.values() for each in held])
    datasets = importlib.import_module("datasets")
    encoded = {split: rows.cast_column(image, datasets.Image(decode=False)) for split, rows in chosen.items()}
    places = [(split, row) for split, held in labels.items() for row in range(len(held))]

    def read(number: int) -> bytes:
        split, row = places[number]
        held = encoded[split][row][image]
        content: bytes | None = held["bytes"]
        return content if content is not None else Path(held["path"]).read_bytes()

    made_of = [(split, len(rows), str(getattr(rows, "_fingerprint", ""))) for split, rows in chosen.items()]
    files = ImageFiles(
        dataset,
        hashlib.sha256(f"{dataset} {image} {made_of}".encode()).hexdigest(),
        [f"{split or 'row'} {row} of {dataset}" for split, row in places],
        read,
    )
    every = [label for held in labels.values() for label in held]
    labelled = Labelled(Path(name).name, dataset, files, every, [split for split, _ in places], classes)
    return arrays_of(labelled, cached_images(files, image_size, skip_corrupt))


def load_hub(dataset: str, name: str, subset: str) -> Mapping[str, Any]:
    """The splits of a hub dataset by name, as the package datasets loads them."""
    instead = "or give a folder of images with one subfolder a class"
    if importlib.util.find_spec("datasets") is None:
        raise UserError(f"{dataset} is read with the package datasets, which is not here: install it, {instead}")
    is_local = Path(name).expanduser().is_dir()
    if not is_local and name.count("/") != 1:
        raise UserError(f"--dataset {dataset} must be hf:OWNER/NAME, or hf: and a folder that is there")
    if not is_local and not huggingface_hub.is_offline_mode() and not reachable(huggingface_hub.constants.ENDPOINT):
        raise UserError(f"{dataset} is on the hub, which cannot be reached: go online, {instead}")
    datasets = importlib.import_module("datasets")
    try:
        where = str(Path(name).expanduser()) if is_local else name
        loaded: Mapping[str, Any] = datasets.load_dataset(where, *([subset] if subset else []))
    except Exception as error:  # the network, the hub and the format fail each in their own way
        raise UserError(f"{dataset} could not be loaded ({first_line(error)}); look at its name, {instead}") from error
    if not isinstance(loaded, Mapping) or not loaded:
        raise UserError(f"{dataset} has no splits; {instead}")
    return loaded


def labelled_splits(dataset: str, loaded: Mapping[str, Any]) -> dict[str, Any]:
    """Training, validation and test split; where nothing with labels is there to test on, one under no name."""
    train = loaded["train"] if "train" in loaded else next(iter(loaded.values()))
    _, label = columns_of(dataset, train)
    known = {name: rows for name, rows in loaded.items() if name == "train" or min(rows[label], default=-1) >= 0}
    return chosen_splits(known) or {"": train}


def columns_of(dataset: str, rows: Any) -> tuple[str, str]:
    """The columns that hold the image and its class, by their features."""
    kinds = {name: type(feature).__name__ for name, feature in rows.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    labels += [name for name in ("label", "labels") if name in kinds and name not in labels]
    if not images or not labels:
        missing = "image" if not images else "class"
        raise UserError(f"{dataset} has no column that holds the {missing}; its columns are {', '.join(kinds)}")
    return images[0], labels[0]


def names_of(rows: Any, label: str, labels: list[int]) -> list[str]:
    """The names of the classes, or their numbers where they have none."""
    names = getattr(rows.features[label], "names", None)
    found = [str(name) for name in names] if names else [str(number) for number in range(max(labels) + 1)]
    if len(found) < 2:
        raise UserError(f"{label} has one class, {found[0]}: nothing can be learnt from it; two or more are needed")
    return found
