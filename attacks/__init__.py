"""Attacks on a cut layer: what one may see (Victim), what it gives back (Reconstruction), what it is (Attack)."""

from attacks.threat_model import ATTACKS, Attack, AttackerData, LabelOnly, Reconstruction, Victim

# isort: split
# in the order in which they are run
from attacks.prototype import Prototype
from attacks.whitebox import WhiteBox

# isort: split
from attacks.decoder import Decoder
from attacks.label import Label

# isort: split
from attacks.refined import Refined

# isort: split
from attacks.positions import Positions

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
