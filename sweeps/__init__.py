"""Grids of runs: the cells, what of them is done, Ray Tune to make the rest, and what to try next."""
