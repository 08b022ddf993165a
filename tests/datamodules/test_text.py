"""Corpora: split by document, read from files as they come, and never a silent substitute."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import sweetspot.datamodules.text as text_module
from sweetspot.datamodules.text import Corpus, first_tokens, load_text, sentences
from sweetspot.datamodules.tokens import train_bpe
from sweetspot.errors import UserError


def write(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_the_embedded_corpus_is_english_and_always_there() -> None:
    corpus = load_text("pydoc")
    assert corpus.name == "pydoc"
    assert "sha256 " in corpus.source
    assert len(corpus.documents) > 500
    assert sum(map(len, corpus.documents)) > 100_000
    assert sum(" the " in document for document in corpus.documents) > len(corpus.documents) / 3
    assert load_text("pydoc") == corpus


def test_splits_share_no_document_and_lose_none() -> None:
    corpus = Corpus("lines", "", [f"line {i % 150}" for i in range(200)])
    train, validation, test = corpus.splits
    assert (len(train), len(validation), len(test)) == (127, 8, 15)
    assert sorted(train + validation + test) == sorted(set(corpus.documents))
    assert corpus.record() == {"name": "lines", "source": "", "train": 127, "validation": 8, "test": 15}


def test_a_split_depends_on_the_documents_and_on_nothing_else() -> None:
    documents = [f"document {i}" for i in range(50)]
    assert Corpus("a", "", documents).splits == Corpus("b", "", documents[::-1]).splits
    assert Corpus("a", "", documents).test == ["document 21", "document 22", "document 0", "document 12", "document 30"]


def test_three_documents_are_split_and_two_are_not() -> None:
    assert [len(part) for part in Corpus("abc", "", ["a", "b", "c"]).splits] == [1, 1, 1]
    with pytest.raises(UserError, match="at least 3 different documents to be split; it has 2"):
        _ = Corpus("abc", "", ["a", "b", "b"]).splits


@pytest.mark.parametrize(
    ("name", "content", "documents"),
    [
        ("paragraphs.txt", "One,\nstill one.\n\n \nTwo.\n\nThree.\n", ["One,\nstill one.", "Two.", "Three."]),
        ("lines.txt", "\ufeffOne.\r\nTwo.\r\nThree.", ["One.", "Two.", "Three."]),
        ("news.tsv", "Long news of the day\tSports\nOther news\tWorld\n", ["Long news of the day", "Other news"]),
        ("headed.tsv", "label\tText\nvery long label\ta\nvery long label\tb\n", ["a", "b"]),
        ("web.jsonl", '{"text": "One\\u2028."}\n\n{"text": "Two.", "url": "x"}\n', ["One\u2028.", "Two."]),
    ],
)
def test_files_are_read_as_documents(tmp_path: Path, name: str, content: str, documents: list[str]) -> None:
    path = write(tmp_path / name, content)
    corpus = load_text(path)
    assert corpus.documents == documents
    assert corpus.name == Path(name).stem
    assert corpus.source == f"{name}, sha256 {hashlib.sha256(content.encode()).hexdigest()}"
    assert load_text(path, limit=1).documents == documents[:1]


@pytest.mark.parametrize(("column", "documents"), [("title", ["A", "B"]), ("2", ["title", "A", "B"])])
def test_a_column_is_chosen_by_heading_or_number(tmp_path: Path, column: str, documents: list[str]) -> None:
    path = write(tmp_path / "news.tsv", "body\ttitle\nlong body\tA\nlong body\tB\n")
    assert load_text(path, column).documents == documents


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    write(tmp_path / "texts" / "b.txt", "Two.\nThree.")
    write(tmp_path / "texts" / "a" / "a.jsonl", '{"text": "One."}')
    write(tmp_path / "texts" / "notes.md", "not read")
    corpus = load_text(str(tmp_path / "texts"))
    assert corpus.documents == ["One.", "Two.", "Three."]
    assert corpus.source.startswith("texts/ (2 files), sha256 ")
    write(tmp_path / "texts" / "b.txt", "Two.\nFour.")
    assert load_text(str(tmp_path / "texts")).source != corpus.source


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", " \n\n", "holds no text"),
        ("empty.tsv", "", "holds no text"),
        ("binary.txt", b"\xff\xfe\x00", "is no UTF-8 text"),
        ("ragged.tsv", "x\tlong text\nshort\n", "line 2: 1 columns, but the text is in column 2"),
        ("list.jsonl", '{"text": "a"}\n[1]\n', "line 2 must be a JSON object"),
        ("number.jsonl", '{"text": 1}\n', "line 1 must be a JSON object"),
        ("field.jsonl", '{"body": "a"}\n', "line 1 must be a JSON object"),
        ("broken.jsonl", "{", "line 1 must be a JSON object"),
        ("surrogate.jsonl", '{"text": "\\ud800"}', "line 1 must be a JSON object"),
        ("table.csv", "a,b", "must end in .txt, .tsv, .jsonl; got .csv"),
    ],
)
def test_a_wrong_file_gets_one_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_text(write(tmp_path / name, content))
    assert "\n" not in str(caught.value)


def test_a_wrong_name_column_limit_or_folder_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got wikipdia \(did you mean wikipedia\?\)"):
        load_text("wikipdia")
    with pytest.raises(UserError, match="has no column body; its first line has a, b"):
        load_text(write(tmp_path / "a.tsv", "a\tb\n"), column="body")
    with pytest.raises(UserError, match="limit must be at least 1"):
        load_text("pydoc", limit=-1)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match=r"holds no \.txt, \.tsv, \.jsonl file"):
        load_text(str(tmp_path / "nothing"))


def test_a_hub_dataset_that_cannot_be_had_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"package datasets, which is not here: install it, or give a \.txt"):
        load_text("c4")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(text_module, "reachable", lambda url: False)
    with pytest.raises(UserError, match=r"from the hub, which cannot be reached: go online, or give a \.txt"):
        load_text("wikipedia")


def test_a_hub_dataset_is_streamed_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(repository: str, subset: str, split: str, streaming: bool) -> Any:
        assert (repository, subset, split, streaming) == ("allenai/c4", "en", "train", True)
        return ({"text": f" document {i}\n"} for i in range(10**9))

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(text_module, "reachable", lambda url: True)
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    corpus = load_text("c4", limit=3)
    assert corpus.documents == ["document 0", "document 1", "document 2"]
    assert corpus.source.startswith("allenai/c4 (en, train), the first 3 documents, sha256 ")


def test_prompts_are_the_starts_of_documents_that_are_long_enough() -> None:
    documents = ["one two three four five six", "one two", "six five four three two one"]
    tokenizer = train_bpe(documents * 5, vocabulary=300)
    prompts = first_tokens(documents, tokenizer, length=4)
    assert prompts.tolist() == [tokenizer.encode(documents[i])[:4] for i in (0, 2)]
    assert first_tokens(documents, tokenizer, length=4, count=1).tolist() == prompts[:1].tolist()
    with pytest.raises(UserError, match="the text has 2 documents of 4 tokens or more; 3 are needed"):
        first_tokens(documents, tokenizer, length=4, count=3)
    with pytest.raises(UserError, match="at least 1 token; got 0"):
        first_tokens(documents, tokenizer, length=0)


def test_sentences_have_the_right_length_and_come_once() -> None:
    kept = "This sentence is\n  long enough. "
    documents = [
        kept + "Short. " + "Too long " * 10 + ". " + kept + "It has no full stop at its end",
        "and lower case it is.",
    ]
    assert sentences(documents) == ["This sentence is long enough."]
    assert all(25 <= len(sentence) <= 70 for sentence in sentences(load_text("pydoc").test, count=20))
    with pytest.raises(UserError, match="the text has 0 sentences of 25 to 70 characters; 1 are needed"):
        sentences(["Short."])
