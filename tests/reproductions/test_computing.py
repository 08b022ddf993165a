"""An attack on text as the tables need it: on as many prompts as there are, kept whole, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweetspot.reproductions.computing import compute
from sweetspot.reproductions.needs import Computed, Shelf


@pytest.mark.parametrize("policy", ["single-commit", "sipit"])
def test_text_out_of_a_models_folder(policy: str, tmp_path: Path, corpus: Path, gpt2_folder: Path) -> None:
    common = {"model": str(gpt2_folder), "corpus": str(corpus), "length": 3, "policy": policy, "seed": 42}
    single = {"steps": 4, "candidates": 300, "start": "zeros", "anneal": False, "clip": None, "metric": "cosine"}
    need = Computed("text", {**common, "prompts": 1000, **(single if policy == "single-commit" else {})})
    shelf = Shelf(tmp_path)
    assert shelf.find(need) is None
    compute(need, shelf, None, "cpu")
    found = shelf.find(need)
    assert found is not None
    assert found["em"] == found["similarity"] == 1, "every token of the vocabulary is tried, or random weights are easy"
    assert 10 < found["prompts"] < 1000
    assert len(found["observed"]["right"]) == found["prompts"]
    assert found["seconds_per_token"]["total"] > 0
    assert shelf.find(Computed("text", {**need.settings, "seed": 43})) is None
