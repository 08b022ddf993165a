"""The words and bounds that settings may have: known to parsers and to the rooms that act on them, and stated once."""

BUDGETS = ("fast", "normal", "thorough")
POLICIES = ("hybrid", "single-commit", "sipit")  # of the attack on text
OPERATING_POINTS = ("fast", "baseline", "high-accuracy")  # of single-commit
TEXT_LOSSES = ("paper", "scaled")  # of single-commit
PREPARE = ("auto", "full", "none")  # what hybrid learns of a model first
LEAST_DATA = 20  # inputs of an attacker's own: fewer teach nothing
TEXT_CHANNELS = ("fp16", "int8", "0.1", "0.3", "1")  # tried on text where no others are named
DTYPES = ("fp32", "fp16", "bf16", "int8")  # in which hidden states are sent
SOURCES = ("w", "a")  # of the attack on a gradient: the part of it that its tensor stage takes the moments of,
SUBSPACES = ("span", "moment")  # where that stage works,
LOSSES = ("half-sum", "sum", "mean")  # what the client minimised: ½·Σ(f − y)², Σ(f − y)², Σ(f − y)² / B,
BIAS = 30.0  # and Remark 1: large against labels and outputs, so that all residues have one sign and a like size
LANGUAGE_MODELS = ("gpt2", "smollm2")
SCHEDULES = ("constant", "cosine")  # of the learning rate
TRAINED = ("all", "head")  # which weights of a language model are trained
PARTNERS = 8  # others of the batch that the penalty of a language model compares each position with
LEAST_SIZE, LARGEST_SIZE = 8, 4096  # of a square image, in pixels
