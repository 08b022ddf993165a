"""The schema of results.json: what is there must be of its kind, and what is said of every run must be there.

Of attacks, runs of older versions lack some, and are read all the same: only what is wrong is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Check = Callable[[Any], bool]
# the metrics by their names, and whether a higher one is worse for the client
HIGHER_IS_WORSE = {
    "ssim": True,
    "psim": True,
    "psnr": True,
    "mcs": True,
    "recognised": True,
    "em": True,
    "token_accuracy": True,
    "similarity": True,
    "reid": True,
    "mse": False,
    "rank": False,
}


LARGEST = 1e100  # of a number that means something


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be drawn: not infinite, nor so large that its square would be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 0 that a tensor can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def list_of(check: Check) -> Check:
    """Whether a value is a list of such values."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def is_figure(value: Any) -> bool:
    """Whether a value is the summary of a metric."""
    return isinstance(value, dict) and all(is_number(value.get(part)) for part in ("mean", "std", "worst"))


def is_leak(value: Any) -> bool:
    """Whether a value holds the leak by metric."""
    return isinstance(value, dict) and all(map(is_figure, value.values()))


def is_scores(value: Any) -> bool:
    """Whether a value holds each input's own figures by metric."""
    return isinstance(value, dict) and all(map(list_of(is_number), value.values()))


def is_condition(value: Any) -> bool:
    """Whether a value is what came back of images or vectors under a condition: summaries and scores by metric."""
    if not isinstance(value, dict) or not is_scores(value.get("scores")):
        return False
    inputs: Any = value.get("inputs")
    if not list_of(is_count)(inputs) or any(len(each) != len(inputs) for each in value["scores"].values()):
        return False
    told = is_mapping(value.get("settings")) and is_count(value.get("samples")) and is_flag(value.get("stopped"))
    figures = all(is_figure(value.get(name)) for name in value["scores"])
    return told and figures and is_leak(value.get("leak", {})) and is_scores(value.get("leaks", {}))


def is_certificate(value: Any) -> bool:
    """Whether a value is a certificate, or null where nothing random leaves the client."""
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    needed, interval = ("nats", "reid_bound", "reid_bayes", "gallery", "queries"), value.get("reid_interval", [])
    return all(is_number(value.get(name)) for name in needed) and list_of(is_number)(interval)


def is_channel(value: Any) -> bool:
    """Whether a value is what is left of text behind a channel: its perplexity, and summaries of its metrics."""
    if not isinstance(value, dict) or not is_detector(value.get("detector", {})):
        return False
    if not all(is_number(value.get(name)) for name in ("perplexity", "accuracy", "verified", "seconds_per_token")):
        return False
    return all(is_figure(value.get(name)) for name in ("em", "token_accuracy", "similarity"))


def is_known_number(value: Any) -> bool:
    """Whether a value is a number, or null where there was none to be had."""
    return value is None or is_number(value)


def is_margin(value: Any) -> bool:
    """Whether a value is a one-step margin: its figures, and the same relative to the states' size."""
    if not isinstance(value, dict) or not is_mapping(value.get("relative", {})):
        return False
    figures = [each.get(name) for each in (value, value.get("relative", {})) for name in ("min", "median")]
    return all(map(is_number, figures))


def is_observed(value: Any) -> bool:
    """Whether a value is what was observed of a recovery: its losses by prompt and position, and its detector."""
    if not isinstance(value, dict) or not is_mapping(value.get("failures") or {}):
        return False
    losses = value.get("cumulative_loss") or []
    return list_of(list_of(is_known_number))(losses) and is_detector(value.get("detector") or {})


def is_detector(value: Any) -> bool:
    """Whether a value is what the failure detector says: which prompts it flags, how well its doubts are calibrated."""
    if not is_mapping(value) or not isinstance(value.get("flagged") or [], list):
        return False
    return all(is_mapping(value.get(name) or {}) for name in ("calibration", "calibration_by_chance"))


def is_word_by_word(value: Any) -> bool:
    """Whether a value is a recovered prompt: the true text, and for each token what it is, verified and right."""
    if not isinstance(value, dict) or not isinstance(value.get("truth", ""), str):
        return False
    tokens, marks = value.get("tokens", []), [value.get(name, []) for name in ("verified", "right")]
    return list_of(is_text)(tokens) and all(isinstance(each, list) for each in marks)


