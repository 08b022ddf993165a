"""Threads that wait do not spin against those that work, and the setting reaches OpenMP in time."""

from __future__ import annotations

import os
import subprocess
import sys

from sweetspot.openmp import spin_briefly
from tests.conftest import ROOT


def test_it_is_set_before_anything_can_load_torch() -> None:
    asked = "import os, sys, sweetspot; print('torch' in sys.modules, int(os.environ['GOMP_SPINCOUNT']) > 0)"
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP", "OMP"))}
    told = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, env=plain, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["False", "True"]


def test_what_the_user_has_set_is_left_alone() -> None:
    variables: dict[str, str] = {}
    spin_briefly(variables)
    assert int(variables["GOMP_SPINCOUNT"]) > 0
    for chosen in ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}):
        variables = dict(chosen)
        spin_briefly(variables)
        assert variables == chosen
