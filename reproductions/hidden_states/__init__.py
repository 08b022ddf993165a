"""Recovering Input Text from Hidden States: Study of Gradient-Based Inversion of Decoder-Only Language Models."""
