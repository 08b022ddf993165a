"""Attack a model that you have, without a run: how much of its inputs comes back from what it sends.

sweetspot attack my_model.py:build --weights w.pt --cut layer1 --data photos/
sweetspot attack torchvision:resnet18 --weights w.pt --cut layer1 --data cifar10.npz --attacks standard
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sweetspot.errors import UserError
from sweetspot.evaluations.audit_config import AuditConfig
from sweetspot.files import check_writable
from sweetspot.registries import ATTACKS, RELEASES
from sweetspot.runs.command_line import HEADINGS, NO_FLAGS, ScriptParser, add_dataclass, add_options, run_command
from sweetspot.runs.command_line import script_parser as command_parser

if TYPE_CHECKING:
    from sweetspot.evaluations.audit import Subject

EXAMPLES = """\
  sweetspot attack my_model.py:build --weights w.pt --cut layer1 --data photos/ --image-size 64
  sweetspot attack torchvision:resnet18 --weights w.pt --cut layer1 --data cifar10.npz --standardise 0.47 0.25
  sweetspot attack torchvision:resnet18 --weights w.pt --cut layer1 --data cifar10.npz --release gaussian --sigma 0.5
  sweetspot attack lenet --weights w.pt --cut 2 --data mnist --attacks whitebox decoder --budget thorough
"""
OF_TEXT = ("policy", "operating_point", "beam", "prior", "text_loss", "prompts", "observe")
PLACES = {
    **HEADINGS,
    "data": ("data", "data_root", "image_size", "skip_corrupt", "limit_train", "limit_test"),
    "network": ("weights", "cut", "standardise", "classes"),
    "run": ("out", "page", "device", "seed"),
}


def attack_parser(argv: list[str] | None, prog: str) -> ScriptParser:
    """The flags of an audit: AuditConfig's, and those of releases and attacks."""
    usage = "MODEL --weights FILE --cut NAME --data DATASET [--attacks NAME …] [FLAG …]"
    description = "Attack a model that you have, without a run, and say how much of its inputs comes back."
    parser = command_parser(prog, usage, description, EXAMPLES)
    parser.about = {"defence": "a release, which is what leaves, and its options"}
    parser.add_argument("model", type=str, help="torchvision:NAME, timm:NAME, file.py:function, or one of sweetspot's")
    without = (*NO_FLAGS, *OF_TEXT, "model", "attack_seed")
    add_dataclass(parser, AuditConfig, without, headings=PLACES, otherwise="attacks")
    # nothing is trained here: noise has its full size from the start, and is of z as the head knows it
    add_options(parser, argv, {"release": RELEASES, "attacks": ATTACKS}, without=("ramp",), defaults={"unit": "raw"})
    return parser


def parsed_config(argv: list[str] | None, prog: str = "sweetspot attack") -> AuditConfig:
    """The config that a command line asks for."""
    parser = attack_parser(argv, prog)
    parsed = parser.parse_args(argv).as_dict()
    fields = {each.name for each in dataclasses.fields(AuditConfig)}
    known = {name: value for name, value in parsed.items() if name in fields}
    given = {name: value for name, value in parsed.items() if name not in fields and value is not None}
    of_attacks = {name: value for name, value in given.items() if name in parser.attack_options}
    options = {name: value for name, value in given.items() if name not in of_attacks}
    return AuditConfig(**known, options=options, attack_options=of_attacks)


def say_what_is_attacked(subject: Subject) -> None:
    """Two lines before the attacks: the data, the model."""
    from sweetspot.reports.tables import describe_defence

    data = subject.data.record()
    print(f"data     {data['name']}: {data['train']:,} of the attacker's own, {data['test']:,} test ({data['source']})")
    print(f"model    {subject.model} cut after {subject.cut}, {describe_defence(subject.defence())}", flush=True)


def say_where_to_cut(config: AuditConfig) -> None:
    """The places where the model can be cut, as `sweetspot train --cut ?` lists them."""
    from sweetspot import training
    from sweetspot.runs.config import TrainConfig

    shared = ("data_root", "image_size", "skip_corrupt", "seed")
    same = {name: getattr(config, name) for name in shared}
    training.say_where_to_cut(TrainConfig.of(network=config.model, dataset=config.data, **same), config.classes)


def main(argv: list[str] | None = None, prog: str = "sweetspot attack") -> int:
    """Parse, attack, print."""

    def command() -> None:
        config = parsed_config(argv, prog)
        from sweetspot.evaluations.audit import audited
        from sweetspot.evaluations.chosen import check_asked
        from sweetspot.evaluations.models import subject_of
        from sweetspot.reports.tables import attacks_table
        from sweetspot.runs.environment import pick_device

        check_asked(config)
        if config.page is not None:
            if not config.page.lower().endswith(".html"):
                raise UserError(f"--page must end in .html; got {config.page}")
            check_writable("--page", config.page)
        pick_device(config.device)
        if config.cut == "?":
            say_where_to_cut(config)
            return
        subject = subject_of(config)
        say_what_is_attacked(subject)
        audit = audited(subject, config, Path(config.out))
        attacks_table(audit.results)
        assert audit.folder is not None
        page = audit.page(config.page if config.page is not None else audit.folder / "audit.html")
        print(f"audit  {audit.folder}\npage   {page}", flush=True)

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
