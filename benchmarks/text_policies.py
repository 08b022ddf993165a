"""What each policy recovers, and at what cost: same model, same prompts, one run; with the paper's figures as plots.

    python benchmarks/text_policies.py --model checkpoints/pydoc-gpt2-tiny-vanilla-… --prompts 100 --out figures
    python benchmarks/text_policies.py --model smollm2 --layer 15 --prompts 10 --text-loss scaled --out figures
    python benchmarks/text_policies.py --model RUN --ablations --prompts 20 --out figures
    python benchmarks/text_policies.py --model RUN --ablations candidates --steps 100 --out figures

Rows are `hybrid`, `sipit`, and single-commit's operating points `fast`, `baseline`, `high-accuracy`. What is finished
is kept in OUT/policies-….json: the same command goes on from there. Ends with one `ratio` line a row against `sipit`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
from torch import Tensor

from sweetspot.attacks.text.hybrid import learned
from sweetspot.attacks.text.inverter import Inverter
from sweetspot.attacks.text.observations import observed
from sweetspot.attacks.text.probe import state_spreads
from sweetspot.attacks.text.proxy import InnerLoop
from sweetspot.attacks.text.recovery import Recovery
from sweetspot.attacks.text.single_commit import OPERATING_POINTS, SingleCommit
from sweetspot.datamodules.text import first_tokens, load_text
from sweetspot.datamodules.tokens import TextTokenizer
from sweetspot.evaluations.leak import language_model_of, own_text
from sweetspot.evaluations.leak_config import LeakConfig
from sweetspot.evaluations.text import inverter_of, whole
from sweetspot.files import replacing
from sweetspot.lightning_modules.networks.language import SplitLanguageModel
from sweetspot.metrics.text import exact_match, similarity, token_accuracy
from sweetspot.reports import text_figures as figures
from sweetspot.runs.choices import TEXT_LOSSES
from sweetspot.runs.command_line import run_command
from sweetspot.runs.environment import environment, pick_device

ROWS = ("hybrid", "sipit", *OPERATING_POINTS)
BASE: dict[str, Any] = {"candidates": 20}  # few candidates: what the descent itself reaches shows
ABLATIONS: dict[str, list[Any]] = {
    "lr": [0.003, 0.01, 0.03, 0.1, 0.3],
    "steps": [50, 100, 300, 600, 1500],
    "candidates": [1, 5, 20, 100, 400],
    "loss_threshold": [1e-2, 1e-3, 1e-5, 1e-7],
    "anneal": [True, False],
    "clip": [None, 0.1, 1.0],
    "weight_decay": [0.0, 0.01, 0.1, 1.0],
    "start": ["zeros", "mean", "random", "gaussian"],
    "metric": ["l2", "cosine", "dot"],
}


@dataclasses.dataclass
class Setting:
    """The model, the prompts' tokens with their leaked states (B, T, d), and where results go."""

    model: SplitLanguageModel
    tokenizer: TextTokenizer
    truth: list[list[int]]
    states: Tensor
    start: str
    steps: int
    cache: Path
    text_loss: str
    observe: bool

    def row(self, name: str) -> Inverter:
        """The inverter of a row."""
        if name in OPERATING_POINTS and self.text_loss == "scaled":
            spread = state_spreads(self.model, own_text(self.tokenizer), seed=0)
            return inverter_of("single-commit", self.model, operating_point=name, spread=spread, observe=self.observe)
        if name in OPERATING_POINTS:
            return SingleCommit(self.model, **OPERATING_POINTS[name], start=self.start, observe=self.observe)
        options = learned(self.model, own_text(self.tokenizer), self.cache) if name == "hybrid" else {}
        return inverter_of(name, self.model, **options)

    def ablated(self, parameter: str, value: Any) -> Inverter:
        """Single commit with one parameter changed."""
        chosen = {**BASE, "steps": self.steps, "start": self.start, "metric": "l2", parameter: value}
        outer = {name: chosen.pop(name) for name in ("candidates", "start", "metric")}
        return SingleCommit(self.model, InnerLoop(**chosen), **outer)

    def measured(self, inverter: Inverter) -> dict[str, Any]:
        """What a policy recovers of the prompts, as plain data."""
        recovery: Recovery = whole(inverter.invert(self.states, self.truth), self.truth)
        ours, true = ([self.tokenizer.decode(ids) for ids in each] for each in (recovery.tokens, self.truth))
        return {
            "em": exact_match(recovery.tokens, self.truth).mean().item(),
            "token_accuracy": token_accuracy(recovery.tokens, self.truth).mean().item(),
            "similarity": similarity(ours, true).mean().item(),
            "verified": recovery.verified_share,
            "seconds_per_token": recovery.seconds_per_token,
            "steps": sum(map(sum, recovery.steps)) / max(sum(map(len, recovery.steps)), 1),
            "observed": observed(recovery, self.truth, self.tokenizer.token),
        }


