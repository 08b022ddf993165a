"""README and docs: links lead somewhere, commands and flags exist, and every script and experiment is named."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from sweetspot.__main__ import COMMANDS
from tests.documents import DOCUMENTS, FENCE, ROOT, blocks, command_lines, commands, everything, text_of

LINK = re.compile(r"\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*[a-z0-9]")
CODE = re.compile(r"`([^`]+)`")
FROM_SNIPPETS = {"--power", "--chance", "--grey"}  # options that the documents' own parts declare
HELPS = {"invert": [["--help"], ["gradient", "--help"]]}  # of commands that have several
HELPS |= {name: [["--help"], ["--help-trainer"]] for name in ("train", "sweep")}
OF_OTHERS = {"--check", "--trainer"}  # of ruff; and `--trainer.*`, which stands for many


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(document)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_every_link_and_image_leads_somewhere(document: Path) -> None:
    for target in LINK.findall(FENCE.sub("", text_of(document))):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.is_file(), f"{document.name}: {target}"
        assert path.is_relative_to(ROOT), f"{document.name}: {target}"
        assert not anchor or anchor in anchors(path), f"{document.name}: {target}; there are {sorted(anchors(path))}"


def test_every_page_and_picture_is_linked_from_somewhere() -> None:
    linked = {
        (document.parent / target.partition("#")[0]).resolve()
        for document in DOCUMENTS
        for target in LINK.findall(text_of(document))
    }
    for path in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.png")]:
        assert path in linked, path.name


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def test_every_script_and_experiment_is_named() -> None:
    for path in [*ROOT.glob("*.py"), *(ROOT / "configs").rglob("*.yaml")]:
        assert (path.name if path.suffix == ".py" else path.stem) in everything(), path.name
    for folder in ("benchmarks", "examples"):
        assert folder in everything()


def test_every_command_is_of_a_kind_that_is_tried() -> None:
    """Those of our scripts are run by the tests of each script; of the others the files and targets must be there."""
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for words in command_lines():
        program, what = words[0], words[1]
        if program == "make":
            assert what in targets, words
        elif program == "sweetspot":
            assert what in COMMANDS, words
        elif what.endswith(".py"):
            assert (ROOT / what).is_file(), words
            ours = what.removesuffix(".py") in COMMANDS or what.startswith(("benchmarks/", "examples/"))
            assert ours, words
        else:
            assert words[1:3] == ["-m", "pytest"], words
    for name in COMMANDS:
        assert commands(name), f"no document shows {name}"


@functools.cache
def known_flags() -> set[str]:
    """The flags of all commands, benchmarks and examples."""
    said = ""
    for name in COMMANDS:
        module = importlib.import_module(f"sweetspot.commands.{name}")
        for argv in HELPS.get(name, [["--help"]]):
            said += help_of(module, argv)
    for file in [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "examples").glob("*.py")]:
        said += file.read_text(encoding="utf-8")
    return set(FLAG.findall(said))


def help_of(module: ModuleType, argv: list[str]) -> str:
    """What a command prints for --help."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        module.main(argv)
    return printed.getvalue()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_every_flag_in_a_document_exists(document: Path) -> None:
    """In sentences and tables too, where no test runs them; blocks that are shell scripts have flags of others."""
    text = text_of(document)
    ours = [block for kind, block in FENCE.findall(text) if not kind and not block.startswith("#!")]
    code = [*ours, *CODE.findall(FENCE.sub("", text))]
    flags = {flag for each in code for flag in FLAG.findall(each)}
    assert flags <= known_flags() | FROM_SNIPPETS | OF_OTHERS, flags - known_flags()


def test_the_json_in_the_documents_is_json() -> None:
    (block,) = blocks("json")
    assert json.loads(block)["attacks"]["whitebox/paper"]["samples"] == 100


def test_the_citation_names_the_version_that_is_installed() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f'version = "{cited["version"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
