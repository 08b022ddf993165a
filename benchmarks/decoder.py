"""Training the decoder behind a deep client, against asking the client for every batch anew.

    python benchmarks/decoder.py --images 2000 --steps 150

`ratio decoder` is the time of asking anew by ours, which asks once for each of the attacker's inputs; both end with the
same decoder up to rounding. The client is ResNet-18 up to its last stage, on images of 32 px.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import torchvision
from torch import Tensor

from sweetspot.attacks import AttackerData, Victim
from sweetspot.attacks.decoder import training
from sweetspot.attacks.decoder.networks import InverseNetwork
from sweetspot.lightning_modules.networks.splitting import split

SHAPE = (3, 32, 32)


def trained(victim: Victim, data: AttackerData, steps: int, held: int) -> tuple[float, Tensor]:
    """Seconds that training takes with so many bytes for representations, and the decoder's last bias."""
    training.HELD = held
    torch.manual_seed(0)
    network = InverseNetwork(tuple(victim.encoder(data.images(slice(0, 1))).shape[1:]), SHAPE)
    batches = training.random_batches(len(data.y), steps, torch.Generator().manual_seed(0))
    began = time.perf_counter()
    training.train_decoder(training.InverseModule(victim, network, steps), victim, batches, data, "decoder")
    return time.perf_counter() - began, [*network.parameters()][-1].detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=150)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    encoder, head = split(torchvision.models.resnet18().eval(), "layer4", torch.zeros(1, *SHAPE))
    victim = Victim(encoder, head, lambda z: z, SHAPE, 10, (0.0, 1.0))
    data = AttackerData(torch.rand(chosen.images, *SHAPE), torch.zeros(chosen.images, dtype=torch.long))
    anew, theirs = trained(victim, data, chosen.steps, held=0)
    once, ours = trained(victim, data, chosen.steps, held=2**30)
    difference = (ours - theirs).abs().max().item()
    print(
        f"ratio decoder {anew / once:.2f} (ours {once:.1f} s, theirs {anew:.1f} s, weights differ by {difference:.1e})"
    )


if __name__ == "__main__":
    main()
