"""Threads that wait do not spin against those that work, and the setting reaches OpenMP in time."""

from __future__ import annotations

import ast
import sys

from openmp import spin_briefly

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize("script", ["train.py", "evaluate.py", "sweep.py", "invert.py"])
def test_it_is_set_before_anything_can_load_torch(script: str) -> None:
    modules: list[str] = []
    for statement in ast.parse((ROOT / script).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            modules += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            modules.append(str(statement.module))
    others = [name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names]
    assert others[0] == "openmp"


def test_what_the_user_has_set_is_left_alone() -> None:
    variables: dict[str, str] = {}
    spin_briefly(variables)
    assert int(variables["GOMP_SPINCOUNT"]) > 0
    for chosen in ({"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}):
        variables = dict(chosen)
        spin_briefly(variables)
        assert variables == chosen
