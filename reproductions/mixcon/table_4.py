"""Table 4 (Appendix D.1): the same with UniCon, which pulls together within a class."""

from __future__ import annotations

from sweetspot.reproductions.base import REPRODUCTIONS
from sweetspot.reproductions.mixcon.runs import LAMBDA, Defence, mixcon, unicon
from sweetspot.reproductions.mixcon.table_3 import MIXCONS, Paper, RecoveryTable
from sweetspot.reproductions.verdict import Figure

UNICONS = {
    "mnist": (99.2, Figure(0.31, 0.11, 0.59), Figure(0.41, 0.07, 0.60)),
    "fashion-mnist": (89.6, Figure(0.19, 0.09, 0.53), Figure(0.45, 0.07, 0.64)),
    "svhn": (88.3, Figure(0.67, 0.11, 0.91), Figure(0.62, 0.05, 0.75)),
}


@REPRODUCTIONS("mixcon/table-4")
class Table4(RecoveryTable):
    title = "LeNet5: recovery, UniCon beside MixCon"
    note = "Appendix D.1; λ as for MixCon."

    def columns(self, dataset: str) -> dict[str, tuple[Defence, Paper]]:
        lam = LAMBDA[dataset]
        mixed = (mixcon(lam, 1e-4), MIXCONS[dataset])
        return {f"UniCon({lam:g})": (unicon(lam), UNICONS[dataset]), f"MixCon({lam:g}, 1e-4)": mixed}
