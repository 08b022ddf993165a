"""--help: as wide as the terminal, defaults beside every flag, Lightning's own apart, and near misses told."""

from __future__ import annotations

import argparse
import re

import pytest

from sweetspot.__main__ import COMMANDS, main
from sweetspot.runs.command_line import train_parser
from sweetspot.runs.help_layout import examples_in, usage_in

HELPS = [[name, "--help"] for name in COMMANDS] + [
    ["invert", "gradient", "--help"], ["train", "--help-trainer"], ["sweep", "--help-trainer"],
]  # fmt: skip
# of these it is said in one place for all of them, or they only add a file where they are given
WITHOUT_DEFAULT = {"--text", "--prompts", "--states", "--json", "--figure", "--seeds", "--clip", "--norm", "--labels"}
WITHOUT_DEFAULT |= {"--config", "--grids"}
SAYS_DEFAULT = re.compile(r"default|not given|\bnone:|needed", re.IGNORECASE)


def help_of(argv: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("argv", HELPS, ids=" ".join)
def test_help_fits_the_terminal(
    argv: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = help_of(argv, width, monkeypatch, capsys)
    assert max(map(len, said.splitlines())) <= min(width, 120)
    assert max(map(len, said.splitlines())) > min(width, 120) - 12, "the width that there is is used"


@pytest.mark.parametrize("argv", [each for each in HELPS if "--help-trainer" not in each], ids=" ".join)
def test_every_flag_says_what_it_is_where_it_is_not_given(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = help_of(argv, 120, monkeypatch, capsys).partition("\nexamples:")[0]
    entries = re.findall(r"^  (--\S+)( \S+.*(?:\n {10,}.*)*)?", said, re.MULTILINE)
    assert len(entries) > 4
    takes_a_value = re.compile(r" [A-Z|a-z]+( …)?(  |\n)")
    silent = {flag for flag, text in entries if takes_a_value.match(text) and not SAYS_DEFAULT.search(text)}
    assert silent <= WITHOUT_DEFAULT


def test_flags_of_lightning_have_a_help_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = help_of(["train", "--help"], 80, monkeypatch, capsys)
    theirs = help_of(["train", "--help-trainer"], 80, monkeypatch, capsys)
    assert "\n  --trainer." not in own
    assert "--help-trainer" in own
    assert "\n  --trainer.devices" in theirs
    assert "--epochs" not in theirs
    assert "(default: 1)" in theirs.partition("--trainer.devices")[2].partition("--trainer.num_nodes")[0]
    markup = re.findall(r"``|:\w+:`", theirs)
    assert not markup


def test_a_hidden_flag_still_works() -> None:
    parser = train_parser("train", "", "")
    assert isinstance(parser, argparse.ArgumentParser)
    assert parser.parse_args(["--trainer.max_steps", "3"]).trainer.max_steps == 3


def test_an_audit_shows_the_noise_that_it_uses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = " ".join(help_of(["attack", "--help"], 80, monkeypatch, capsys).split())
    assert "or raw (default: raw)" in said
    assert "--ramp" not in said, "it belongs to training"


@pytest.mark.parametrize(
    ("argv", "near"),
    [
        (["train", "--lamda", "1"], "--lambda"),
        (["train", "--trainer.max_stesp", "1"], "--trainer.max_steps"),
        (["evaluate", "runs", "--samplse", "1"], "--samples"),
        (["attack", "lenet", "--wieghts", "w.pt"], "--weights"),
        (["sweep", "--sigam", "1"], "--sigma"),
        (["report", "--leaderbord", "x.md"], "--leaderboard"),
        (["reproduce", "--quik"], "--quick"),
        (["invert", "text", "--polcy", "sipit"], "--policy"),
        (["invert", "gradient", "--activtion", "tanh"], "--activation"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else each,
)
def test_a_flag_that_is_misspelt_brings_the_right_one(
    argv: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert f"did you mean {near}?" in said
    assert said.count("\n") == 1


def test_a_command_that_is_misspelt_brings_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalaute", "runs"]) == 2
    assert "did you mean evaluate?" in capsys.readouterr().err


def test_examples_stay_commands() -> None:
    command = "train --dataset photos/ --image-size 64 --network torchvision:resnet18 --cut layer1"
    shown = examples_in([f"  {command}     what it does"], 40)
    assert shown[0] == "  # what it does"
    assert " ".join(line.strip().removesuffix(" \\") for line in shown[1:]) == command
    assert all(line.endswith(" \\") for line in shown[1:-1])
    assert max(map(len, shown)) <= 40
    assert examples_in(["  train   short"], 40) == ["  train   short"]


def test_a_usage_is_broken_between_its_parts() -> None:
    usage = "train [--lambda X] (--text TEXT … | --states FILE) [FLAG …]"
    lines = usage_in(usage, 44).splitlines()
    assert [line.strip() for line in lines] == ["train [--lambda X]", "(--text TEXT … | --states FILE)", "[FLAG …]"]
