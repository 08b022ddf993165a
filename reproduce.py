"""`python reproduce.py …` is `sweetspot reproduce …` (see sweetspot/commands/reproduce.py)."""

import sys

from sweetspot.commands.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
