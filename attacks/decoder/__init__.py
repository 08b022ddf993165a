"""Inversion by a trained decoder: the paper's GAN (Eq. 7), and a plain inverse network beside it."""

from attacks.decoder.attack import Decoder

__all__ = ["Decoder"]
