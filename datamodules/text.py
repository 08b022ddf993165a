"""Corpora: English text as documents, split by document, from the standard library, a file, a folder or the hub.

corpus = load_text("pydoc")                     # or news.tsv, a folder, c4, wikipedia
prompts = first_tokens(corpus.test, tokenizer)  # (N, 10)
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import huggingface_hub
import torch
from torch import Tensor

from sweetspot.datamodules.tokens import TextTokenizer
from sweetspot.datamodules.torchvision_sets import reachable
from sweetspot.errors import UserError, first_line, meant

VALIDATION_PART, TEST_PART = 0.05, 0.1
STREAMED = 10_000  # documents taken from a hub dataset where no limit is given: its first shard has more
PARAGRAPH = re.compile(r"\n[ \t]*\n")
SENTENCE = re.compile(r"(?<=[.!?])\s+")
HUB_SETS = {"c4": ("allenai/c4", "en"), "wikipedia": ("wikimedia/wikipedia", "20231101.en")}
NAMES = sorted([*HUB_SETS, "pydoc"])
T = TypeVar("T")


@dataclass(frozen=True)
class Corpus:
    """Documents, and which of them are for training, for the validation curve and for the attacks.

    Args:
        name: what a run's record calls it.
        source: where it really came from.
        documents: the texts.
    """

    name: str
    source: str
    documents: list[str]

    @property
    def identity(self) -> str:
        """The SHA-256 of its content, which its source ends with."""
        return self.source.partition("sha256 ")[2]

    @cached_property
    def splits(self) -> tuple[list[str], list[str], list[str]]:
        """(train, validation, test), without repeats, ordered by the SHA-256 of a text.

        A text that occurs twice is on one side only, and the first hundred of a split are a fair sample of it.
        """
        ordered = sorted(set(self.documents), key=lambda text: hashlib.sha256(text.encode()).digest())
        if len(ordered) < 3:
            raise UserError(f"{self.name} needs at least 3 different documents to be split; it has {len(ordered)}")
        test = max(1, round(TEST_PART * len(ordered)))
        held_out = test + max(1, round(VALIDATION_PART * len(ordered)))
        return ordered[held_out:], ordered[test:held_out], ordered[:test]

    @property
    def train(self) -> list[str]:
        return self.splits[0]

    @property
    def validation(self) -> list[str]:
        return self.splits[1]

    @property
    def test(self) -> list[str]:
        return self.splits[2]

    def record(self) -> dict[str, Any]:
        """What `results.json` says of the text: its name, its source and the documents in each split."""
        counts = zip(("train", "validation", "test"), map(len, self.splits), strict=True)
        return {"name": self.name, "source": self.source, **dict(counts)}


def load_text(text: str, column: str | None = None, limit: int = 0) -> Corpus:
    """The corpus that `text` names: one of `NAMES`, a .txt, .tsv or .jsonl file, or a folder of them.

    Args:
        text: the name or the path.
        column: the column of a .tsv that holds the text, by its heading or its number from 1; None: the longest.
        limit: take only so many documents, the first ones (0: all; of a hub dataset, 10,000).
    """
    if limit < 0:
        raise UserError(f"limit must be at least 1 document, or 0 for all; got {limit}")
    if text.lower() == "pydoc":
        corpus = pydoc()
    elif text.lower() in HUB_SETS:
        corpus = streamed(text.lower(), limit or STREAMED)
    elif (path := Path(text).expanduser()).exists():
        corpus = text_files(path, column)
    else:
        hint = meant(text.lower(), NAMES)
        raise UserError(
            f"text must be one of {', '.join(NAMES)}, a .txt, .tsv or .jsonl file, or a folder; got {text}{hint}"
        )
    return Corpus(corpus.name, corpus.source, corpus.documents[: limit or None])


def pydoc() -> Corpus:
    """The prose of the Python reference, a paragraph a document: English text that every Python brings along.

    Topics repeat one another's paragraphs, so a split by topic would train on much of the test set.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UserError("this Python has no pydoc_data.topics; give a text file in its place") from error
    paragraphs = [" ".join(part.split()) for topic in topics.values() for part in PARAGRAPH.split(topic)]
    # code, grammar and headings are short, or do not end as a sentence does
    prose = [p for p in dict.fromkeys(paragraphs) if len(p) >= 40 and p[-1] in '.:!?)"' and not p.startswith(">>>")]
    source = f"pydoc_data.topics of Python {platform.python_version()}, sha256 {digest(prose)}"
    return Corpus("pydoc", source, prose)


def text_files(path: Path, column: str | None = None) -> Corpus:
    """The documents of a file, or of every .txt, .tsv and .jsonl file in a folder, in the order of their paths."""
    if path.is_file():
        if path.suffix.lower() not in READERS:
            raise UserError(f"{path}: a text file must end in {', '.join(READERS)}; got {path.suffix or 'no ending'}")
        content = bytes_of(path)
        documents = documents_of(path, content, column)
        return Corpus(path.stem, f"{path.name}, sha256 {hashlib.sha256(content).hexdigest()}", documents)
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in READERS and file.is_file())
    if not files:
        raise UserError(f"{path} holds no {', '.join(READERS)} file")
    together, documents = hashlib.sha256(), []
    for file in files:
        content = bytes_of(file)
        together.update(hashlib.sha256(content).digest())
        documents += documents_of(file, content, column)
    name = path.resolve().name
    return Corpus(name, f"{name}/ ({len(files)} files), sha256 {together.hexdigest()}", documents)


