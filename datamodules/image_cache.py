"""Image files, decoded once into one file of bytes that is mapped into memory: sets larger than memory can be used.

The cache lies in $SWEETSPOT_CACHE/images, else in ~/.cache/sweetspot/images, and may be removed at any time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import filelock
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor

from sweetspot.datamodules.assets import cache
from sweetspot.datamodules.mapped import MappedImages
from sweetspot.errors import UserError, first_line
from sweetspot.files import replacing
from sweetspot.progress import steps_shown

FORMAT = 1  # raised when the same files begin to be decoded otherwise
GREY = ("1", "L", "LA", "La")
DEEP = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # grey, of 16 bits
AT_ONCE = 256  # files that are decoded together
MOST_THREADS = 16
CHUNK = 500  # images that are resized together


@dataclass(frozen=True)
class ImageFiles:
    """Image files, wherever they are.

    Args:
        what: they are, for messages: a folder, or the name of a hub dataset.
        key: what tells these files from others without reading them.
        names: of each, for messages.
        read: the content of the file of a number.
    """

    what: str
    key: str
    names: Sequence[str]
    read: Callable[[int], bytes]


@dataclass(frozen=True)
class Described:
    """What the cache says of its images.

    Args:
        shape: (N, H, W, C) of those that could be read, in the order of the files.
        sha256: of all files' content.
        unreadable: the numbers of files that hold no whole image.
        why: the first of them cannot be read.
    """

    shape: list[int]
    sha256: str
    unreadable: list[int]
    why: str


@dataclass(frozen=True)
class CachedImages:
    """Decoded images.

    Args:
        images: those that could be read, on disk.
        kept: which files they are, (files,) of bool.
        sha256: of all files' content.
    """

    images: MappedImages
    kept: Tensor
    sha256: str

    @property
    def skipped(self) -> int:
        """How many files could not be read."""
        return int((~self.kept).sum())


def cached_images(files: ImageFiles, image_size: int = 0, skip_corrupt: bool = False) -> CachedImages:
    """The images of some files, decoded now, or once before.

    Args:
        files: at least one.
        image_size: the shorter side is scaled to so many pixels, and the middle is cut out as a square; 0: as they are.
        skip_corrupt: whether files that hold no whole image are left out; else they are an error.
    """
    key = hashlib.sha256(f"{FORMAT} {image_size} {files.key}".encode()).hexdigest()[:24]
    folder = cache() / "images"
    content, about = folder / f"{key}.bin", folder / f"{key}.json"
    with writable(folder), filelock.FileLock(folder / f"{key}.lock"):  # runs of a grid need it at the same time
        described = read_description(content, about)
        if described is None:
            described = decode_all(files, image_size, content)
            with replacing(about) as temporary:
                temporary.write_text(json.dumps(asdict(described)), encoding="utf-8")
    if described.unreadable and not skip_corrupt:
        raise UserError(
            f"{len(described.unreadable):,} of the {len(files.names):,} files of {files.what} cannot be read as "
            f"images, the first is {files.names[described.unreadable[0]]} ({described.why}); mend or remove them, or "
            f"leave them out with --skip-corrupt"
        )
    kept = torch.ones(len(files.names), dtype=torch.bool)
    kept[described.unreadable] = False
    count, height, width, channels = described.shape
    images = MappedImages.open(content, (count, height, width, channels), f"{described.sha256} {image_size}")
    return CachedImages(images, kept, described.sha256)


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """The folder of the cache, or one line that says where another may be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EPERM):
            raise
        raise UserError(
            f"decoded images cannot be kept in {folder} ({error.strerror}); say with SWEETSPOT_CACHE=DIR where they may"
        ) from error


def read_description(content: Path, about: Path) -> Described | None:
    """What was written down beside decoded images; None where they are not there as a whole."""
    try:
        found = Described(**json.loads(about.read_text(encoding="utf-8")))
        return found if content.stat().st_size == np.prod(found.shape, dtype=np.int64) else None
    except (OSError, ValueError, TypeError):
        return None


def decode_all(files: ImageFiles, image_size: int, content: Path) -> Described:
    """Decode all files into one: as grey images if all of them are, else in colour."""
    for channels in (1, 3):
        with replacing(content) as temporary, temporary.open("wb") as into:
            described = write_images(files, image_size, channels, into)
        if described is not None:
            return described
    raise AssertionError("a colour image is not one in colour")


