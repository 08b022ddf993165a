"""`python report.py …` is `sweetspot report …` (see sweetspot/commands/report.py)."""

import sys

from sweetspot.commands.report import main

if __name__ == "__main__":
    sys.exit(main())
