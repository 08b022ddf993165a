"""How sure the attacker is of each token, on the page and on the terminal."""

from __future__ import annotations

from typing import Any

from sweetspot.reports.text_panels import prompt_of
from sweetspot.reports.text_samples import marked

PROMPT: dict[str, Any] = {
    "truth": "The cat sat",
    "tokens": ["The", " cat", " sit"],
    "verified": [False] * 3,
    "right": [True, True, False],
    "probability": [0.99, 0.3, None],
    "confidence": 0.25,
}


def test_tokens_on_the_page_have_their_probability_where_it_is_known() -> None:
    prompt = prompt_of(PROMPT)
    assert prompt.tokens == (("The", "right", 0.99), (" cat", "right", 0.3), (" sit", "wrong", None))
    assert prompt.confidence == 0.25
    exact = prompt_of({name: value for name, value in PROMPT.items() if name not in ("probability", "confidence")})
    assert [probability for _, _, probability in exact.tokens] == [None] * 3
    assert exact.confidence is None


def test_improbable_tokens_are_dim_on_the_terminal_and_wrong_ones_are_marked_all_the_same() -> None:
    text = marked({**PROMPT, "probability": [0.99, 0.3, 0.4]})
    assert text.plain == "The cat⟨ sit⟩"
    styles = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert styles == {" cat": "dim", "⟨ sit⟩": "dim red"}
