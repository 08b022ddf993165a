"""Command lines by jsonargparse: typed flags, `--config FILE`, `--print_config`, and one line for a wrong one."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import io
import itertools
import logging
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import docstring_parser
from jsonargparse import ArgumentError, ArgumentParser

from sweetspot.errors import UserError, first_line, meant
from sweetspot.options import Option
from sweetspot.registries import PENALTIES, RELEASES
from sweetspot.registry import Registry, is_users_own
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.config import TRAINER_DEFAULTS, TrainConfig, chained
from sweetspot.runs.experiments import experiment, runs_shipped, shipped
from sweetspot.runs.fields import FLAG_NAMES
from sweetspot.runs.help_layout import EXAMPLES, HelpLayout, placeholder
from sweetspot.runs.signals import sigterm_as_ctrl_c
from sweetspot.runs.trainer_flags import trainer_flags
from sweetspot.runs.yaml_files import read_yaml

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
SURE = 0.7  # how near a flag must be to be offered: there are many
# under which heading of --help a flag of a run stands; one that is not named here is of an attack
HEADINGS: dict[str, tuple[str, ...]] = {
    "data": (
        "dataset",
        "data_root",
        "image_size",
        "skip_corrupt",
        "augment",
        "limit_train",
        "limit_test",
        "validation_fraction",
    ),
    "network": ("network", "cut", "head", "weights", "standardise", "train"),
    "defence": ("lam", "defence", "bottleneck", "release"),
    "training": (
        "epochs",
        "batch_size",
        "optimiser",
        "lr",
        "momentum",
        "weight_decay",
        "milestones",
        "schedule",
        "seed",
    ),
    "attacks": (),
    "text": ("length", "vocabulary", "policy", "operating_point", "beam", "prior", "text_loss", "prompts", "observe"),
    "run": ("out", "force", "device"),
}
ABOUT = {
    "defence": "a penalty while training, a bottleneck before anything leaves, a release that is what leaves; then the "
    "options of each",
    "text": "language models and the attacks on them",
}
KINDS = {"float": "a finite number", "int": "a whole number", "bool": "true or false", "str": "a text"}


class ScriptParser(ArgumentParser):
    """A parser that says what is wrong in one line: which argument, and which one was perhaps meant.

    `axes` are the flags that take several values, each of its own kind, as they come: texts from the command line,
    whatever YAML makes of them from a file. `attack_options` are the flags that are options of attacks. Of --help,
    `about` is what stands below a heading, and `apart` the heading that is left out.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.axes: dict[str, Any] = {}
        self.attack_options: set[str] = set()
        self.about: dict[str, str] = ABOUT
        self.apart = ""

    def heading(self, title: str) -> Any:
        """The group of --help of this title, made where there is none yet."""
        for group in self._action_groups:
            if group.title == title:
                return group
        return self.add_argument_group(title, self.about.get(title))

    def format_help(self, *args: Any, **options: Any) -> str:
        """What --help says: everything but what has a help of its own."""
        return self.help_on([group for group in self._action_groups if group.title != self.apart], *args, **options)

    def help_apart(self) -> str:
        """What the other help says: what --help leaves out, without the examples."""
        epilog, self.epilog = self.epilog, None
        try:
            return self.help_on([self.heading(self.apart)])
        finally:
            self.epilog = epilog

    def help_on(self, groups: list[Any], *args: Any, **options: Any) -> str:
        """The help with these headings alone."""
        every, self._action_groups = self._action_groups, groups
        try:
            return str(super().format_help(*args, **options))
        finally:
            self._action_groups = every

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:  # type: ignore[override]
        arguments = list(sys.argv[1:] if args is None else args)
        for argument in arguments:
            if not is_unicode(argument):
                raise UserError(f"{argument!r} is no text in UTF-8, and so cannot be written down; choose another name")
        try:
            return super().parse_args(arguments, *more, **options)
        except ArgumentError as error:
            unknown = re.fullmatch(r"unrecognized arguments: (\S+).*", str(error), re.DOTALL)
            if unknown is None:
                raise
            raise UserError(self.unknown_flag(unknown[1])) from error
        except RecursionError as error:
            raise UserError("an argument is nested too deeply") from error

    def unknown_flag(self, argument: str) -> str:
        """What is wrong with an argument that the parser does not know."""
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return f"{argument} belongs to no flag; see --help"
        if flag.startswith("--trainer.") and flag.removeprefix("--trainer.") in OURS:
            return f"{flag} is set by sweetspot itself{', by --epochs' if flag.endswith('max_epochs') else ''}"
        return f"there is no flag {flag}{meant(flag, self._option_string_actions, SURE)}; see --help"

    def config_keys(self) -> set[str]:
        """The keys that a `--config` file may have, those of the Trainer as `trainer.name`."""
        keys = {action.dest for action in self._actions} - {"help", "config", "print_config"}
        return keys | {key.partition(".")[0] for key in keys}


