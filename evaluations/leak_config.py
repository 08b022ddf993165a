"""LeakConfig: whose hidden states are inverted, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweetspot.errors import UserError, check_one_of
from sweetspot.files import check_figure, check_writable
from sweetspot.runs.choices import DTYPES, OPERATING_POINTS, POLICIES, PREPARE, TEXT_LOSSES


@dataclass
class LeakConfig:
    """One inversion.

    Args:
        model: gpt2, smollm2, any causal LM on the hub or in a folder of the hub's layout, or a run of train.py.
        text: prompts whose states are leaked, on the command line; one of --text, --prompts and --states is needed.
        prompts: a file of them, one a line.
        states: a leaked tensor instead, (T, d) or (B, T, d), in a .pt, .npy, .npz or .safetensors file; of several
            tensors the one called states; a .pt file may also hold a list of (T, d).
        layer: how many blocks the client runs, last (all, before the final norm) or final (after it, as Hugging Face's
            hidden_states[-1] is); default: where the run was cut, or last, and for --states that nothing verifies there
            final.
        policy: hybrid, single-commit or sipit.
        operating_point: of single-commit: fast, baseline or high-accuracy.
        beam: how many prefixes of a prompt hybrid keeps where the states have noise; 1 is greedy.
        text_loss: of single-commit: paper, the plain MSE, or scaled, each coordinate by its spread over English text:
            for models whose states have a few huge coordinates.
        noise: the Gaussian noise that the channel adds, as a fraction of the states' root mean square (without first
            positions); to --states nothing is added: there it is what the attacker knows of them.
        dtype: what the channel sends: fp32, fp16, bf16 or int8.
        observe: whether loss curves and rank trajectories are recorded; false saves a little time.
        candidates: the most tokens that hybrid tries at a position; 0 for the whole vocabulary, or 1,024 under noise.
        seed: everything random follows from it.
        device: auto, cpu, cuda, cuda:1, …
        prepare: what hybrid learns of a model first: auto, as much as pays for the text; full, all it can; or none.
        cache: where what a model's hybrid inverter has learned is kept.
        json: a .json file for what was recovered; --out is another name for it.
        figure: a .png file for what could be observed on the way.
    """

    model: str = "smollm2"
    text: list[str] = field(default_factory=list)
    prompts: str | None = None
    states: str | None = None
    layer: str | None = None
    policy: str = "hybrid"
    operating_point: str = "baseline"
    beam: int = 8
    text_loss: str = "paper"
    noise: float = 0.0
    dtype: str = "fp32"
    observe: bool = True
    candidates: int = 0
    seed: int = 0
    device: str = "auto"
    prepare: str = "auto"
    cache: str = "checkpoints/.text"
    json: str | None = None
    figure: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("text", "prompts", "states") if getattr(self, name)]
        if len(given) > 1:
            raise UserError(f"give one of --text, --prompts and --states; got {' and '.join('--' + g for g in given)}")
        check_one_of("--policy", self.policy, POLICIES)
        check_one_of("--operating-point", self.operating_point, OPERATING_POINTS)
        check_one_of("--text-loss", self.text_loss, TEXT_LOSSES)
        check_one_of("--prepare", self.prepare, PREPARE)
        if self.candidates < 0 or self.seed < 0:
            raise UserError("--candidates and --seed must be at least 0")
        if self.beam < 1:
            raise UserError(f"--beam must be at least 1; got {self.beam}")
        check_writable("--json", self.json)
        check_figure("--figure", self.figure)
        check_one_of("--dtype", self.dtype, DTYPES)
        if not 0 <= self.noise < float("inf"):
            raise UserError(f"--noise must be a number of at least 0; got {self.noise:g}")
