"""The tables and figures of the three papers: what each needs, what the paper has, and what comes out here.

One file each, in the folder of its paper: a file that is put there is found.
"""

import importlib
import pkgutil

from sweetspot.reproductions.base import LEFT_OUT, REPRODUCTIONS, Asked, Reproduction

__all__ = ["LEFT_OUT", "REPRODUCTIONS", "Asked", "Reproduction"]

for paper in (each.name for each in pkgutil.iter_modules(__path__) if each.ispkg):
    for found in pkgutil.iter_modules([f"{folder}/{paper}" for folder in __path__]):
        importlib.import_module(f"{__name__}.{paper}.{found.name}")
