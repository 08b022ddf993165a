"""Pictures of what came back, small enough to carry hundreds of them in one page: WebP montages as data URIs."""

from __future__ import annotations

import base64
import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sweetspot.metrics.summary import BESIDE, FLOORS, common_inputs
from sweetspot.reports.gathering import FoundRun
from sweetspot.runs.folder import Run

COLUMNS = (8, 6, 4, 3, 2, 1)  # how many inputs a picture shows: as many as the budget allows
BUDGET = 12e6  # bytes of pictures in a page
QUALITY = 82  # of WebP; below, small images show blocks
GAP = 1  # pixels between two images
BETWEEN = 0.5  # the grey of the gap: seen on light and on dark pages
SMALLEST = 28  # smaller images are enlarged to about this: WebP blurs single pixels


@dataclass(frozen=True)
class Montage:
    """A picture with a row an attack: its data URI, its size in pixels, and what each row is."""

    uri: str
    width: int
    height: int
    rows: tuple[str, ...]
    columns: int


def attacks_shown(run: FoundRun) -> dict[str, Any]:
    """The attacks of a run whose images can be shown, the floors last."""
    if len(run.results["data"]["shape"]) != 3:
        return {}
    records = run.results["attacks"]
    known = {
        key: records[key] for key in sorted(records, key=lambda key: (key in FLOORS, key)) if records[key].get("inputs")
    }
    return {key: record for key, record in known.items() if Run(run.folder).recovered(key).is_file()}


def shown_inputs(runs: Iterable[FoundRun]) -> list[int]:
    """The test inputs that every run with pictures has them of, in the order in which they were drawn."""
    ordered: list[int] = []
    common: set[int] | None = None
    for run in runs:
        attacks = attacks_shown(run)
        if attacks:
            ordered = ordered or list(next(iter(attacks.values()))["inputs"])
            these = set(common_inputs(attacks))
            common = these if common is None else common & these
    return [index for index in ordered if index in (common or set())]


def columns_for(pictures: int, shape: Sequence[int], rows: float) -> int:
    """How many inputs a picture may show so that all of them stay within the budget."""
    side = max(1, -(-SMALLEST // max(int(shape[-1]), 1)))
    pixels = rows * shape[-1] * shape[-2] * side * side
    each = pixels * (0.32 if shape[0] == 1 else 0.45) * 4 / 3  # bytes a column, as measured on digits and photographs
    return next((count for count in COLUMNS if pictures * (count * each + 400) <= BUDGET), 0)


def rows_of(file: Path, rows: Sequence[int]) -> np.ndarray | None:
    """Some rows of the array x in an .npz, read no further than needed; None where it cannot be read."""
    try:
        with zipfile.ZipFile(file) as archive, archive.open("x.npy") as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(stream)
            if fortran or dtype.hasobject or len(shape) != 4 or not rows or max(rows) >= shape[0]:
                return None
            size = int(np.prod(shape[1:])) * dtype.itemsize
            data = stream.read((max(rows) + 1) * size)
        found: np.ndarray = np.frombuffer(data, dtype).reshape(-1, *shape[1:])[list(rows)]
        return found.astype(np.float32)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def originals_of(runs: Iterable[FoundRun], inputs: Sequence[int]) -> np.ndarray | None:
    """The true images, from the first run that kept them all."""
    for run in runs:
        file = Run(run.folder).originals
        try:
            with np.load(file, allow_pickle=False) as kept:
                where = {int(index): row for row, index in enumerate(kept["inputs"])}
                if inputs and all(index in where for index in inputs):
                    found: np.ndarray = kept["x"][[where[index] for index in inputs]].astype(np.float32)
                    return found
        except (OSError, ValueError, KeyError, EOFError, IndexError, zipfile.BadZipFile):
            continue
    return None


def recovered_images(run: FoundRun, inputs: Sequence[int]) -> dict[str, np.ndarray]:
    """What each attack gave back of these inputs; an attack that lacks one of them is left out."""
    images = {}
    for key, record in attacks_shown(run).items():
        where = {index: row for row, index in enumerate(record["inputs"])}
        if all(index in where for index in inputs):
            found = rows_of(Run(run.folder).recovered(key), [where[index] for index in inputs])
            if found is not None:
                images[key] = found
    return images


def gallery(run: FoundRun, inputs: Sequence[int], originals: np.ndarray | None) -> Montage | None:
    """The originals, where they are known, and below them a row an attack."""
    rows = {**({"original": originals} if originals is not None else {}), **recovered_images(run, inputs)}
    return montage(rows) if set(rows) - {"original"} else None


def galleries(
    runs: Sequence[FoundRun], inputs: Sequence[int], originals: np.ndarray | None
) -> dict[Path, Montage | None]:
    """The gallery of every run, by its folder; several at once, for reading and encoding wait for no one."""
    if not inputs:
        return {}
    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 8)) as pool:
        pictures = pool.map(lambda run: gallery(run, inputs, originals), runs)
        return {run.folder: picture for run, picture in zip(runs, pictures, strict=True)}


def worst_images(run: FoundRun, inputs: Sequence[int], metric: str) -> np.ndarray | None:
    """For each input the reconstruction of the attack that recovered it best; floors are no attacks."""
    images = {key: each for key, each in recovered_images(run, inputs).items() if key not in BESIDE}
    chosen = []
    for place, index in enumerate(inputs):
        scored = []
        for key, each in images.items():
            record = run.results["attacks"][key]
            scores = record.get("scores", {}).get(metric)
            if scores and len(scores) == len(record["inputs"]):
                scored.append((scores[record["inputs"].index(index)], key, each[place]))
        if not scored:
            return None
        chosen.append(max(scored, key=lambda entry: entry[:2])[2])
    return np.stack(chosen) if chosen else None


def montage(rows: dict[str, np.ndarray]) -> Montage | None:
    """Rows of images (N, C, H, W) in [0, 1] as one picture; None where they do not fit each other."""
    shapes = {images.shape for images in rows.values()}
    if len(shapes) != 1:
        return None
    count, channels, height, width = shapes.pop()
    if channels not in (1, 3) or not count:
        return None
    scale = max(1, -(-SMALLEST // max(height, width)))
    tall, wide = height * scale + GAP, width * scale + GAP
    canvas = np.full((channels, len(rows) * tall - GAP, count * wide - GAP), BETWEEN, np.float32)
    for i, images in enumerate(rows.values()):
        big = np.nan_to_num(images).repeat(scale, axis=2).repeat(scale, axis=3)
        for j, image in enumerate(big):
            canvas[:, i * tall : i * tall + tall - GAP, j * wide : j * wide + wide - GAP] = image
    pixels = (canvas.clip(0, 1) * 255).round().astype(np.uint8)
    picture = Image.fromarray(pixels[0] if channels == 1 else pixels.transpose(1, 2, 0))
    return Montage(webp(picture), picture.width, picture.height, tuple(rows), count)


def webp(picture: Image.Image) -> str:
    """A picture as a data URI."""
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=QUALITY, method=2)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
