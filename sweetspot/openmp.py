"""How torch's threads wait for one another; scripts import this before anything that loads torch.

GNU's OpenMP, which torch uses on Linux, lets a thread that waits spin for 300,000 rounds before it sleeps. On a machine
with other work to do, spinning threads take the cores from those that they wait for: with two threads beside two busy
processes on two cores a step of the decoder took 450 to 1,090 ms, and with 1,000 rounds 100 to 140 ms, about as long
as with one thread. (OpenMP takes 1,000 itself where it knows that there are more threads than cores.) Without any
spinning small steps suffer: each waits to be woken. What is computed does not change, nor by how many threads.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

ROUNDS = "1000"


def spin_briefly(variables: MutableMapping[str, str]) -> None:
    """Set how long threads spin, unless the user has: OpenMP reads it once, when torch is loaded."""
    if "OMP_WAIT_POLICY" not in variables:
        variables.setdefault("GOMP_SPINCOUNT", ROUNDS)


spin_briefly(os.environ)
