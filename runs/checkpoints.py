"""Files that survive a kill, and checkpoints that are data, not code: written atomically, read with weights only."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO

from errors import UserError


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint in `path` on the CPU. A pickle that wants to run something is refused, and nothing of it runs."""
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"checkpoint {path} holds more than weights and is refused: it may run code when loaded, or it is damaged; "
            f"remove it if you do not trust where it comes from"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(
            f"checkpoint {path} is truncated or damaged; remove it, and the same command starts the run anew"
        ) from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise UserError(f"checkpoint {path} is not one of sweetspot's: it has no state_dict")
    return checkpoint


def save_atomically(path: Path, content: Any) -> None:
    """torch.save, then move: whoever reads `path` sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """The same for text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class SafeCheckpointIO(CheckpointIO):
    """How Lightning writes and reads checkpoints here."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        save_atomically(Path(path), checkpoint)

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return load_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)
