"""Attacks that need no run: text out of the hidden states of a language model.

python invert.py text --model smollm2 --text "The launch code is 7319."
python invert.py text --model DIR --states leaked.pt          # a leaked tensor: the text, and whether to believe it
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from errors import UserError
from evaluations.leak import LeakConfig, invert_leak
from files import replacing
from reports.tables import recovery_table
from reports.text_figures import observations_figure
from runs.command_line import add_dataclass, run_command, script_parser

EXAMPLES = """\
  python invert.py text --model smollm2 --text "The launch code is 7319."
  python invert.py text --model gpt2 --text "The launch code is 7319." --policy single-commit --operating-point baseline
  python invert.py text --model smollm2 --prompts prompts.txt --layer 15 --noise 0.01 --dtype fp16
  python invert.py text --model checkpoints/pydoc-gpt2-tiny-… --prompts prompts.txt        a run of train.py
  python invert.py text --model DIR --states leaked.pt                                     no ground truth
"""


def main(argv: list[str] | None = None) -> int:
    """Parse, invert, print."""
    usage = "text --model NAME (--text TEXT … | --prompts FILE | --states FILE) [FLAG …]"
    description = "Recover text from the hidden states of a language model."
    parser = script_parser("invert.py", usage, description, EXAMPLES)
    parser.add_argument("what", type=str, help="text")
    add_dataclass(parser, LeakConfig)

    def command() -> None:
        parsed = parser.parse_args(argv).as_dict()
        if (what := parsed.pop("what")) != "text":
            raise UserError(f"invert.py recovers text; got {what}")
        config = LeakConfig(**parsed)
        results = invert_leak(config)
        recovery_table(results)
        if config.out is not None:
            with replacing(Path(config.out)) as temporary:
                temporary.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if config.figure is not None:
            observations_figure(results["observed"], Path(config.figure))

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
