"""Attacks on a run of any kind: on images, vectors or text."""

from __future__ import annotations

from typing import Any

from sweetspot.errors import UserError
from sweetspot.evaluations.chosen import attack_keys, check_asked
from sweetspot.evaluations.images import evaluate_images, images_attacked, images_scored
from sweetspot.evaluations.text import evaluate_text, text_attacked
from sweetspot.runs.attack_config import AttackConfig
from sweetspot.runs.folder import Run


def evaluate(
    run: Run, config: AttackConfig, data_root: str | None = None, dataset: str | None = None
) -> dict[str, Any]:
    """Attack one run; its results, with `attacks` and `worst_case` filled. A finished attack is not repeated.

    Args:
        run: the run, held by the caller.
        config: which attacks, on how many inputs, how hard.
        data_root: where the run's dataset lies, if not where it was.
        dataset: what to call the run's dataset here, for a file that was moved.
    """
    check_attacks_fit(str(run.folder), is_text(run), config)
    return evaluate_text(run, config, dataset) if is_text(run) else evaluate_images(run, config, data_root, dataset)


def found_done(run: Run, config: AttackConfig) -> dict[str, Any] | None:
    """The results of a run that has been through everything that is asked for, scored and drawn; else None.

    Nothing is written and no lock is taken, so that it works on a folder that can only be read.
    """
    if not attacked_already(run, config):
        return None
    return run.read_results() if is_text(run) or images_scored(run, config) else None


def is_text(run: Run) -> bool:
    """Whether a finished run is one on text."""
    return "tokenizer" in run.read_results()["data"]


def check_attacks_fit(what: str, on_text: bool, config: AttackConfig) -> None:
    """Refuse attacks on text for a run on images, and the other way round."""
    check_asked(config)
    asked = " ".join(config.attacks)
    if on_text and not config.text_policies():
        raise UserError(f"{what} is a run on text, which --attacks text recovers; got --attacks {asked}")
    if on_text and (config.draws > 1 or config.queries != [1] or config.attacker_data != ["all"]):
        raise UserError(f"{what} is a run on text: --draws, --queries and --attacker-data are for images and vectors")
    if not on_text and not attack_keys(config):
        raise UserError(f"{what} is a run on images or vectors, not on text; got --attacks {asked}")


def attacked_already(run: Run, config: AttackConfig) -> bool:
    """Whether a finished run has been through everything that is asked for."""
    on_text = is_text(run)
    if config.attacks == ["none"]:
        return True
    check_attacks_fit(str(run.folder), on_text, config)
    try:
        return text_attacked(run, config) if on_text else images_attacked(run, config)
    except UserError:  # which is a ValueError, and says what is wrong
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{run.results} lacks what this version writes ({error}); remove it, or --force") from error