def is_text_or_none(value: Any) -> bool:
    """Whether a value is a text, or null."""
    return value is None or is_text(value)


def is_release(value: Any) -> bool:
    """Whether a value is a release: its name and its options."""
    return isinstance(value, dict) and is_text(value.get("name"))


SECTIONS: dict[str, dict[str, Check]] = {
    "data": {
        "name": is_text, "source": is_text, "train": is_count, "test": is_count, "validation": is_count,
        "shape": list_of(is_count), "classes": is_count, "identity": is_text, "class_names": list_of(is_text),
        "split": is_text, "skipped": is_count,
    },
    "model": {"name": is_text, "cut": is_text, "head": is_text},
    "defence": {
        "name": is_text, "lambda": is_number, "beta": is_number, "bottleneck": is_text_or_none,
        "release": list_of(is_release), "weights": is_text,
    },
    "utility": {"accuracy": is_number, "perplexity": is_number},
    "separability": {"mean": is_number},
    "config": {
        "seed": is_count, "epochs": is_count, "batch_size": is_count, "lr": is_number, "trainer": is_mapping,
        "dataset": is_text, "validation_fraction": is_number, "limit_train": is_count, "limit_test": is_count,
        "image_size": is_count, "augment": list_of(is_text),
        "length": is_count, "vocabulary": is_count,
    },
    "environment": {"versions": is_mapping, "device": is_text, "seconds": is_number},
}  # fmt: skip
OF_AN_ATTACK: dict[str, Check] = {
    "settings": is_mapping, "samples": is_count, "available": is_count, "seconds": is_number, "residual": is_number,
    "stopped": is_flag, "format": is_count, "inputs": list_of(is_count), "scores": is_mapping,
    "recovered": list_of(is_word_by_word), "observed": is_observed, "channels": is_mapping, "trace": is_mapping,
    "environment": is_mapping, "margin": is_margin, "verified": is_number, "seconds_per_token": is_number,
    "draws": is_mapping, "queries": is_mapping, "attacker_data": is_mapping, "leak": is_leak, "leaks": is_scores,
    "others": list_of(is_scores), "not_under": list_of(is_text), "draws_asked": is_count,
}  # fmt: skip
BESIDE_ATTACKS: dict[str, Check] = {  # what newer runs say beside their attacks
    "certificate": is_certificate, "warnings": list_of(is_text), "suite": is_mapping, "cost": is_mapping,
    "does_not_fit": list_of(is_text), "random_release": is_flag, "needs_data": list_of(is_text), "audit": is_mapping,
}  # fmt: skip
OF_COST: dict[str, Check] = dict.fromkeys(
    ("client_macs", "server_macs", "client_parameters", "server_parameters", "server_gain"), is_number
)
OF_AUDIT: dict[str, Check] = {"attacker": is_text, "shared_inputs": is_count, "weights": is_text}
OF_SETTINGS: dict[str, Check] = {"budget": is_text, "epochs": is_count, "networks": list_of(is_text)}
NEEDED = {  # what is said of every run
    "data": ("name", "source", "train", "test", "shape"),
    "model": ("name", "cut"),
    "defence": ("name", "lambda", "beta"),
    "utility": ("accuracy",),
    "separability": ("mean",),
    "config": ("seed", "epochs", "batch_size", "lr", "trainer"),
    "environment": ("versions", "device", "seconds"),
}
OF_AN_AUDIT = {"config": ("seed",)}  # which was not trained here


def wrong_in(results: Any) -> str:
    """The first thing in a run's results that is not of its kind, such as `attacks.whitebox/paper.samples`; or ''."""
    if not isinstance(results, dict):
        return "everything"
    missing = [section for section in (*SECTIONS, "name", "attacks", "worst_case") if section not in results]
    if missing:
        return missing[0]
    return next(every_wrong(results), "")


