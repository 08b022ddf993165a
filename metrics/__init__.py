"""Metrics of a reconstruction: pure functions a sample, and their summary as mean ± std (most leaked)."""
