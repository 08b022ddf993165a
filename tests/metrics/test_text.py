"""Scores of recovered texts: what EM, token accuracy and similarity count, and what they refuse."""

from __future__ import annotations

import pytest

from sweetspot.errors import UserError
from sweetspot.metrics.text import exact_match, similarity, token_accuracy


def test_exact_match_needs_every_position_and_the_length() -> None:
    recovered = [[1, 2, 3], [1, 2, 4], [1, 2], [1, 2, 3, 4]]
    assert exact_match(recovered, [[1, 2, 3]] * 4).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_token_accuracy_counts_what_is_missing_and_what_is_too_many_as_wrong() -> None:
    scores = token_accuracy([[1, 2, 3], [9, 2, 3], [1, 2], [1, 2, 3, 4]], [[1, 2, 3]] * 4)
    assert scores.tolist() == pytest.approx([1.0, 2 / 3, 2 / 3, 3 / 4])


def test_similarity_is_the_ratio_of_matching_characters() -> None:
    assert similarity(["the cat", "", "abc"], ["the cat", "abc", "xyz"]).tolist() == [1.0, 0.0, 0.0]


def test_similarity_of_long_texts_counts_frequent_characters_too() -> None:
    assert similarity(["ab" * 200], ["ab" * 199 + "ac"]).item() > 0.99


@pytest.mark.parametrize("score", [exact_match, token_accuracy, similarity])
def test_lists_of_different_lengths_are_refused(score: object) -> None:
    with pytest.raises(UserError, match="1 recovered prompts for 2 originals"):
        score(["a"], ["a", "b"])  # type: ignore[operator]
