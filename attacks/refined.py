"""The white box started from the decoder's answer, and kept near it wherever the decoder is sure.

At shallow cuts the white box wins, at deep ones the decoder. This descends from the decoder's answer, with a penalty on
the distance to it, measured in what the decoder is usually off by. How strong the penalty is, up to never leaving the
decoder's answer, is chosen on inputs of the attacker's own that the decoder was not trained on.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from sweetspot.attacks.decoder.attack import Decoder
from sweetspot.attacks.decoder.training import BATCH, GAN_EPOCHS, inverse_loss
from sweetspot.attacks.descent import Candidate, Descent
from sweetspot.attacks.leaky import Leak
from sweetspot.attacks.threat_model import (
    ATTACKS,
    Attack,
    AttackerData,
    Reconstruction,
    Victim,
    checked,
    device_of,
    inputs_at_once,
)
from sweetspot.attacks.whitebox import CHUNK, spread_of
from sweetspot.errors import UserError
from sweetspot.lightning_modules.drawing import draws_from
from sweetspot.options import option

STEPS = {"fast": 100, "normal": 150, "thorough": 500}  # of each descent, by budget
TRIALS = {"fast": 32, "normal": 64, "thorough": 256}  # held-out inputs on which a penalty's strength is chosen
# Strengths that are tried; `thorough` takes both rows. Under known noise the loss is in nats, and 1 is the right one
# if the decoder's errors in two entries have nothing to do with one another.
PULLS = ((3e-3, 1e-2, 3e-2, 1e-1, 1.0), (1e-3, 3e-1, 3.0, 10.0))
PULLS_IN_NATS = ((0.3, 1.0, 3.0, 10.0, 30.0), (0.1, 0.6, 2.0, 100.0))
CERTAIN = 2.0  # standard errors by which a strength must beat the decoder's answer as it is
VARIATION, VARIATION_IN_NATS = 3e-5, 1.0  # weight of the total variation
BINS, LOGITS = 40, 8.0  # how finely what the decoder says of a pixel is told apart: bins of its logit, from −8 to 8
LEAST = 1e-3  # uncertainty of an entry: what the decoder always gets right may still move a little


@ATTACKS("refined")
class Refined(Attack):
    """The decoder's answer, refined by descent on what it leaves unexplained."""

    decoder_epochs: int = option(GAN_EPOCHS, "epochs of the GAN; the paper has 50", least=1)

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.decoder = Decoder("adaptive", self.budget, self.seed, self.cache, **self.record())
        self.expected_error: Tensor | None = None  # what the decoder is off by: (BINS,) of pixels, (…) of vectors
        self.spread: Tensor | None = None  # of the victim's features on the attacker's inputs, (d,)
        self.held_out: dict[str, float] = {}  # the loss of each strength on held-out inputs
        self.pull = math.inf  # the best of them; infinite: the decoder's answer as it is

    @property
    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in self.decoder.settings.items() if name != "recipe"}

    def prepare(self, victim: Victim, data: AttackerData | None) -> None:
        if data is None:
            raise UserError("the refined attack needs inputs of the attacker's own, and this threat model grants none")
        device = device_of(victim)
        with draws_from(self.seed, device):  # the decoder is the one that decoder/adaptive trains
            self.decoder.prepare(victim, data)
        held_out, own = self.decoder.divided(data)
        known = held_out if len(held_out.y) else own
        with draws_from(self.seed, device), torch.no_grad():
            x = known.sample(len(known.y)).to(device)
            z = torch.cat([victim.released(part) for part in x.split(BATCH)])
            answers = self.decoder.reconstruct(victim, z).x
        self.spread = spread_of(victim, own)
        self.expected_error = expected_error(answers, x)
        chosen = torch.linspace(0, len(x) - 1, min(TRIALS[self.budget], len(x)), device=device).long()
        self.choose(victim, x[chosen], z[chosen], answers[chosen])

    def choose(self, victim: Victim, x: Tensor, z: Tensor, answers: Tensor) -> None:
        """Take the best strength on held-out inputs x, of which z was seen; to stay at the answers is one of them."""
        tried = {math.inf: answers}
        usual, more = PULLS_IN_NATS if victim.noise > 0 else PULLS
        for pull in (*usual, *more) if self.budget == "thorough" else usual:
            tried[pull], steps = self.refine(victim, z, answers, pull, f"{self.key} trial")
            if steps < STEPS[self.budget]:
                raise KeyboardInterrupt
        losses = {pull: losses_of(found, x) for pull, found in tried.items() if found.isfinite().all()}
        self.held_out = {f"{pull:g}": each.mean().item() for pull, each in losses.items()}
        best = min(losses, key=lambda pull: losses[pull].mean().item())
        gain = losses[math.inf] - losses[best]  # (B,)
        by_chance = CERTAIN * gain.std(correction=0).item() / math.sqrt(len(x))
        self.pull = best if gain.mean().item() > by_chance else math.inf

    def reconstruct(self, victim: Victim, z: Tensor) -> Reconstruction:
        if self.spread is None:
            raise UserError("the refined attack must be prepared before it can reconstruct")
        began = time.perf_counter()
        x, steps, of = self.decoder.reconstruct(victim, checked(z)).x, 0, 0
        if math.isfinite(self.pull):
            of = STEPS[self.budget]
            x, steps = self.refine(victim, z, x, self.pull, self.key)
        trace = {"pull": f"{self.pull:g}", "held_out_loss": self.held_out, "steps": steps, "of": of}
        return Reconstruction(x, victim.residual(x, z), time.perf_counter() - began, trace)

    def refine(self, victim: Victim, z: Tensor, answers: Tensor, pull: float, what: str) -> tuple[Tensor, int]:
        """What explains z (B, …) and is near the decoder's answers, and after how many steps: fewer after Ctrl-C."""
        assert self.spread is not None
        if victim.noise > 0:
            nats = pull * math.prod(victim.shape) / 2  # ½Σu² is half the entries times the mean of u²
            candidate = Candidate(loss="likelihood", tv=VARIATION_IN_NATS, tv_end=None, pull=nats)
        else:
            candidate = Candidate(tv=VARIATION, tv_end=None, pull=pull)
        found, steps, of = [], STEPS[self.budget], STEPS[self.budget]
        at_once = inputs_at_once(victim, CHUNK)
        for seen, start in zip(z.flatten(1).split(at_once), answers.split(at_once), strict=True):
            descent = Descent(
                victim.misfit,
                seen,
                [candidate],
                start[None],
                self.spread,
                victim.bounds,
                Leak(),
                victim.power,
                victim.noise,
                uncertainty=self.uncertainty(start),
            )
            steps = min(steps, descent.run(of if steps == of else 0, what))
            found.append(descent.ended(at_the_last=False)[0][0])
        return torch.cat(found), steps

    def uncertainty(self, answers: Tensor) -> Tensor:
        """How far the decoder is expected to be off in each entry of its answers (B, …)."""
        assert self.expected_error is not None
        if answers.ndim == 2:
            return self.expected_error.expand_as(answers)
        return self.expected_error[bins_of(answers)]


def losses_of(recovered: Tensor, original: Tensor) -> Tensor:
    """What decoders minimise, of each input by itself (B,)."""
    pairs = zip(recovered.split(1), original.split(1), strict=True)
    return torch.stack([inverse_loss(one, other) for one, other in pairs])


def expected_error(answers: Tensor, x: Tensor) -> Tensor:
    """The root mean square error of a decoder's answers: of pixels by what it answers (BINS,), of vectors by entry.

    A decoder that says black, or white, is nearly always right; one that says grey does not know.
    """
    squared = (answers - x).square()
    if x.ndim == 2:
        mean = squared.mean(dim=0)
    else:
        bins = bins_of(answers).flatten()
        sums = torch.zeros(BINS, device=x.device).index_add_(0, bins, squared.flatten())
        counts = torch.bincount(bins, minlength=BINS)
        mean = torch.where(counts > 0, sums / counts.clamp_min(1), squared.mean())
    return mean.sqrt().clamp_min(LEAST)


def bins_of(answers: Tensor) -> Tensor:
    """The bin of every pixel: even in the logit, so that 0.001 and 0.03 are told apart."""
    return ((answers.logit(eps=1e-6) + LOGITS) / (2 * LOGITS) * BINS).long().clamp(0, BINS - 1)
