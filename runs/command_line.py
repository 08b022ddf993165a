"""Command lines by jsonargparse: typed flags, `--config FILE`, `--print_config`, and one line for a wrong one."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import itertools
import logging
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import docstring_parser
import yaml
from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch import Trainer

from errors import UserError, first_line
from runs.config import FLAG_NAMES, TRAINER_DEFAULTS, TrainConfig

OURS = {
    "logger",
    "callbacks",
    "max_epochs",
    "default_root_dir",
    "enable_checkpointing",
    "enable_progress_bar",
    "enable_model_summary",
}
OURS |= {"plugins", "use_distributed_sampler", "barebones", "enable_autolog_hparams", "model_registry"}
KINDS = {"float": "a finite number", "int": "a whole number", "bool": "true or false", "str": "a text"}


class Examples(argparse.RawDescriptionHelpFormatter):
    """Help that leaves the examples as they are written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "max_help_position": 28, "width": 120})


def add_dataclass(parser: ArgumentParser, config: type, without: Collection[str] = ("trainer",)) -> None:
    """A flag for every field of `config`, documented by its docstring: `batch_size` becomes `--batch-size`."""
    documented = [
        parameter for kind in config.__mro__ for parameter in docstring_parser.parse(kind.__doc__ or "").params
    ]
    helps = {parameter.arg_name: parameter.description for parameter in documented}
    hints = typing.get_type_hints(config)
    defaults = vars(config())
    for each in sorted(dataclasses.fields(config), key=lambda each: each.name not in config.__annotations__):
        if each.name in without:
            continue
        flag = "--" + FLAG_NAMES.get(each.name, each.name).replace("_", "-")
        default = defaults[each.name]
        if hints[each.name] is bool and default is False:
            parser.add_argument(flag, action="store_true", help=helps[each.name])
        elif typing.get_origin(hints[each.name]) is list:
            (kind,) = typing.get_args(hints[each.name])
            parser.add_argument(flag, nargs="+", type=kind, default=default, help=helps[each.name])
        else:
            parser.add_argument(flag, type=hints[each.name], default=default, help=helps[each.name])


def script_parser(prog: str, usage: str, description: str, examples: str) -> ArgumentParser:
    """A parser with help that ends in examples, and whose complaints are ours to print."""
    return ArgumentParser(
        prog=prog,
        usage=f"python {prog} {usage}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=Examples,
        exit_on_error=False,
    )


def train_parser(prog: str, description: str, examples: str) -> ArgumentParser:
    """The flags of a training run: TrainConfig's at the top, Lightning's under `--trainer.`."""
    usage = "[--lambda λ] [--beta β] [--dataset NAME] [--config FILE] [FLAG …]"
    parser = script_parser(prog, usage, description, examples)
    add_config_file(parser)
    add_dataclass(parser, TrainConfig)
    add_trainer(parser)
    return parser


def add_config_file(parser: ArgumentParser) -> None:
    """`--config FILE`."""
    parser.add_argument(
        "--config", action="config", help="a YAML file of flags; a flag on the command line wins over it"
    )


def add_trainer(parser: ArgumentParser) -> None:
    """Lightning's own flags, under `--trainer.`."""
    parser.add_class_arguments(Trainer, "trainer", skip=OURS, instantiate=False)
    parser.set_defaults({f"trainer.{name}": value for name, value in TRAINER_DEFAULTS.items()})


def parse_train(parser: ArgumentParser, argv: Sequence[str] | None = None) -> TrainConfig:
    """The config that a command line asks for."""
    return TrainConfig(**parse_fields(parser, argv, [TrainConfig])[0])


