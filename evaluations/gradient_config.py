"""GradientConfig: which gradient is inverted, and what is known of it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweetspot.errors import UserError, check_one_of
from sweetspot.files import check_figure, check_writable
from sweetspot.runs.choices import BIAS, LOSSES, SOURCES, SUBSPACES

if TYPE_CHECKING:
    from sweetspot.attacks.gradients.activations import Activation

DIM, BATCH = 50, 2  # of a synthetic round, as in the paper
INPUTS = ("basis", "sphere")
SCOPE = (  # what --help and refusals say
    "in scope are networks f(x) = Σ a·σ(w·x) + bias of two layers with one output, a squared loss and no trained "
    "biases, and deep ones with the weights of Algorithm 2"
)
OF_A_ROUND = ("dataset", "inputs", "same_label", "dim", "width", "depth", "bias", "noise", "clip", "prune")


@dataclass
class GradientConfig:
    """One gradient, inverted.

    Args:
        activation: square-cubic, tanh, sigmoid, relu, leaky-relu, gelu, silu or softplus.
        width: m, how many hidden units.
        dim: d, how long a synthetic sample is; default: 50.
        batch: B, how many samples; default: 2, or with --states counted, which noise does not allow.
        depth: layers, the last one included: 2 is the plain network, more are Algorithm 2.
        dataset: mnist, mnist-5k, fashion-mnist, … or an .npz file, flattened and scaled to unit norm; default:
            synthetic samples with labels 1 and -1.
        data_root: where datasets lie or are downloaded to; default $SWEETSPOT_DATA, else data/.
        inputs: synthetic samples: basis (e_1, e_2, …, as in the paper) or sphere (random unit vectors).
        same_label: whether all samples of a dataset are of one class; else of as many as there are.
        loss: of the client, for f the network's output: half-sum, ½·Σ(f − y)², sum, Σ(f − y)², or mean, Σ(f − y)² / B
            (torch's MSELoss). A wrong one gives wrong labels. Not given: half-sum, or with --labels the one that fits.
        labels: the labels that can occur, where they are known, such as -1 1: they tell which loss the client has.
        bias: of the last layer: large, so that all residues have one sign (Remark 1).
        noise: Gaussian, added by the client, as a fraction of the gradient's root mean square.
        clip: the norm that the client scales its gradient down to; the attacker then knows which labels occur.
        prune: the fraction of the gradient's smallest entries that the client sets to 0.
        source: the part of the gradient whose moments the tensor stage takes: w (better) or a.
        subspace: of the tensor stage: span of the gradient's rows (exact), or moment, as in the paper.
        norm: the samples' norm where the attacker knows it; relu and leaky-relu hide it, and 1 is taken.
        tensor_only: whether to stop after the tensor stage, as the paper does; else least squares makes it exact.
        states: a leaked gradient instead, in a .pt, .npz or .safetensors file: the tensors w (m, d), a (m,) or (1, m),
            grad_w and grad_a like them by name, and where there are any, the number bias, a deep network's first
            layers as inner.0, inner.1, … or in .pt as the list inner (w and grad_w are then (m, 2d)), and the truth x
            (B, d) and y (B,), for scores only.
        seed: everything random follows from it.
        device: auto, cpu, cuda, cuda:1, …
        json: a .json file for what was recovered; --out is another name for it.
        figure: a .png file with the samples, recovered beside original.
    """

    activation: str = "tanh"
    width: int = 5000
    dim: int | None = None
    batch: int | None = None
    depth: int = 2
    dataset: str | None = None
    data_root: str | None = None
    inputs: str = "basis"
    same_label: bool = False
    loss: str | None = None
    labels: list[float] = field(default_factory=list)
    bias: float = BIAS
    noise: float = 0.0
    clip: float | None = None
    prune: float = 0.0
    source: str = "w"
    subspace: str = "span"
    norm: float | None = None
    tensor_only: bool = False
    states: str | None = None
    seed: int = 0
    device: str = "auto"
    json: str | None = None
    figure: str | None = None

    def __post_init__(self) -> None:
        among = {"inputs": INPUTS, "source": SOURCES, "subspace": SUBSPACES}
        for name, known in among.items():
            check_one_of(f"--{name}", getattr(self, name), known)
        check_one_of("--loss", self.loss or LOSSES[0], LOSSES)
        for name, least in {"width": 1, "dim": 1, "batch": 1, "depth": 2, "seed": 0}.items():
            given = getattr(self, name)
            if given is not None and given < least:
                raise UserError(f"--{name} must be at least {least}; got {given}")
        self.check_numbers()
        self.check_round()
        check_writable("--json", self.json)
        check_figure("--figure", self.figure)
        self.check_activation()

    @property
    def sigma(self) -> Activation:
        """σ."""
        from sweetspot.attacks.gradients.activations import as_activation

        return as_activation(self.activation)

    def check_activation(self) -> None:
        """Refuse an activation that there is not, and with the reason linear and quadratic."""
        from sweetspot.attacks.gradients.activations import ACTIVATIONS
        from sweetspot.attacks.gradients.hermite import plan

        check_one_of("--activation", self.activation, ACTIVATIONS)
        plan(self.sigma)

    def check_numbers(self) -> None:
        """Refuse levels that mean nothing."""
        for label in self.labels:
            if not math.isfinite(label):
                raise UserError(f"--labels must be a finite number; got {label:g}")
        if not math.isfinite(self.bias):
            raise UserError(f"--bias must be a finite number; got {self.bias:g}")
        if not 0 <= self.noise < math.inf:
            raise UserError(f"--noise must be a number of at least 0; got {self.noise:g}")
        if not 0 <= self.prune < 1:
            raise UserError(f"--prune must be at least 0 and below 1; got {self.prune:g}")
        for flag, level in (("clip", self.clip), ("norm", self.norm)):
            if level is not None and not 0 < level < math.inf:
                raise UserError(f"--{flag} must be positive; got {level:g}")

    def check_round(self) -> None:
        """Refuse flags of a round that is not played, and a batch that cannot be independent."""
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        changed = [name for name in OF_A_ROUND if getattr(self, name) != defaults[name]]
        if self.states is not None and changed:
            raise UserError(f"--states holds a whole round: leave --{changed[0].replace('_', '-')} out")
        if self.dataset is not None and (self.dim is not None or self.inputs != "basis"):
            raise UserError("--dataset brings its own samples: leave --dim and --inputs out")
        if self.same_label and self.dataset is None:
            raise UserError("--same-label chooses among a dataset's samples: give --dataset")
        if self.states is None and self.dataset is None and (self.batch or BATCH) > (self.dim or DIM):
            raise UserError(
                f"--batch {self.batch or BATCH} is larger than --dim {self.dim or DIM}: "
                "the samples cannot be independent"
            )
