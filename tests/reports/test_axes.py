"""In which keys cells differ, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping

from sweetspot.reports.axes import axes_of, keys_of
from tests.reports.fabricated import zoo_defence


def axes(*defences: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    return {axis.label: axis.texts for axis in axes_of([keys_of(each, "pool2") for each in defences])}


def test_only_what_differs_is_an_axis_with_its_values_from_weak_to_strong() -> None:
    grid = [zoo_defence("mixcon", lam, beta=beta) for lam in (10.0, 1.0) for beta in (1e-4, 1e-2)]
    assert axes(*grid) == {"λ": ("1", "10"), "β": ("0.01", "1e-4")}
    assert axes(grid[0]) == {}


def test_beta_is_no_axis_of_a_penalty_that_has_none() -> None:
    old = {"name": "unicon", "lambda": 1.0, "beta": 1e-4}  # as MixCon's options once were recorded for all
    assert axes(old, zoo_defence("unicon", 2.0)) == {"λ": ("1", "2")}


def test_unit_and_ramp_are_axes_where_they_differ() -> None:
    noise = [zoo_defence(release=["gaussian"], sigma=sigma) for sigma in (0.5, 1.0)]
    assert axes(*noise) == {"σ": ("0.5", "1")}
    raw = zoo_defence(release=["gaussian"], sigma=1.0, unit="raw")
    assert axes(noise[1], raw) == {"unit": ("raw", "rms")}


def test_chains_have_the_axes_of_all_their_releases() -> None:
    chains = [
        zoo_defence(release=["clip", "gaussian"], clip=clip, sigma=sigma) for clip in (1.0, 2.0) for sigma in (0.5, 1.0)
    ]
    assert axes(*chains) == {"C": ("2", "1"), "σ": ("0.5", "1")}
    twice = [{"name": "gaussian", "sigma": sigma} for sigma in (0.5, 1.0)]
    assert set(keys_of({**zoo_defence(), "release": twice}, "pool2")) >= {"sigma", "sigma of gaussian"}


def test_words_are_an_axis_too_in_their_natural_order() -> None:
    squeezed = [zoo_defence(bottleneck=each, release=["quantise"]) for each in ("120-16", None, "8", "16")]
    assert axes(*squeezed) == {"bottleneck": ("none", "8", "16", "120-16")}


def test_the_options_of_a_users_own_are_axes_without_running_its_file() -> None:
    own = [{"name": "gone.py:Shuffle", "lambda": 1.0, "beta": 0.0, "strength": each} for each in (1, 3)]
    assert axes(*own) == {"strength": ("1", "3")}
