"""Attacks that need no run: text out of the hidden states of a language model, a training batch out of a gradient.

python invert.py text --model smollm2 --text "The launch code is 7319."
python invert.py text --model DIR --states leaked.pt          # a leaked tensor: the text, and whether to believe it
python invert.py gradient --activation tanh --width 5000 --dim 50 --batch 2
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweetspot.errors import UserError
from sweetspot.evaluations.gradient_config import SCOPE, GradientConfig
from sweetspot.evaluations.leak_config import LeakConfig
from sweetspot.files import replacing
from sweetspot.runs.command_line import add_dataclass, run_command, script_parser

EXAMPLES = """\
  python invert.py text --model smollm2 --text "The launch code is 7319."
  python invert.py text --model gpt2 --text "The launch code is 7319." --policy single-commit --operating-point baseline
  python invert.py text --model smollm2 --prompts prompts.txt --layer 15 --noise 0.01 --dtype fp16
  python invert.py text --model checkpoints/pydoc-gpt2-tiny-… --prompts prompts.txt        a run of train.py
  python invert.py text --model DIR --states leaked.pt                                     no ground truth
"""
GRADIENT_EXAMPLES = """\
  python invert.py gradient --activation tanh --width 5000 --dim 50 --batch 2
  python invert.py gradient --dataset mnist-5k --width 5000 --batch 4 --activation relu --noise 0.01 --figure digits.png
  python invert.py gradient --depth 4 --activation leaky-relu --dim 100 --batch 3         deep networks, Algorithm 2
  python invert.py gradient --activation sigmoid --prune 0.9 --json found.json
  python invert.py gradient --states gradient.pt --activation tanh                        no ground truth
  python invert.py gradient --states gradient.pt --labels 0 1                             the client's loss is found
"""

OF_RUN = ("seed", "device", "cache", "json", "figure")
TEXT_HEADINGS = {
    "data": ("text", "prompts", "states"),
    "network": ("model", "layer"),
    "channel": ("noise", "dtype"),
    "attacks": ("policy", "operating_point", "beam", "candidates", "prepare", "text_loss", "observe"),
    "run": OF_RUN,
}
GRADIENT_HEADINGS = {
    "data": ("dataset", "data_root", "inputs", "dim", "batch", "same_label", "states"),
    "network": ("activation", "width", "depth", "bias", "loss"),
    "channel": ("noise", "clip", "prune"),
    "attacks": ("labels", "norm", "source", "subspace", "tensor_only"),
    "run": OF_RUN,
}


def main(argv: list[str] | None = None, prog: str = "python invert.py") -> int:
    """Parse, invert, print."""
    arguments = [re.sub(r"^--out(?==|$)", "--json", each) for each in (sys.argv[1:] if argv is None else argv)]
    return main_gradient(arguments[1:], prog) if arguments[:1] == ["gradient"] else main_text(arguments, prog)


def main_text(argv: list[str], prog: str) -> int:
    """The command `text`; its help is the one that shows without a word."""
    usage = (
        "text --model NAME (--text TEXT … | --prompts FILE | --states FILE) [FLAG …]\n"
        "python invert.py gradient [FLAG …]   (see gradient --help)"
    )
    description = "Recover text from the hidden states of a language model, or a training batch from a gradient."
    parser = script_parser(prog, usage, description, EXAMPLES + GRADIENT_EXAMPLES)
    parser.add_argument("what", type=str, help="text; gradient has flags of its own")
    add_dataclass(parser, LeakConfig, headings=TEXT_HEADINGS)

    def command() -> None:
        parsed = parser.parse_args(argv).as_dict()
        if (what := parsed.pop("what")) != "text":
            raise UserError(f"the first word must be text or gradient; got {what}")
        config = LeakConfig(**parsed)
        from sweetspot.evaluations.leak import invert_leak
        from sweetspot.reports.tables import recovery_table
        from sweetspot.reports.text_figures import observations_figure

        results = invert_leak(config)
        recovery_table(results)
        write_results(results, config.json)
        if config.figure is not None:
            observations_figure(results["observed"], Path(config.figure))

    return run_command(command)


def main_gradient(argv: list[str], prog: str) -> int:
    """The command `gradient`."""
    usage = "gradient [--activation NAME] [--width M] [--dim D | --dataset NAME | --states FILE] [--batch B] [FLAG …]"
    description = (
        f"Recover a training batch from one gradient and the weights it was taken at. {SCOPE[0].upper()}{SCOPE[1:]}.\n"
        "Convolutions, cross-entropy and several outputs are not."
    )
    parser = script_parser(prog, usage, description, GRADIENT_EXAMPLES)
    add_dataclass(parser, GradientConfig, headings=GRADIENT_HEADINGS)

    def command() -> None:
        config = GradientConfig(**parser.parse_args(argv).as_dict())
        from rich.console import Console

        from sweetspot.evaluations.gradients import invert_gradient
        from sweetspot.reports.gradient_tables import gradient_table

        with warnings_as_lines(), Console().status("recovering the batch …"):
            results = invert_gradient(config)
        gradient_table(results)
        write_results(results, config.json)
        if config.figure is not None:
            draw_samples(results, Path(config.figure))

    return run_command(command)


def write_results(results: Mapping[str, Any], file: str | None) -> None:
    """Write what was recovered into a .json file, if one was named."""
    if file is None:
        return
    written = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    with replacing(Path(file)) as temporary:
        temporary.write_text(written, encoding="utf-8", errors="backslashreplace")


def draw_samples(results: Mapping[str, Any], path: Path) -> None:
    """Draw the recovered samples, beside the originals where they are known."""
    import torch

    from sweetspot.reports.gradient_figures import samples_figure
    from sweetspot.reports.gradient_tables import STAGES

    recovered = {STAGES[name]: torch.tensor(stage["x"]) for name, stage in results["recovered"].items()}
    original = torch.tensor(results["truth"]["x"]) if "truth" in results else None
    samples_figure(recovered, path, original, results["data"]["shape"])


@contextlib.contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Let warnings of the attack reach the terminal as one line each, without the code they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for each in caught:
                print(f"warning: {each.message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