def every_wrong(results: dict[str, Any]) -> Iterator[str]:
    """All that is wrong, in order."""
    if not is_text(results["name"]):
        yield "name"
    for section in (*SECTIONS, "attacks", "worst_case"):
        if not is_mapping(results[section]):
            yield section
            return
    for section, checks in SECTIONS.items():
        yield from (f"{section}.{name}" for name in wrong_values(results[section], checks))
    yield from wrong_values(results, BESIDE_ATTACKS)
    if is_mapping(results.get("cost")):
        yield from (f"cost.{name}" for name in wrong_values(results["cost"], OF_COST))
    if is_mapping(results.get("audit")):
        yield from (f"audit.{name}" for name in wrong_values(results["audit"], OF_AUDIT))
    on_text = "tokenizer" in results["data"]
    for key, record in results["attacks"].items():
        tests = None if on_text else results["data"].get("test")
        yield from (f"attacks.{key}{part}" for part in wrong_in_attack(record, tests))
    yield from (f"worst_case.{part}" for part in wrong_in_worst_case(results))


def wrong_values(held: dict[str, Any], checks: dict[str, Check]) -> Iterator[str]:
    """The names of values that are there and not of their kind."""
    yield from (name for name, check in checks.items() if name in held and not check(held[name]))


def wrong_in_attack(record: Any, tests: int | None) -> Iterator[str]:
    """What is wrong with an attack, each part with a dot before it.

    Args:
        record: what results.json says about it.
        tests: how many test inputs there are, where its inputs are among them.
    """
    if not is_mapping(record):
        yield ""
        return
    wrong = [*wrong_values(record, OF_AN_ATTACK)]
    wrong += [name for name in HIGHER_IS_WORSE.keys() & record.keys() if not is_figure(record[name])]
    yield from (f".{name}" for name in wrong)
    if wrong:
        return
    yield from (f".settings.{name}" for name in wrong_values(record.get("settings") or {}, OF_SETTINGS))
    inputs = record.get("inputs") or []
    if len(set(inputs)) != len(inputs) or (tests is not None and any(index >= tests for index in inputs)):
        yield ".inputs"
    for name, scores in (record.get("scores") or {}).items():
        if not list_of(is_number)(scores) or (inputs and len(scores) != len(inputs)):
            yield f".scores.{name}"
    if tests is not None:
        for kind in ("channels", "queries", "attacker_data"):
            held = (record.get(kind) or {}).items()
            yield from (f".{kind}.{name}" for name, each in held if not is_condition(each))
        return
    for name, behind in (record.get("channels") or {}).items():
        if not is_channel(behind):
            yield f".channels.{name}"
            continue
        as_of_attacks = ("recovered", "format", "inputs", "leak", "leaks")
        kept = {"noise": is_number} | {name: OF_AN_ATTACK[name] for name in as_of_attacks}
        yield from (f".channels.{name}.{part}" for part in wrong_values(behind, kept))
        scores = behind.get("scores") or {}
        if not is_mapping(scores) or not all(map(list_of(is_number), scores.values())):
            yield f".channels.{name}.scores"


def wrong_in_worst_case(results: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the worst case over attacks; without any it is empty."""
    worst, names = results["worst_case"], results["worst_case"].get("attacks", [])
    if worst and not is_count(worst.get("samples")):
        yield "samples"
    if not list_of(is_text)(names) or any(name not in results["attacks"] for name in names):
        yield "attacks"
    yield from (name for name in HIGHER_IS_WORSE if name in worst and not is_figure(worst[name]))
    yield from wrong_values(worst, {"inputs": list_of(is_count), "leak": is_leak, "leaks": is_scores})


def complete(attacks: dict[str, Any], formats: dict[str, int], *more: str) -> dict[str, Any]:
    """The attacks of today's format that say all that is needed to go on from them; the others are to be done again.

    Args:
        attacks: the records by name.
        formats: today's format of each.
        more: what is needed besides what every attack says.
    """
    needed = ("settings", "samples", "inputs", "scores", *more)
    return {
        key: record
        for key, record in attacks.items()
        if record.get("format") == formats[key] and all(record.get(name) is not None for name in needed)
    }


def missing_in(results: dict[str, Any]) -> str:
    """The first thing that is said of every run and that these results lack; empty: they have it all."""
    for section, names in NEEDED.items():
        for name in OF_AN_AUDIT.get(section, names) if "audit" in results else names:
            if results[section].get(name) is None:
                return f"{section}.{name}"
    if "tokenizer" in results["data"] and results["utility"].get("perplexity") is None:
        return "utility.perplexity"
    return ""