def bytes_of(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error


def documents_of(path: Path, content: bytes, column: str | None) -> list[str]:
    """The documents in a file, by its ending; at least one."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no UTF-8 text (byte {error.start})") from error
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    documents = [document.strip() for document in READERS[path.suffix.lower()](path, lines, column)]
    documents = [document for document in documents if document]
    if not documents:
        raise UserError(f"{path} holds no text")
    return documents


def txt(path: Path, text: str, column: str | None) -> list[str]:
    """Documents with blank lines between them; a file without blank lines has a document a line."""
    paragraphs = PARAGRAPH.split(text.strip())
    return paragraphs if len(paragraphs) > 1 else text.split("\n")


def tsv(path: Path, text: str, column: str | None) -> list[str]:
    """One column of a table: the named one, the one headed `text`, or the one with the most characters."""
    rows = [(number, line.split("\t")) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not rows:
        return []
    headings = [cell.strip().lower() for cell in rows[0][1]]
    wanted = "text" if column is None else column.lower()
    if wanted in headings:
        chosen, rows = headings.index(wanted), rows[1:]
    elif column is None:
        sizes = [sum(len(cells[i]) for _, cells in rows if i < len(cells)) for i in range(len(headings))]
        chosen = sizes.index(max(sizes))
    elif column.isdecimal() and 1 <= int(column) <= len(headings):
        chosen = int(column) - 1
    else:
        raise UserError(f"{path} has no column {column}; its first line has {', '.join(rows[0][1])}"[:200])
    for number, cells in rows:
        if len(cells) <= chosen:
            raise UserError(f"{path}, line {number}: {len(cells)} columns, but the text is in column {chosen + 1}")
    return [cells[chosen] for _, cells in rows]


def jsonl(path: Path, text: str, column: str | None) -> list[str]:
    """The field `text` of an object a line."""
    documents = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)["text"]
            document.encode()  # half a surrogate pair is valid JSON and no text
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UserError(f"{path}, line {number} must be a JSON object with the text in its field text") from error
        documents.append(document)
    return documents


READERS: dict[str, Callable[[Path, str, str | None], list[str]]] = {".txt": txt, ".tsv": tsv, ".jsonl": jsonl}


def streamed(name: str, count: int) -> Corpus:
    """The first documents of a hub dataset, without downloading the rest of it."""
    repository, subset = HUB_SETS[name]
    instead = "or give a .txt, .tsv or .jsonl file of it"
    if importlib.util.find_spec("datasets") is None:
        raise UserError(f"{name} is streamed with the package datasets, which is not here: install it, {instead}")
    if huggingface_hub.is_offline_mode() or not reachable(huggingface_hub.constants.ENDPOINT):
        raise UserError(f"{name} is streamed from the hub, which cannot be reached: go online, {instead}")
    datasets = importlib.import_module("datasets")
    print(f"streaming {count:,} documents of {repository} ({subset}) …", flush=True)
    try:
        rows = datasets.load_dataset(repository, subset, split="train", streaming=True)
        documents = [row["text"].strip() for row in itertools.islice(rows, count)]
    except Exception as error:  # the network, the hub and the format fail each in their own way
        raise UserError(
            f"{name} could not be streamed from the hub ({first_line(error)}); try again, {instead}"
        ) from error
    source = f"{repository} ({subset}, train), the first {count:,} documents, sha256 {digest(documents)}"
    return Corpus(name, source, [document for document in documents if document])


def digest(documents: Sequence[str]) -> str:
    """The SHA-256 of documents that are no file."""
    return hashlib.sha256("\0".join(documents).encode()).hexdigest()


def first_tokens(documents: Sequence[str], tokenizer: TextTokenizer, length: int = 10, count: int = 0) -> Tensor:
    """Prompts (N, length): how each document starts, of those that are long enough.

    Args:
        documents: those held out, for an attack that is to mean something.
        tokenizer: the model's own.
        length: tokens in a prompt.
        count: prompts wanted (0: as many as there are).
    """
    if length < 1:
        raise UserError(f"a prompt must have at least 1 token; got {length}")
    starts = [ids[:length] for ids in tokenizer.encode_all(documents) if len(ids) >= length]
    return torch.tensor(enough(starts, count, f"documents of {length} tokens or more"), dtype=torch.long)


def sentences(documents: Sequence[str], shortest: int = 25, longest: int = 70, count: int = 0) -> list[str]:
    """The different sentences of `shortest` to `longest` characters, with their full stop.

    Args:
        documents: those held out, for an attack that is to mean something.
        shortest: characters at least.
        longest: characters at most.
        count: sentences wanted (0: as many as there are).
    """
    found = [
        s for document in documents for s in SENTENCE.split(" ".join(document.split())) if s[-1:] in (".", "!", "?")
    ]
    kept = [s for s in dict.fromkeys(found) if shortest <= len(s) <= longest and s[0].isupper()]
    return enough(kept, count, f"sentences of {shortest} to {longest} characters")


def enough(prompts: list[T], count: int, what: str) -> list[T]:
    """The first `count` prompts, or all of them for 0; an error where there are fewer."""
    if not prompts or len(prompts) < count:
        raise UserError(f"the text has {len(prompts)} {what}; {max(count, 1)} are needed")
    return prompts[: count or None]