class HelpApart(argparse.Action):
    """`--help-trainer`: print what --help leaves out, and stop."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: Any, *args: Any) -> None:
        print(parser.help_apart())
        parser.exit()


def is_unicode(text: str) -> bool:
    """Whether a text can be written down; bytes of a file's name that are no UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


NO_FLAGS = ("trainer", "options", "attack_options")  # fields that gather flags of other names


def add_dataclass(
    parser: ScriptParser,
    config: type,
    without: Collection[str] = NO_FLAGS,
    axes: Collection[str] = (),
    headings: Mapping[str, Sequence[str]] = MappingProxyType({}),
    otherwise: str = "options",
    also: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A flag for every field of `config`, documented by its docstring: `batch_size` becomes `--batch-size`.

    Args:
        parser: gets the flags.
        config: a dataclass.
        without: fields that get no flag.
        axes: fields that take several values, whatever their type.
        headings: of --help, in order, each with the fields that stand under it.
        otherwise: the heading of all other fields.
        also: what the help of a field says besides its docstring.
    """
    documented = [
        parameter for kind in config.__mro__ for parameter in docstring_parser.parse(kind.__doc__ or "").params
    ]
    helps = {parameter.arg_name: parameter.description for parameter in documented}
    hints = typing.get_type_hints(config)
    places = {name: (number, title) for number, title in enumerate(headings) for name in headings[title]}
    last = (list(headings).index(otherwise) if otherwise in headings else len(headings), otherwise)
    fields = [each for each in dataclasses.fields(config) if each.name not in without]
    for each in sorted(fields, key=lambda each: places.get(each.name, last)[0]):
        group, hint = parser.heading(places.get(each.name, last)[1]), hints[each.name]
        flag = "--" + FLAG_NAMES.get(each.name, each.name).replace("_", "-")
        default = default_of(each)
        words = " ".join([helps[each.name], *([also[each.name]] if each.name in also else [])])
        text = as_called(words.removesuffix(".") + shown_default(default), parser.prog).replace("%", "%%")
        value = placeholder(flag, hint)
        if each.name in axes:
            group.add_argument(flag, nargs="+", default=None, metavar=value, help=text)
            parser.axes[FLAG_NAMES.get(each.name, each.name)] = hint
        elif hint is bool and default is False:
            group.add_argument(flag, action="store_true", help=text)
        elif typing.get_origin(hint) is list:
            (kind,) = typing.get_args(hint)
            group.add_argument(flag, nargs="+", type=kind, default=default, metavar=value, help=text)
        else:
            group.add_argument(flag, type=hint, default=default, metavar=value, help=text)


def shown_default(default: Any) -> str:
    """A default as the command line takes it, in parentheses; empty where the help itself must say what is meant.

    Example:
        >>> shown_default(["whitebox", "decoder"]), shown_default(None)
        (' (default: whitebox decoder)', '')
    """
    if default is None or default is False or default == []:
        return ""
    if default == "":
        return " (needed)"
    if isinstance(default, list):
        return f" (default: {' '.join(map(str, default))})"
    return f" (default: {f'{default:.4g}' if isinstance(default, float) else str(default).lower()})"


def default_of(each: dataclasses.Field[Any]) -> Any:
    """What a field is where nobody says it."""
    return each.default_factory() if callable(each.default_factory) else each.default


def as_called(text: str, prog: str) -> str:
    """A text about the scripts in the words of who called: of `sweetspot COMMAND`, which runs anywhere, that command.

    Example:
        >>> as_called("python train.py --config configs/synthetic.yaml --lambda 1", "sweetspot train")
        'sweetspot train --config synthetic --lambda 1'
        >>> as_called("a run of train.py", "sweetspot invert")
        'a run of sweetspot train'
    """
    if not prog.startswith("sweetspot "):
        return text
    commands = r"\b(?:python )?(train|evaluate|sweep|report|reproduce|invert)\.py"
    return re.sub(r"configs/(?:sweeps/)?(\w+)\.yaml", r"\1", re.sub(commands, r"sweetspot \1", text))


def script_parser(prog: str, usage: str, description: str, examples: str) -> ScriptParser:
    """A parser with help that ends in examples, and whose complaints are ours to print.

    Args:
        prog: how the command was called, such as `python train.py` or `sweetspot train`.
        usage: what follows it.
        description: what it does.
        examples: of the scripts, such as `python train.py --lambda 1`.
    """
    return ScriptParser(
        prog=prog,
        usage=as_called(f"{prog} {usage}", prog),
        description=description,
        epilog=as_called(f"{EXAMPLES}\n{examples}", prog),
        formatter_class=HelpLayout,
        exit_on_error=False,
        allow_abbrev=True,
    )


DEFENCE: dict[str, Registry[Any]] = {"defence": PENALTIES, "release": RELEASES}


# of options whose default a run chooses by its other parts, what it is
CHOSEN_BY_RUNS = {"unit": "rms, or raw where a penalty or a clip sets the scale", "partners": "0, of text 8"}


def add_options(
    parser: ScriptParser,
    argv: Sequence[str] | None,
    kinds: Mapping[str, Registry[Any]],
    axes: bool = False,
    without: Collection[str] = (),
    defaults: Mapping[str, str] = MappingProxyType(CHOSEN_BY_RUNS),
) -> None:
    """A flag for every option of every part of a defence and every attack, also of a user's own that is named.

    Args:
        parser: gets the flags.
        argv: the command line, which may name files of the user's own; None: that of this process.
        kinds: what may have options, by the flag that names it.
        axes: whether options of a defence take several values.
        without: options that mean nothing here.
        defaults: what --help says where an option's own default is not what is used.
    """
    taken = dict(parser._option_string_actions)
    owners: dict[str, dict[str, Option]] = {}  # of every option, which parts have it
    for flag, registry in kinds.items():
        own = {part.name: part.options for part in named_by_user(argv, flag, registry)}
        for part, options in {**registry.options(), **own}.items():
            for name, each in options.items():
                owners.setdefault(name, {})[part] = each
                if flag == "attacks":
                    parser.attack_options.add(name)
    defences = {*PENALTIES.options(), *RELEASES.options()}
    for name, parts in ((name, parts) for name, parts in owners.items() if name not in without):
        flag = "--" + name.replace("_", "-")
        named, of_attack = ", ".join(parts), name in parser.attack_options
        if flag in taken:
            raise UserError(f"{[*parts][-1]} has an option {name}, and {flag} is a flag already; call it otherwise")
        if of_attack and not defences.isdisjoint(parts):
            raise UserError(f"{named} both have an option {name}; call that of the attack otherwise")
        each = next(iter(parts.values()))
        default = shown_default(defaults.get(name, each.default))
        text = f"of {named}: {each.help}{default}".replace("%", "%%")
        group = parser.heading("attacks" if of_attack else "defence")
        value = placeholder(flag, each.kind)
        if axes and not of_attack:
            group.add_argument(flag, nargs="+", default=None, metavar=value, help=text)
            parser.axes[name] = each.kind
        else:
            group.add_argument(flag, type=each.kind | None, default=None, metavar=value, help=text)


def named_by_user(argv: Sequence[str] | None, flag: str, registry: Registry[Any]) -> list[type[Any]]:
    """The user's own classes that a flag of the command line, or of a file that it names, speaks of."""
    arguments = files_first(sys.argv[1:] if argv is None else argv)
    named: list[str] = []
    for each, path in itertools.pairwise(arguments):
        if each == "--config" and Path(path).is_file():
            named += named_in(read_yaml("--config", Path(path)), flag)
    current = ""
    for argument in arguments:
        if argument.startswith("--"):
            current, _, argument = argument.removeprefix("--").partition("=")
        if current == flag and argument:
            named.append(argument)
    if flag == "release":
        named = [name for each in named for name in chained(each)]
    return [registry[name] for name in dict.fromkeys(named) if is_users_own(name)]


def named_in(written: Any, flag: str) -> list[str]:
    """What a `--config` file names by a flag, in its grids too; whether it can be is not asked."""
    if not isinstance(written, dict):
        return []
    grids, named = written.get("grids"), []
    for each in [written, *(grids if isinstance(grids, list) else [])]:
        found = each.get(flag) if isinstance(each, dict) else None
        named += [name for name in (found if isinstance(found, list) else [found]) if isinstance(name, str) and name]
    return named


def train_parser(
    prog: str,
    description: str,
    examples: str,
    argv: Sequence[str] | None = None,
    attacks: Registry[Any] | None = None,
) -> ScriptParser:
    """The flags of a training run: TrainConfig's, those of defences and attacks, Lightning's under `--trainer.`."""
    usage = "[--lambda λ] [--beta β] [--dataset NAME] [--config FILE] [FLAG …]"
    parser = script_parser(prog, usage, description, examples)
    add_config_file(parser)
    add_run(parser)
    add_options(parser, argv, {**DEFENCE, **({} if attacks is None else {"attacks": attacks})})
    add_trainer(parser)
    return parser


def add_run(parser: ScriptParser, axes: Collection[str] = (), also: Mapping[str, str] = MappingProxyType({})) -> None:
    """The flags of a run, under their headings; `axes` and `also` as in `add_dataclass`."""
    add_dataclass(parser, TrainConfig, axes=axes, headings=HEADINGS, otherwise="attacks", also=also)


def add_attacks(parser: ScriptParser) -> None:
    """The flags of the attacks on a run, under their headings."""
    add_dataclass(parser, AttackConfig, headings=HEADINGS, otherwise="attacks")


def add_config_file(parser: ArgumentParser, sweeps: bool = False) -> None:
    """`--config FILE`, which may be an experiment of ours or one of our sweeps, and what could stand in it."""
    parser.add_argument(
        "--config",
        action="config",
        metavar="FILE",
        help="a YAML file of flags, or an experiment that comes with sweetspot by its name; a flag on the command line "
        f"wins over it. Experiments: {', '.join(sorted(shipped() if sweeps else runs_shipped()))}",
    )
    for action in parser._actions:
        if action.dest == "print_config":
            action.help, action.metavar = "print what would run, as YAML that --config takes, and stop", ""


def add_trainer(parser: ScriptParser) -> None:
    """Lightning's own flags, under `--trainer.`, and a help for them."""
    parser.add_argument("--help-trainer", action=HelpApart, help="list the --trainer.* flags, which are Lightning's")
    parser.apart = "trainer"
    group = parser.add_argument_group(parser.apart, "arguments of Lightning's Trainer, in Lightning's words")
    for each in trainer_flags():
        if each.name not in OURS:
            default, flag = TRAINER_DEFAULTS.get(each.name, each.default), f"--trainer.{each.name}"
            shown = each.said_default if default is None else str(default).lower()
            text = each.help.removesuffix(".") + shown_default(shown)
            value = placeholder(flag, each.kind)
            group.add_argument(flag, type=each.kind, default=default, metavar=value, help=text.replace("%", "%%"))


def parse_train(parser: ScriptParser, argv: Sequence[str] | None = None) -> TrainConfig:
    """The config that a command line asks for."""
    return TrainConfig(**parse_fields(parser, argv, [TrainConfig])[0])


def parse_fields(parser: ScriptParser, argv: Sequence[str] | None, kinds: Sequence[type]) -> list[dict[str, Any]]:
    """The fields of each of these dataclasses that a command line asks for; of one that two have, the first's."""
    arguments = files_first(sys.argv[1:] if argv is None else argv)
    written = files_in(parser, arguments)
    check_lists(written, kinds, parser.axes)
    try:
        parsed = parser.parse_args(arguments).as_dict()
    except UserError:
        raise
    except ArgumentError as error:
        key = re.match(r'Parser key "([\w.]+)"', str(error))
        raise UserError(one_line(error) + (standing_in(key[1], written, arguments) if key else "")) from error
    except (TypeError, AttributeError, ValueError) as error:  # what odd YAML makes of the parser
        raise UserError(
            f"the --config file cannot be understood ({first_line(error)}); see --print_config for one"
        ) from error
    if not isinstance(parsed.get("trainer"), dict):
        raise UserError(f"trainer must hold arguments of Lightning's Trainer by name; got {parsed.get('trainer')!r}")
    defaults = parser.get_defaults().as_dict()["trainer"]
    parsed["trainer"] = {name: value for name, value in parsed["trainer"].items() if value != defaults[name]}
    fields = {each.name for kind in kinds for each in dataclasses.fields(kind)} | {
        "config",
        "trainer",
        *FLAG_NAMES.values(),
    }
    options = [name for name in parsed if name not in fields]  # what is left are options of parts and attacks
    taken = []
    for kind in kinds:
        named = {each.name: FLAG_NAMES.get(each.name, each.name) for each in dataclasses.fields(kind)}
        taken.append({name: parsed.pop(flag) for name, flag in named.items() if flag in parsed})
        given = {name: parsed[name] for name in sorted(options) if parsed[name] is not None}
        if "options" in named:
            taken[-1]["options"] = {k: v for k, v in given.items() if k not in parser.attack_options}
        if "attack_options" in named:
            taken[-1]["attack_options"] = {k: v for k, v in given.items() if k in parser.attack_options}
    return taken


def files_in(parser: ScriptParser, arguments: Sequence[str]) -> dict[Path, dict[str, Any]]:
    """What each `--config` file of a command line says."""
    paths = [Path(path) for flag, path in itertools.pairwise(arguments) if flag == "--config"]
    return {path: read_config(parser, path) for path in paths}


def files_first(argv: Sequence[str]) -> list[str]:
    """The arguments with every `--config FILE` in front: jsonargparse lets the later win, and a flag must always win.

    The name of an experiment that comes with sweetspot is its file.

    Example:
        >>> files_first(["--lambda", "1", "--config", "a.yaml"])
        ['--config', 'a.yaml', '--lambda', '1']
    """
    files: list[str] = []
    flags: list[str] = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        if len(name) > 4 and "--config".startswith(name):  # argparse takes abbreviations
            files += ["--config", str(experiment(value))] if equals else ["--config"]
        elif files[-1:] == ["--config"]:
            files.append(str(experiment(argument)))
        else:
            flags.append(argument)
    return files + flags


def read_config(parser: ScriptParser, path: Path) -> dict[str, Any]:
    """What a `--config` file says, if it is a mapping of keys that there are."""
    if not path.exists() and (near := meant(path.stem, shipped())):
        raise UserError(f"--config {path} is not there{near}")
    written = read_yaml("--config", path)
    if not isinstance(written, dict) or not written:
        raise UserError(f"--config {path} must hold flags by name, such as lambda: 1; see --print_config for one")
    known = parser.config_keys()
    trainer = written.get("trainer")
    inner = [f"trainer.{name}" for name in trainer] if isinstance(trainer, dict) else []
    for key in [*written, *inner]:
        if key not in known:
            own = f" (sweetspot sets it{', by epochs' if key == 'trainer.max_epochs' else ''})"
            hint = own if str(key).removeprefix("trainer.") in OURS else meant(str(key), known, SURE)
            raise UserError(f"there is no {key} for --config {path} to set{hint}")
    return written


def standing_in(key: str, written: Mapping[Path, dict[str, Any]], arguments: Sequence[str]) -> str:
    """In which file a key stands, in parentheses; empty where it does not, or a flag has the last word."""
    flag = spelled(key)
    if any(argument.partition("=")[0] == flag for argument in arguments):
        return ""
    return next((f" (in {path})" for path, held in written.items() if key.partition(".")[0] in held), "")


def check_lists(written: Mapping[Path, dict[str, Any]], kinds: Sequence[type], axes: Collection[str] = ()) -> None:
    """Refuse a `--config` file that gives one value where a flag takes several: jsonargparse breaks on it.

    Of `axes` one value is as good as several.
    """
    hints = {name: hint for kind in reversed(kinds) for name, hint in typing.get_type_hints(kind).items()}
    several = [FLAG_NAMES.get(name, name) for name, hint in hints.items() if typing.get_origin(hint) is list]
    for path, given in written.items():
        for name in (name for name in several if name not in axes):
            if not isinstance(given.get(name, []), list):
                raise UserError(f"{name} in {path} must be a list, such as {name}: [{given[name]}]")


def run_command(command: Callable[[], Any]) -> int:
    """The exit code of a command: 0, 2 with one line for what the user can mend, 130 for Ctrl-C, 143 for SIGTERM."""
    quieten()
    with sigterm_as_ctrl_c() as terminated:
        try:
            command()
        except (UserError, ArgumentError) as error:
            print(f"error: {one_line(error)}", file=sys.stderr)
            return getattr(error, "exit_code", 2)
        except BrokenPipeError:  # whoever read our lines has gone, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        except OSError as error:
            if not (said := disk_trouble(error)):
                raise
            print(f"error: {said}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            how, code = ("terminated", 143) if terminated else ("stopped", 130)
            print(f"{how}; what was finished is kept, and the same command goes on from there", file=sys.stderr)
            return code
    return 0


WAYS_OUT = {
    errno.ENOSPC: "make room, and the same command goes on",
    errno.EDQUOT: "make room, and the same command goes on",
    errno.EROFS: "make it writable, or work on a copy of the folder",
    errno.EACCES: "make it writable, or work on a copy of the folder",
    errno.EPERM: "make it writable, or work on a copy of the folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def disk_trouble(error: OSError) -> str:
    """What is wrong with the disk, and what to do; empty where something else is wrong.

    Example:
        >>> disk_trouble(OSError(errno.ENOSPC, "No space left on device", "runs/last.ckpt"))
        'No space left on device: runs/last.ckpt; make room, and the same command goes on'
    """
    if error.errno not in WAYS_OUT:
        return ""
    return f"{error.strerror}: {error.filename or 'while writing'}; {WAYS_OUT[error.errno]}"


def one_line(error: BaseException) -> str:
    """The error's message without its line breaks, and a parser's complaint in the words of the command line."""
    message = " ".join(str(error).split())
    wrong_type = re.fullmatch(
        r'Parser key "([\w.]+)"(?: element \d+)?: Expected an? <class \'(\w+)\'>\. Got value: (.*)', message
    )
    if wrong_type:
        key, kind, value = wrong_type.groups()
        return f"{spelled(key)} must be {KINDS.get(kind, kind)}; got {value}"
    none_of = re.fullmatch(
        r'Parser key "([\w.]+)": Does not validate .*?Subtypes: \[(.*?)\] .*Given value: (.*)', message
    )
    if none_of:
        key, kinds, value = none_of.groups()
        named = [KINDS.get(kind, kind) for kind in re.findall(r"'(\w+)'", kinds) if kind != "NoneType"]
        return f"{spelled(key)} must be {' or '.join(named)}; got {value}"
    return message


def spelled(key: str) -> str:
    """A key as the command line spells it; Lightning's own keep their underscores.

    Example:
        >>> spelled("limit_train"), spelled("trainer.max_steps")
        ('--limit-train', '--trainer.max_steps')
    """
    return f"--{key if key.startswith('trainer.') else key.replace('_', '-')}"


def quieten() -> None:
    """Leave the terminal to sweetspot: Lightning's banners and tips say nothing about this run."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
