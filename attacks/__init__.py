"""Attacks on a cut layer: what one may see (Victim), what it gives back (Reconstruction), what it is (Attack)."""

from attacks.threat_model import Attack, AttackerData, Reconstruction, Victim

__all__ = ["Attack", "AttackerData", "Reconstruction", "Victim"]
