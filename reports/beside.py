"""What stands beside a run's figures: re-identification, its certificate, the client's share, the server's gain."""

from __future__ import annotations

from typing import Any

from sweetspot.metrics.summary import GALLERY
from sweetspot.reports.leak import leak_of
from sweetspot.reports.records import Record

NO_CERTIFICATE = "none: nothing random leaves the client"
OTHER_NOISE = "none: what leaves the client is random, and not by Gaussian noise, which certificates are for"
LITTLE = 0.005  # of accuracy: a server that adds no more is hardly needed


def identity_of(results: Record) -> tuple[float, str] | None:
    """How much of an input's identity among others of its class leaks, and by what it was measured; None: by nothing.

    Example:
        >>> identity_of({"certificate": {"reid_bayes": 0.505, "gallery": 100}, "attacks": {}})
        (0.5, 'the best attack there can be among 100 inputs of a class')
    """
    found = results.get("certificate")
    if isinstance(found, dict) and found.get("reid_bayes") is not None and (found.get("gallery") or 0) > 1:
        blind = found.get("blind") or 1 / found["gallery"]
        leak = round((found["reid_bayes"] - blind) / (1 - blind), 6)
        return leak, f"the best attack there can be among {found['gallery']} inputs of a class"
    record = results["attacks"].get(GALLERY, {})
    figure = record.get(leak_of("reid")) or (record.get("leak") or {}).get("reid")
    return (figure["mean"], f"{GALLERY}, the nearest of a class") if isinstance(figure, dict) else None


def certificate_words(results: Record) -> str:
    """A run's certificate in words; empty where the run is older than certificates."""
    found = results.get("certificate")
    if not isinstance(found, dict):
        words = OTHER_NOISE if results.get("random_release") else NO_CERTIFICATE
        return words if "certificate" in results else ""
    parts = [f"at most {found['nats']:.2f} nats beyond the label"] if found.get("nats") is not None else []
    if found.get("reid_bound") is not None:
        best = f", the best attack {found['reid_bayes']:.2f}" if found.get("reid_bayes") is not None else ""
        low, high = found.get("reid_interval") or (None, None)
        best += f" ({low:.2f}–{high:.2f})" if best and low is not None and high is not None else ""
        parts.append(f"re-identified among {found.get('gallery')} of a class at most {found['reid_bound']:.2f}{best}")
    if (found.get("queries") or 1) > 1:
        parts.append(f"for {found['queries']} queries")
    if found.get("holds") is False:
        parts.append("an attack was measured above the bound: do not trust it")
    return "; ".join(parts)


def share_words(results: Record) -> str:
    """The client's share of the work in words; empty where it was not counted."""
    cost, parts = results.get("cost") or {}, []
    for name, said in (("macs", "multiply-adds"), ("parameters", "parameters")):
        if (share := client_share(cost, name)) is not None:
            parts.append(f"{100 * share:.0f} % of {said}")
    return ", ".join(parts)


def client_share(cost: dict[str, Any], part: str) -> float | None:
    """The client's part of all multiply-adds, or of all parameters; None where they were not counted.

    Example:
        >>> client_share({"client_macs": 30, "server_macs": 10}, "macs")
        0.75
    """
    client, server = cost.get(f"client_{part}"), cost.get(f"server_{part}")
    return client / (client + server) if client is not None and server is not None and client + server else None


def gain_words(results: Record) -> str:
    """What the server adds to a linear classifier on what is released, in words; empty where it was not measured."""
    gain = (results.get("cost") or {}).get("server_gain")
    if gain is None:
        return ""
    hardly = ": the client could classify by itself" if gain < LITTLE else ""
    return f"{100 * gain:.2f} points of accuracy over a linear classifier on what is released{hardly}"


def beside(results: Record) -> list[tuple[str, str]]:
    """Certificate, client share and server gain of a run by name; what is not known is left out."""
    said = [
        ("Certificate", certificate_words(results)),
        ("Client share", share_words(results)),
        ("Server gain", gain_words(results)),
    ]
    return [(name, words) for name, words in said if words]


def warnings_of(results: Record) -> list[str]:
    """What a run's evaluation warns of."""
    found: Any = results.get("warnings")
    return [str(each) for each in found] if isinstance(found, list) else []


def suite_of(results: Record) -> str:
    """The suite of attacks that a run went through, with its version; empty where it was no suite.

    Example:
        >>> suite_of({"suite": {"name": "standard", "version": 1}}), suite_of({})
        ('standard 1', '')
    """
    found = results.get("suite")
    return f"{found.get('name')} {found.get('version')}" if isinstance(found, dict) else ""
