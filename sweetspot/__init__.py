"""sweetspot: split neural networks that are hard to invert, and attacks that prove it.

The rooms (`attacks`, `lightning_modules`, …) lie beside this folder and are linked into it, so that they are
`sweetspot.attacks`, `sweetspot.lightning_modules`, … everywhere, and nothing else of ours has a name outside.
What is here is looked up when it is asked for: importing sweetspot loads neither torch nor anything heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sweetspot import openmp as openmp  # before anything that loads torch, which reads what it sets

if TYPE_CHECKING:
    from sweetspot.attacks.threat_model import Attack, AttackerData, Reconstruction, Victim
    from sweetspot.evaluations.audit import Audit, attack
    from sweetspot.lightning_modules.defences import Penalty, Release
    from sweetspot.lightning_modules.networks.splitting import split
    from sweetspot.options import option

PUBLIC = {
    "Attack": "sweetspot.attacks.threat_model",
    "AttackerData": "sweetspot.attacks.threat_model",
    "Audit": "sweetspot.evaluations.audit",
    "Penalty": "sweetspot.lightning_modules.defences",
    "Reconstruction": "sweetspot.attacks.threat_model",
    "Release": "sweetspot.lightning_modules.defences",
    "Victim": "sweetspot.attacks.threat_model",
    "attack": "sweetspot.evaluations.audit",
    "option": "sweetspot.options",
    "split": "sweetspot.lightning_modules.networks.splitting",
}
__all__ = [
    "Attack",
    "AttackerData",
    "Audit",
    "Penalty",
    "Reconstruction",
    "Release",
    "Victim",
    "attack",
    "option",
    "split",
]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'sweetspot' has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})
