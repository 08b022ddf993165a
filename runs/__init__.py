"""Runs: what defines one, the folder it lives in, and how its files are written and read."""