def write_images(files: ImageFiles, image_size: int, channels: int, into: IO[bytes]) -> Described | None:
    """Write the images of all files one after the other; None as soon as one is in colour and they are to be grey."""
    first, shape, written, unreadable, why = "", (0, 0), 0, [], ""
    made_of = hashlib.sha256()

    def decode(number: int) -> Decoded:
        return decoded(files, number, image_size, channels)

    total = len(files.names)
    with ThreadPoolExecutor(threads()) as pool, steps_shown(f"decoding {files.what} (once)", total) as done:
        for start in range(0, total, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, total))
            for number, image in zip(numbers, pool.map(decode, numbers), strict=True):
                made_of.update(image.sha256)
                if image.why:
                    why = why or image.why
                    unreadable.append(number)
                    continue
                if image.pixels is None:
                    return None
                if written and image.pixels.shape[:2] != shape:
                    raise UserError(
                        f"the images of {files.what} must be of one size, and {first} is {sides(shape)} and "
                        f"{files.names[number]} {sides(image.pixels.shape)}; scale them with --image-size N"
                    )
                first, shape = (first, shape) if written else (files.names[number], image.pixels.shape[:2])
                into.write(image.pixels.tobytes())
                written += 1
            done(numbers.stop)
    if not written:
        raise UserError(f"none of the {total:,} files of {files.what} can be read as an image; {files.names[0]}: {why}")
    return Described([written, *shape, channels], made_of.hexdigest(), unreadable, why)


def sides(shape: Sequence[int]) -> str:
    """(H, W) as people say it.

    Example:
        >>> sides((24, 32))
        '32 × 24'
    """
    return f"{shape[1]} × {shape[0]}"


def threads() -> int:
    """How many files are decoded at a time: Pillow decodes outside of Python's lock."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_THREADS)


@dataclass(frozen=True)
class Decoded:
    """One file: its image (H, W, C), None where that is in colour and was to be grey, or why it cannot be read."""

    sha256: bytes
    pixels: np.ndarray | None = None
    why: str = ""


def decoded(files: ImageFiles, number: int, image_size: int, channels: int) -> Decoded:
    """The image in one file."""
    try:
        content = files.read(number)
    except OSError as error:
        return Decoded(b"", why=error.strerror or first_line(error))
    digest = hashlib.sha256(content).digest()
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if channels == 1 and opened.mode not in (*GREY, *DEEP):
                return Decoded(digest)
            if image_size:
                opened.draft(None, (2 * image_size, 2 * image_size))  # a JPEG is not decoded larger than needed
            image = bytes_of(ImageOps.exif_transpose(opened)).convert("RGB" if channels == 3 else "L")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as there are formats
        return Decoded(digest, why=said_of(error))
    if image_size:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        middle = (left, top, left + side, top + side)
        image = image.crop(middle).resize((image_size, image_size), Image.Resampling.BILINEAR)
    return Decoded(digest, np.asarray(image).reshape(image.height, image.width, channels))


def said_of(error: Exception) -> str:
    """Why Pillow could not read a file, without the names of objects in memory."""
    said = first_line(error)
    return "not an image" if "cannot identify" in said else said


def bytes_of(image: Image.Image) -> Image.Image:
    """An image of 8 bits; of 16 bits the upper ones, which Pillow itself would clip."""
    if image.mode not in DEEP:
        return image
    return Image.fromarray(np.clip(np.asarray(image) / 257, 0, 255).round().astype(np.uint8))


def resized(x: Tensor, image_size: int) -> Tensor:
    """Images (N, C, H, W) in memory, scaled as those of files are: the middle as a square of so many pixels a side."""
    height, width = x.shape[-2:]
    if (height, width) == (image_size, image_size):
        return x
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    parts = []
    for part in x[:, :, top : top + side, left : left + side].split(CHUNK):
        scaled = F.interpolate(part.float(), (image_size, image_size), mode="bilinear", antialias=True)
        parts.append(scaled.round().clamp(0, 255).to(x.dtype) if x.dtype == torch.uint8 else scaled.clamp(0, 1))
    return torch.cat(parts)