def setting_of(chosen: argparse.Namespace) -> Setting:
    """The model and the held-out prompts that a command line asks for."""
    device = pick_device(chosen.device)
    model, tokenizer, _ = language_model_of(LeakConfig(model=chosen.model, layer=chosen.layer))
    model = model.to(device).eval().requires_grad_(False)
    prompts = first_tokens(load_text(chosen.text).test, tokenizer, chosen.length)[: chosen.prompts].to(device)
    with torch.no_grad():
        states = model.encoder(prompts)
    return Setting(
        model=model,
        tokenizer=tokenizer,
        truth=prompts.tolist(),
        states=states,
        start=chosen.start,
        steps=chosen.steps,
        cache=Path(chosen.out),
        text_loss=chosen.text_loss,
        observe=chosen.observe,
    )


def kept(path: Path, name: str, make: Any) -> dict[str, Any]:
    """A row of a .json file, made and entered where it is missing."""
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if name not in rows:
        rows[name] = make()
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    row: dict[str, Any] = rows[name]
    return row


def line(name: str, row: dict[str, Any]) -> str:
    """A row in words."""
    spent = row["seconds_per_token"]
    parts = ", ".join(f"{part} {seconds:.4f}" for part, seconds in spent.items() if part != "total")
    return (
        f"{name:28s} EM {100 * row['em']:5.1f} %  tokens {100 * row['token_accuracy']:5.1f} %  similarity "
        f"{row['similarity']:.3f}  verified {100 * row['verified']:5.1f} %  steps {row['steps']:6.0f}  "
        f"{spent['total']:.4f} s/token ({parts})"
    )


def compare(setting: Setting, names: list[str], path: Path) -> None:
    """Each policy's row, and the figures."""
    rows = {}
    for name in names:
        rows[name] = kept(path, name, lambda name=name: setting.measured(setting.row(name)))
        print(line(name, rows[name]), flush=True)
        figures.observations_figure(rows[name]["observed"], path.with_name(f"{path.stem}-{name}.png"))
    cost = [{"name": name, **row, "seconds_per_token": row["seconds_per_token"]["total"]} for name, row in rows.items()]
    figures.accuracy_figure(cost, path.with_name(f"{path.stem}-cost.png"))
    spent = {name: row["seconds_per_token"] for name, row in rows.items()}
    figures.time_figure(spent, path.with_name(f"{path.stem}-time.png"))
    if "sipit" in rows:
        theirs = spent["sipit"]["total"]
        for name in rows:
            ours = spent[name]["total"]
            print(f"ratio {name} {theirs / ours:.2f} (ours {ours:.4f} s/token, theirs {theirs:.4f} s/token)")


def ablate(setting: Setting, parameters: list[str], path: Path) -> None:
    """One parameter at a time, and the figure."""
    data: dict[str, list[dict[str, Any]]] = {}
    for parameter in parameters:
        data[parameter] = []
        for value in ABLATIONS[parameter]:
            name = "base" if is_base(setting, parameter, value) else f"{parameter} {value}"
            row = kept(path, name, lambda: setting.measured(setting.ablated(parameter, value)))  # noqa: B023
            print(line(f"{parameter} {value}", row), flush=True)
            data[parameter].append({"value": value, **{key: row[key] for key in ("em", "similarity")}})
    figures.ablations_figure(data, path.with_suffix(".png"))


def is_base(setting: Setting, parameter: str, value: Any) -> bool:
    """Whether this is what the base has: the point at which all parameters' lines meet is measured once."""
    given = {**dataclasses.asdict(InnerLoop(steps=setting.steps)), "start": setting.start, "metric": "l2", **BASE}
    return bool(given[parameter] == value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a text run, smollm2, gpt2, a model's folder")
    parser.add_argument("--layer", default=None, help="blocks that the client runs, last or final")
    parser.add_argument("--text", default="pydoc", help="whose held-out documents are attacked")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--start", default="zeros", help="of single-commit's proxies: zeros, mean, random, gaussian")
    parser.add_argument(
        "--text-loss",
        choices=TEXT_LOSSES,
        default="paper",
        help="of single-commit's rows; scaled: each coordinate by its spread, and proxies start at the mean embedding",
    )
    parser.add_argument("--steps", type=int, default=600, help="of the ablations: fewer make the task harder")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--ablations", nargs="*", choices=list(ABLATIONS), default=None, help="instead of the rows")
    parser.add_argument(
        "--no-observe",
        dest="observe",
        action="store_false",
        help="single-commit's rows without loss curves and rank trajectories, which take a fifth of the time where the "
        "vocabulary is large",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="figures", help="folder of results and figures")
    chosen = parser.parse_args()

    def command() -> None:
        Path(chosen.out).mkdir(parents=True, exist_ok=True)
        setting = setting_of(chosen)
        about = (
            f"{Path(chosen.model).name}-{setting.model.cut_layer}-{len(setting.truth)}x{chosen.length}-"
            f"{chosen.start if chosen.text_loss == 'paper' else chosen.text_loss}"
        )
        made_with = environment(setting.states.device, 0, 0.0)
        print(f"{about}, {chosen.text}, {made_with['device']}", flush=True)
        if chosen.ablations is None:
            compare(setting, chosen.rows, Path(chosen.out) / f"policies-{about}.json")
        else:
            path = Path(chosen.out) / f"ablations-{about}-{chosen.steps}.json"
            ablate(setting, chosen.ablations or list(ABLATIONS), path)

    sys.exit(run_command(command))


if __name__ == "__main__":
    main()
