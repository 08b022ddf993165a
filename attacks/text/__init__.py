"""Recovering text from the hidden states of a decoder-only language model, position by position."""
