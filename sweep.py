"""`python sweep.py …` is `sweetspot sweep …` (see sweetspot/commands/sweep.py)."""

import sys

from sweetspot.commands.sweep import main

if __name__ == "__main__":
    sys.exit(main())
