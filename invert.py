"""`python invert.py …` is `sweetspot invert …` (see sweetspot/commands/invert.py)."""

import sys

from sweetspot.commands.invert import main

if __name__ == "__main__":
    sys.exit(main())
