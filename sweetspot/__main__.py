"""`sweetspot COMMAND …`: the same commands as the scripts beside the rooms."""

from __future__ import annotations

import importlib
import sys

from sweetspot.errors import meant

COMMANDS = {
    "train": "one run, end to end: train a split network with a defence, and attack it",
    "evaluate": "attacks on saved runs",
    "attack": "attacks on any model you have, without a run",
    "sweep": "a grid of runs, and its sweet spot",
    "report": "any set of runs → one HTML page",
    "reproduce": "the papers' tables and figures, ours beside theirs",
    "invert": "text out of hidden states, a training batch out of a gradient",
}
USAGE = "usage: sweetspot COMMAND …   (sweetspot COMMAND --help says more)\n\n" + "\n".join(
    f"  {name:<10}{what}" for name, what in COMMANDS.items()
)


def main(argv: list[str] | None = None) -> int:
    """Hand over to the command; without one, say which there are."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if (name := arguments[0]) not in COMMANDS:
        near = meant(name, COMMANDS)
        print(f"error: there is no command {name}{near}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    command = importlib.import_module(f"sweetspot.commands.{name}")
    return int(command.main(arguments[1:], f"sweetspot {name}"))


if __name__ == "__main__":
    sys.exit(main())