def parse_fields(parser: ArgumentParser, argv: Sequence[str] | None, kinds: Sequence[type]) -> list[dict[str, Any]]:
    """The fields of each of these dataclasses that a command line asks for; of one that two have, the first's."""
    arguments = files_first(sys.argv[1:] if argv is None else argv)
    check_lists(arguments, kinds)
    try:
        parsed = parser.parse_args(arguments).as_dict()
    except (TypeError, AttributeError, ValueError) as error:  # what odd YAML makes of the parser
        raise UserError(
            f"the --config file cannot be understood ({first_line(error)}); see --print_config for one"
        ) from error
    if not isinstance(parsed.get("trainer"), dict):
        raise UserError(f"trainer must hold arguments of Lightning's Trainer by name; got {parsed.get('trainer')!r}")
    defaults = parser.get_defaults().as_dict()["trainer"]
    parsed["trainer"] = {name: value for name, value in parsed["trainer"].items() if value != defaults[name]}
    taken = []
    for kind in kinds:
        named = {each.name: FLAG_NAMES.get(each.name, each.name) for each in dataclasses.fields(kind)}
        taken.append({name: parsed.pop(flag) for name, flag in named.items() if flag in parsed})
    return taken


def files_first(argv: Sequence[str]) -> list[str]:
    """The arguments with every `--config FILE` in front: jsonargparse lets the later win, and a flag must always win.

    Example:
        >>> files_first(["--lambda", "1", "--config", "a.yaml"])
        ['--config', 'a.yaml', '--lambda', '1']
    """
    files: list[str] = []
    flags: list[str] = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        if len(name) > 4 and "--config".startswith(name):  # argparse takes abbreviations
            argument = "--config" + equals + value
        is_file = argument.startswith("--config=") or argument == "--config" or files[-1:] == ["--config"]
        (files if is_file else flags).append(argument)
    return files + flags


def check_lists(arguments: Sequence[str], kinds: Sequence[type]) -> None:
    """Refuse a `--config` file that gives one value where a flag takes several: jsonargparse breaks on it."""
    hints = {name: hint for kind in reversed(kinds) for name, hint in typing.get_type_hints(kind).items()}
    several = [FLAG_NAMES.get(name, name) for name, hint in hints.items() if typing.get_origin(hint) is list]
    for flag, path in itertools.pairwise(arguments):
        try:
            written = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if flag == "--config" else None
        except (OSError, ValueError, yaml.YAMLError):
            continue  # the parser has its own words for a file that cannot be read
        given = written if isinstance(written, dict) else {}
        for name in several:
            if not isinstance(given.get(name, []), list):
                raise UserError(f"{name} in {path} must be a list, such as {name}: [{given[name]}]")


def run_command(command: Callable[[], Any]) -> int:
    """The exit code of a command: 0, 2 with one line for what the user can mend, 130 for Ctrl-C."""
    quieten()
    try:
        command()
    except (UserError, ArgumentError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    except OSError as error:
        if not (said := disk_trouble(error)):
            raise
        print(f"error: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was finished is kept, and the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def disk_trouble(error: OSError) -> str:
    """What is wrong with the disk, and what to do; empty where something else is wrong.

    Example:
        >>> disk_trouble(OSError(errno.ENOSPC, "No space left on device", "runs/last.ckpt"))
        'No space left on device: runs/last.ckpt; make room or choose another --out'
    """
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        return ""
    return f"{error.strerror}: {error.filename or 'while writing'}; make room or choose another --out"


def one_line(error: BaseException) -> str:
    """The error's message without its line breaks, and a parser's complaint in the words of the command line."""
    message = " ".join(str(error).split())
    wrong_type = re.fullmatch(
        r'Parser key "([\w.]+)"(?: element \d+)?: Expected an? <class \'(\w+)\'>\. Got value: (.*)', message
    )
    if wrong_type:
        key, kind, value = wrong_type.groups()
        return f"--{key.replace('_', '-')} must be {KINDS.get(kind, kind)}; got {value}"
    none_of = re.fullmatch(
        r'Parser key "([\w.]+)": Does not validate .*?Subtypes: \[(.*?)\] .*Given value: (.*)', message
    )
    if none_of:
        key, kinds, value = none_of.groups()
        named = [KINDS.get(kind, kind) for kind in re.findall(r"'(\w+)'", kinds) if kind != "NoneType"]
        return f"--{key.replace('_', '-')} must be {' or '.join(named)}; got {value}"
    return message


def quieten() -> None:
    """Leave the terminal to sweetspot: Lightning's banners and tips say nothing about this run."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
