"""Attacks on a cut layer: what one may see (Victim), what it gives back (Reconstruction), what it is (Attack)."""

from sweetspot.attacks.threat_model import ATTACKS, Attack, AttackerData, LabelOnly, Reconstruction, Victim

# isort: split
# in the order in which they are run
from sweetspot.attacks.prototype import Prototype
from sweetspot.attacks.whitebox import WhiteBox

# isort: split
from sweetspot.attacks.decoder import Decoder
from sweetspot.attacks.label import Label

# isort: split
from sweetspot.attacks.refined import Refined

# isort: split
from sweetspot.attacks.positions import Positions

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackerData",
    "Decoder",
    "Label",
    "LabelOnly",
    "Positions",
    "Prototype",
    "Reconstruction",
    "Refined",
    "Victim",
    "WhiteBox",
]
