"""`python train.py …` is `sweetspot train …` (see sweetspot/commands/train.py)."""

import sys

from sweetspot.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
