"""A folder of images, one subfolder a class: `pictures/cat/1.png`, or `pictures/train/cat/1.png` beside `test/`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from sweetspot.datamodules.image_cache import CachedImages, ImageFiles, cached_images
from sweetspot.datamodules.mapped import part_of
from sweetspot.datamodules.tensors import SPLIT_SEED, Arrays, split_off
from sweetspot.errors import UserError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
VALIDATIONS = ("val", "valid", "validation")  # how a split for the validation curve may be called
TEST_PART = 0.2  # of every class, where the images are not split
T = TypeVar("T")


@dataclass(frozen=True)
class Labelled:
    """Labelled image files in splits.

    Args:
        name: of the set.
        where: it lies.
        files: its images.
        labels: of each.
        splits: of each: `train`, `validation`, `test`, or empty where they are not split yet.
        classes: their names.
    """

    name: str
    where: str
    files: ImageFiles
    labels: Sequence[int]
    splits: Sequence[str]
    classes: Sequence[str]


def image_folder(path: Path, image_size: int = 0, skip_corrupt: bool = False) -> Arrays:
    """The images of a folder, on disk; what is not split already is split 80 to 20 within every class.

    Args:
        path: the folder.
        image_size: as in `cached_images`.
        skip_corrupt: as in `cached_images`.
    """
    names: list[str] = []
    labels: list[int] = []
    splits: list[str] = []
    classes: list[str] = []
    made_of = hashlib.sha256(os.fsencode(path.resolve()))
    for split, root in splits_of(path).items():
        found = class_folders(root)
        classes = classes or found
        if unknown := sorted(set(found) - set(classes)):
            raise UserError(f"{root} has the class {unknown[0]}, and there is none in {path / 'train'}")
        for name in found:
            before = len(names)
            for file in image_files(root / name):
                names.append(str(file))
                labels.append(classes.index(name))
                splits.append(split)
                told = file.stat()
                made_of.update(os.fsencode(file) + f"\0{told.st_size} {told.st_mtime_ns}\n".encode())
            if len(names) == before:
                raise UserError(f"the class {root / name} holds no image ({', '.join(ENDINGS)}); fill or remove it")
    files = ImageFiles(str(path), made_of.hexdigest(), names, lambda number: Path(names[number]).read_bytes())
    labelled = Labelled(path.resolve().name, str(path), files, labels, splits, classes)
    return arrays_of(labelled, cached_images(files, image_size, skip_corrupt))


def splits_of(path: Path) -> dict[str, Path]:
    """Where the images of each split lie; where they are not split the one place of all, under no name."""
    held = {each.name: each for each in subfolders(path)}
    return chosen_splits(held) or {"": held["train"] if [*held] == ["train"] else path}


def chosen_splits(held: Mapping[str, T]) -> dict[str, T]:
    """Training, validation and test split among what is held by name; empty: nothing to test on is split off.

    A set that has a validation split and no test split is tested on the former.

    Example:
        >>> chosen_splits({"train": 1, "val": 2}), chosen_splits({"cats": 1, "dogs": 2})
        ({'train': 1, 'test': 2}, {})
    """
    more = [held[name] for name in ("test", *VALIDATIONS) if name in held]
    if "train" not in held or not more:
        return {}
    found = {"train": held["train"], "test": more[0]}
    return {**found, "validation": more[1]} if "test" in held and len(more) > 1 else found


def class_folders(root: Path) -> list[str]:
    """The names of the classes, at least two, in the order in which they are numbered."""
    names = [each.name for each in subfolders(root)]
    if len(names) < 2:
        such = f"as in {root}/cats/1.png and {root}/dogs/1.png"
        has = f"the one subfolder {names[0]}" if names else "no subfolder" if any(root.iterdir()) else "nothing in it"
        raise UserError(f"{root} has {has}; a folder of images needs one subfolder a class, two or more, {such}")
    return names


def subfolders(path: Path) -> list[Path]:
    """The folders in a folder, in order, without hidden ones."""
    return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))


def image_files(folder: Path) -> Iterator[Path]:
    """The images below a folder, in order, without hidden ones."""
    for held, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if name.lower().endswith(ENDINGS) and not name.startswith("."):
                yield Path(held) / name


def arrays_of(labelled: Labelled, found: CachedImages) -> Arrays:
    """A set of labelled images, split, with what its record says."""
    y = torch.tensor(labelled.labels)[found.kept]
    splits = [split for split, kept in zip(labelled.splits, found.kept.tolist(), strict=True) if kept]
    train, test, held_out = (
        torch.tensor([number for number, split in enumerate(splits) if split == name], dtype=torch.long)
        for name in ("train", "test", "validation")
    )
    if labelled.splits[0]:
        how = "as it came"
    else:
        train, test = split_off(y, torch.arange(len(y)), TEST_PART)
        how = f"{1 - TEST_PART:.0%} of every class to train on, {TEST_PART:.0%} to test on, seed {SPLIT_SEED}"
    missing = (torch.bincount(y[train], minlength=len(labelled.classes)) == 0).nonzero()
    if len(missing):
        raise UserError(f"{labelled.where}: the class {labelled.classes[int(missing[0])]} has no training image")
    made_of = hashlib.sha256(f"{found.sha256} {how} {list(labelled.classes)}".encode())
    for each in (y, train, test):
        made_of.update(each.numpy().tobytes())
    return Arrays(
        labelled.name,
        f"{labelled.where}, {len(y):,} images",
        part_of(found.images, train),
        y[train],
        part_of(found.images, test),
        y[test],
        len(labelled.classes),
        validation=(part_of(found.images, held_out), y[held_out]) if len(held_out) else None,
        identity=made_of.hexdigest(),
        about={"class_names": list(labelled.classes), "split": how, "skipped": found.skipped},
    )
