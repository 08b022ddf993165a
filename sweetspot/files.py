"""Files that survive a kill: written under a temporary name, then moved into place."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import pickle
import re
import shutil
import socket
import stat
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError

LONGEST = 255  # bytes of a file's name
PICTURES = (".png", ".pdf", ".svg", ".jpg")  # how a picture's file may end
# what torch.load raises where a file is not what torch.save wrote; not among them: no memory, no permission, Ctrl-C
DAMAGE: tuple[type[Exception], ...] = (EOFError, zipfile.BadZipFile, pickle.UnpicklingError, struct.error)
DAMAGE += (KeyError, IndexError, AttributeError, TypeError, ValueError, OverflowError, AssertionError)


class DamagedFileError(Exception):
    """A file of tensors that is truncated or damaged, or that holds more than tensors and plain data."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, moved to `path` when the block ends well and removed when it does not.

    Whoever reads `path` sees the old file or the new one, never a part of it. Where `path` is a link, the file that it
    leads to is replaced; what is no regular file (a device, a pipe, a folder) is refused.
    """
    check_regular(path)
    target = Path(os.path.realpath(path))
    remove_litter(target)
    temporary = temporary_name(target)
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(target)
    except OSError as error:
        if not target.parent.is_dir():
            raise UserError(
                f"{target.parent} is not there any more, and {target.name} was to be written there"
            ) from error
        if error.filename in (temporary, str(temporary)):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        with contextlib.suppress(OSError):  # what went wrong is said by the error that is on its way
            temporary.unlink(missing_ok=True)


def check_regular(path: Path) -> None:
    """Refuse to replace what exists and is no regular file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:  # a loop of links, a name that is too long
        raise UserError(f"{path} cannot be written ({error.strerror}); choose another name") from error
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise UserError(f"{path} is {kind}, no regular file, and so is not replaced; choose another name")


def check_writable(flag: str, file: str | Path | None) -> None:
    """Refuse, before any work is done, a file that could not be written in the end; None is no file."""
    if file is None:
        return
    path = Path(file)
    target = Path(os.path.realpath(path))
    try:
        if not target.parent.is_dir():
            raise UserError(f"{flag} {path}: its folder is not there")
        check_regular(path)
        temporary = temporary_name(target)
        temporary.touch()
        temporary.unlink()
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{flag} {path} cannot be written ({getattr(error, 'strerror', error)})") from error


def check_figure(flag: str, file: str | None) -> None:
    """Refuse, before any work is done, a picture that could not be drawn or written in the end; None is none."""
    if file is not None and Path(file).suffix.lower() not in PICTURES:
        raise UserError(f"{flag} {file} must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    check_writable(flag, file)


def temporary_name(target: Path) -> Path:
    """Where a file is written before it is moved to `target`: it names the machine and the process that write it."""
    ending = f".{machine()}.{os.getpid()}.tmp{target.suffix}"
    stem = target.stem
    if len(os.fsencode(f".{stem}{ending}")) > LONGEST:
        stem = hashlib.sha256(os.fsencode(stem)).hexdigest()[:16]
    return target.with_name(f".{stem}{ending}")


def remove_litter(target: Path) -> None:
    """Remove what processes of this machine left beside `target` when they were killed while they wrote it."""
    ours = temporary_name(target).name
    head, tail = (re.escape(part) for part in ours.split(f".{os.getpid()}.tmp"))
    with contextlib.suppress(OSError):  # litter is never a reason to fail
        for name in os.listdir(target.parent):
            found = re.fullmatch(rf"{head}\.(\d+)\.tmp{tail}", name)
            if found and not is_running(int(found[1])):
                target.with_name(name).unlink(missing_ok=True)


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A folder for as long as the block lasts; those that killed processes of this machine left go, too."""
    prefix = f"{purpose}.{machine()}."
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            owner = folder.name.removeprefix(prefix).partition(".")[0]
            if owner.isdecimal() and not is_running(int(owner)) and folder.stat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}.", ignore_cleanup_errors=True) as name:
        yield Path(name)


def machine() -> str:
    """This machine's name, as a part of a file's name: process numbers of another mean nothing here."""
    return re.sub(r"[^\w-]", "-", socket.gethostname())[:32] or "here"


def is_running(pid: int) -> bool:
    """Whether a process of this machine is alive."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True


class ErrorKeeper(io.FileIO):
    """A file that remembers why it could not be written: torch's writer says only that it could not."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        total = len(rest)
        try:
            while len(rest):
                rest = rest[self.write_part(rest) :]
        except OSError as error:
            error.filename = error.filename or self.name
            self.error = self.error or error
            raise
        return total

    def write_part(self, data: Any) -> int:
        """As many bytes as the system takes at once."""
        return super().write(data)


def save_tensors(path: Path, content: Any) -> None:
    """Write tensors, and dictionaries of them, as `torch.save` does, but whole or not at all.

    A full disk is an OSError as it is for every other file, not the RuntimeError of torch's writer.
    """
    import torch

    with replacing(path) as temporary, ErrorKeeper(temporary, "wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            if file.error is None:
                raise
            raise file.error from error


def read_tensors(path: Path) -> Any:
    """What `save_tensors` wrote, on the CPU: tensors and plain data, nothing that runs.

    Only damage is a DamagedFileError; a machine without memory, or a file that may not be read, is neither damage nor
    a reason to throw the file away.
    """
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGE as error:
        raise DamagedFileError(str(path)) from error
    except RuntimeError as error:
        if "memory" in str(error):  # there is none left
            raise
        raise DamagedFileError(str(path)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the file's beginning, of which a damaged file speaks
            raise
        raise DamagedFileError(str(path)) from error
