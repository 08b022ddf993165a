"""The documents as tests read them: their commands, their Python, their links. Here alone they are listed."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "checkpoints/README.md")
DOCUMENTS = [*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w/]+\.py)\n")  # how a snippet begins that is a file


@functools.cache
def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def everything() -> str:
    """All documents, one after the other."""
    return "\n".join(map(text_of, DOCUMENTS))


def blocks(language: str = "") -> list[str]:
    """Every fenced block of a language, in all documents; without one those that hold commands."""
    return [block for document in DOCUMENTS for kind, block in FENCE.findall(text_of(document)) if kind == language]


def command_lines() -> list[list[str]]:
    """Every line of the documents that a user can type, as words, without its comment; the same line once."""
    lines = [line for block in blocks() for line in block.splitlines()]
    typed = [shlex.split(line, comments=True) for line in lines if re.match(r"(python|sweetspot|make) ", line)]
    return [list(words) for words in dict.fromkeys(map(tuple, typed))]


def commands(name: str) -> list[list[str]]:
    """The arguments of every `python NAME.py …` and `sweetspot NAME …` in the documents, the same ones once."""
    ours = [words[2:] for words in command_lines() if words[:2] in (["python", f"{name}.py"], ["sweetspot", name])]
    return [list(words) for words in dict.fromkeys(map(tuple, ours))]


def snippets() -> list[str]:
    """The Python in the documents that is no file of its own."""
    return [block for block in blocks("python") if not FILE.match(block)]


def files() -> dict[str, str]:
    """The files that the documents show, by name; one that is shown in parts is put together."""
    found: dict[str, str] = {}
    for block in blocks("python"):
        if begins := FILE.match(block):
            found[begins[1]] = found.get(begins[1], "") + block
    return found


def users_files(argv: list[str]) -> list[str]:
    """The files of the documents that a command names."""
    return [name for name in files() if any(word.startswith(f"{name}:") for word in argv)]


def write_files(folder: Path) -> None:
    """Put the files that users would have written into a folder."""
    for name, code in files().items():
        if "/" not in name:
            (folder / name).write_text(code, encoding="utf-8")
