"""Inversion by a trained decoder: the paper's GAN (Eq. 7), and a plain inverse network beside it."""

from sweetspot.attacks.decoder.attack import Decoder

__all__ = ["Decoder"]
