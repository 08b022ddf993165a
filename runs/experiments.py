"""The experiments that come with sweetspot: YAML files, named without their folder and ending."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent.parent / "configs"


def shipped() -> dict[str, Path]:
    """Every experiment by its name; a sweep is also called `sweeps/NAME`, and only so where a run has its name."""
    runs = runs_shipped()
    sweeps = {file.stem: file for file in sorted((FOLDER / "sweeps").glob("*.yaml"))}
    return {**{name if name not in runs else f"sweeps/{name}": file for name, file in sweeps.items()}, **runs}


def runs_shipped() -> dict[str, Path]:
    """Every experiment that is one run, by its name."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.yaml"))}


def experiment(name: str) -> Path:
    """The file that `--config` means: one of the working folder, or else an experiment that comes with sweetspot.

    Example:
        >>> experiment("gpt2_tiny").name, experiment("configs/sweeps/small.yaml").name, experiment("my.yaml").name
        ('gpt2_tiny.yaml', 'small.yaml', 'my.yaml')
    """
    path = Path(name)
    if path.exists():
        return path
    short = name.removesuffix(".yaml").removeprefix("configs/")
    known = shipped()
    return known.get(short) or known.get(short.removeprefix("sweeps/")) or path
