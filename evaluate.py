"""`python evaluate.py …` is `sweetspot evaluate …` (see sweetspot/commands/evaluate.py)."""

import sys

from sweetspot.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
