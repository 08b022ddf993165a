"""Evaluations: attacks on a run or on a leak, chosen, run, scored and written down."""
