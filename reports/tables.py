"""Runs as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sweetspot.lightning_modules.networks.splitting import Place
from sweetspot.metrics.summary import FLOOR, FLOORS, GALLERY, mean_std_worst
from sweetspot.progress import short_duration
from sweetspot.reports.beside import beside, suite_of, warnings_of
from sweetspot.reports.leak import is_leak, leak_of, with_leaks
from sweetspot.reports.text_samples import CLASSES, in_classes, print_samples

MEASURED_AT = 10_000  # columns of a console on which every table has the width that it asks for
WORST = "worst case"  # the row of the headline
BEFORE_TEXTS = 48  # columns of a table of recovered texts that its other cells and the space between all may take


def short(number: float) -> str:
    """A number in as few characters as it takes.

    Example:
        >>> short(1.0), short(0.01), short(1e-4), short(2.5e-8)
        ('1', '0.01', '1e-4', '2.5e-8')
    """
    mantissa, exponent = f"{number:e}".split("e")
    return min(f"{number:g}", f"{float(mantissa):g}e{int(exponent)}", key=len)


def counted(count: int, noun: str) -> str:
    """So many of them.

    Example:
        >>> counted(1, "epoch"), counted(20, "epoch")
        ('1 epoch', '20 epochs')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def penalty_title(name: str) -> str:
    """A penalty's name as the papers write it; of a user's own the class.

    Example:
        >>> penalty_title("mixcon"), penalty_title("nopeek"), penalty_title("my/defences.py:Shuffle")
        ('MixCon', 'nopeek', 'Shuffle')
    """
    return {"mixcon": "MixCon", "unicon": "UniCon"}.get(name, name.rpartition(":")[2])


def describe_defence(defence: dict[str, Any]) -> str:
    """A run's defence as the papers write it: `MixCon(1, 1e-4)` is (λ, β), `+ gaussian(0.5)` what is released.

    Example:
        >>> release = [{"name": "gaussian", "sigma": 1.0, "unit": "raw", "ramp": 0.0}]
        >>> describe_defence({"name": "vib", "lambda": 0.01, "beta": 0, "bottleneck": "120-16", "release": release})
        'vib(0.01) + bottleneck 120-16 + gaussian(1)'
    """
    parts = [f"as given ({defence['weights']})"] if defence.get("weights") else []
    if defence["name"] == "mixcon":
        parts.append(f"MixCon({short(defence['lambda'])}, {short(defence['beta'])})")
    elif defence["name"] != "none":
        parts.append(f"{penalty_title(defence['name'])}({short(defence['lambda'])})")
    if defence.get("bottleneck"):
        parts.append(f"bottleneck {defence['bottleneck']}")
    for each in defence.get("release") or []:
        values = [value for name, value in each.items() if name not in ("name", "unit", "ramp")]
        said = ", ".join(short(value) if isinstance(value, float) else str(value) for value in values)
        parts.append(each["name"].rpartition(":")[2] + (f"({said})" if said else ""))
    return " + ".join(parts) or "Vanilla"


def print_whole(table: Table, console: Console) -> None:
    """Print a table without cutting anything off: where the console is too narrow for it, a row becomes a few lines."""
    if fits(table, console):
        console.print(table)
        return
    if table.title:
        console.print(table.title, style="bold", highlight=False)
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        named = [f"{column.header} {cell}" for column, cell in zip(table.columns[1:], cells, strict=True) if cell]
        for line in [str(name), *(f"    {line}" for line in packed(named, console.width - 4))]:
            console.print(line.replace("\n", " "), highlight=False, soft_wrap=True)
    if table.caption:
        console.print(table.caption, style="dim italic", highlight=False)


def packed(parts: Sequence[str], width: int) -> list[str]:
    """Parts side by side in lines of this width, none of them broken.

    Example:
        >>> packed(["SSIM 0.1", "PSIM 0.2", "rank 3"], 18)
        ['SSIM 0.1  PSIM 0.2', 'rank 3']
    """
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return lines


def results_table(results: Sequence[dict[str, Any]], console: Console | None = None) -> None:
    """Print one row a run: what it is, what it is good for, how far apart, on average, its representations lie."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("data", "network, cut", "defence", "accuracy", "distance", "time"):
        words = column in ("data", "network, cut", "defence")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for result in results:
        table.add_row(
            result["data"]["name"],
            f"{result['model']['name']}, {result['model']['cut']}",
            describe_defence(result["defence"]),
            in_short(result["utility"]),
            f"{result['separability']['mean']:.3f}",
            short_duration(result["environment"]["seconds"]),
        )
    print_whole(table, console or Console())


def in_short(utility: dict[str, float]) -> str:
    """What a network is good for.

    Example:
        >>> in_short({"accuracy": 0.9}), in_short({"accuracy": 0.2, "perplexity": 150.0})
        ('90.00 %', '20.00 %, perplexity 150.0')
    """
    perplexity = f", perplexity {utility['perplexity']:.1f}" if "perplexity" in utility else ""
    return f"{100 * utility['accuracy']:.2f} %{perplexity}"


RECOVERED = ("EM", "tokens", "sim.", "leak", "ver.", "s per\ntoken")  # of text
LEAKS = {leak_of(name): "leak" for name in ("ssim", "mcs", "mse")}  # the first that is known is the headline
METRICS = {**LEAKS, "ssim": "SSIM", "psim": "PSIM", "mcs": "MCS", "mse": "MSE"}  # the papers' columns


def attacks_table(
    results: dict[str, Any], vanilla: dict[str, Any] | None = None, console: Console | None = None
) -> None:
    """Print what came back, a row an attack, `mean ± std (most leaked)`; the worst case over attacks last.

    Args:
        results: of the run.
        vanilla: of the same run without a defence, where there is one: its figures stand below each row.
        console: where to print.
    """
    if not results["worst_case"]:
        return
    if "tokenizer" in results["data"]:
        text_table(results, vanilla, console or Console())
        print_samples(results, console or Console())
        return
    results, vanilla = with_leaks(results), with_leaks(vanilla) if vanilla is not None else None
    rows = attack_rows(results)
    shown = shown_metrics(rows)
    console = console or Console()
    table = table_of_attacks(results, vanilla, shown)
    if not fits(table, console) and "psim" in shown:  # the least of them gives way before the table does
        fewer = table_of_attacks(results, vanilla, [name for name in shown if name != "psim"])
        table = fewer if fits(fewer, console) else table
    print_whole(table, console)
    for line in lines_below(results):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def table_of_attacks(results: dict[str, Any], vanilla: dict[str, Any] | None, shown: Sequence[str]) -> Table:
    """The table of what came back, by some metrics; vanilla's figures below each row where they can be compared."""
    rows = attack_rows(results)
    theirs = attack_rows(vanilla) if vanilla is not None else {}
    table = Table(
        box=SIMPLE_HEAD,
        title=headline(results),
        title_justify="left",
        title_style="bold",
        padding=(0, 0, 0, 1),
        pad_edge=False,
        show_edge=False,
    )
    for column in ("attack", *(METRICS[name] for name in shown), "class", "rank", "time"):
        table.add_column(column, justify="left" if column == "attack" else "right", no_wrap=True)
    for key, row in rows.items():
        beside = theirs.get(key) if comparable(row, theirs.get(key)) else None
        table.add_row(*attack_cells(key, row, shown), style="bold" if key == WORST else "")
        if beside is not None:
            table.add_row(*attack_cells("  Vanilla", beside, shown), style="dim")
    leak = "leak: 0 is what the label alone gives back, 1 everything. " if any(map(is_leak, shown)) else ""
    table.caption = (
        f"mean ± std (most leaked input). {leak}"
        "class: recognised by an independent classifier; rank of the true input among other test inputs (0: found). "
        f"{FLOOR}: what the label alone gives away."
    )
    table.caption_justify = "left"
    return table


def fits(table: Table, console: Console) -> bool:
    """Whether a console is wide enough for a table."""
    options = console.options.update(width=MEASURED_AT, max_width=MEASURED_AT)
    return Measurement.get(console, options, table).maximum <= console.width


def lines_below(results: dict[str, Any]) -> list[str]:
    """What stands below the table of a run's attacks: re-identification, certificate, cost, warnings."""
    found = results["attacks"].get(GALLERY, {})
    lines = []
    if isinstance(found.get("reid"), dict):
        leak = found.get(leak_of("reid"))
        beyond = f", leak {leak['mean']:.2f}" if leak else ""
        lines.append(
            f"{GALLERY}: {100 * found['reid']['mean']:.0f} % re-identified among inputs of their class{beyond}"
        )
    lines += [f"{name.lower()}: {said}" for name, said in beside(results)]
    return lines + [f"warning: {each}" for each in warnings_of(results)]


def text_table(results: dict[str, Any], vanilla: dict[str, Any] | None, console: Console) -> None:
    """Print how much text came back: a row a policy on exact states, and a row a channel for hybrid.

    A channel's row says what is left of the model's use behind it, too.
    """
    table = Table(box=SIMPLE_HEAD, title=headline(results), title_justify="left", title_style="bold", pad_edge=False)
    table.padding, table.show_edge = (0, 0, 0, 1), False  # 80 columns are enough for it
    rows = text_rows(results)
    with_bayes = any("bayes" in row for row in rows.values())
    for column in ("attack", *RECOVERED, *(["bayes\n%"] if with_bayes else []), "perpl.", "acc."):
        table.add_column(column, justify="left" if column == "attack" else "right", no_wrap=True)
    theirs: dict[str, dict[str, Any]] = {}
    if vanilla is not None:
        alike = {k: row for k, row in vanilla["attacks"].items() if comparable(row, results["attacks"].get(k))}
        theirs = text_rows({**vanilla, "attacks": alike})
    for name, row in rows.items():
        table.add_row(name, *text_cells(row, with_bayes))
        if name in theirs:
            table.add_row("  Vanilla", *text_cells(theirs[name], with_bayes), style="dim")
    margin = next(iter(results["attacks"].values()))["margin"]
    table.caption = (
        f"one-step margin: {margin['median']:.3g} (median), {margin['min']:.3g} (smallest), "
        f"{margin['relative']['median']:.3g} and {margin['relative']['min']:.3g} of a state's size. "
        "Noise is given in units of the states' root mean square, and its perplexity is the server's behind it. "
        "sim.: similarity; leak: of it, 0 is a guess without any states, 1 everything; ver.: verified tokens."
        + (" bayes: tokens that the best guess behind the true text before it gets right." if with_bayes else "")
    )
    table.caption_justify = "left"
    print_whole(table, console)


def shown_metrics(rows: dict[str, dict[str, Any]]) -> list[str]:
    """The metrics of some rows that are worth a column: one leak, and MSE says little beside SSIM."""
    there = [name for name in METRICS if any(isinstance(row.get(name), dict) for row in rows.values())]
    leak = [name for name in there if is_leak(name)][:1]
    return leak + [name for name in there if not is_leak(name) and not (name == "mse" and "ssim" in there)]


def attack_line(name: str, row: dict[str, Any]) -> str:
    """What came back by one attack in one line, for whoever waits for the others."""
    if "em" in row:
        em, tokens, similar, leak, _, seconds = recovered_cells(row)
        beyond = f", leak {leak}" if leak else ""
        best = f", tokens {tokens}, bayes {bayes_cell(row)} %" if "bayes" in row else ""
        return f"{name}: EM {em}, similarity {similar}{beyond}{best}, {seconds} s/token"
    figures = [f"{METRICS[metric]} {mean_std_worst(row[metric])}" for metric in shown_metrics({name: row})]
    if isinstance(row.get("reid"), dict):
        figures.append(f"{100 * row['reid']['mean']:.0f} % re-identified")
    figures.append(short_duration(row["seconds"]))
    return f"{name}: {', '.join(figures)}"


def text_rows(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every policy by its name, and hybrid's channels, with what the model is good for behind each."""
    rows = {}
    for key, row in results["attacks"].items():
        rows[key] = {**row, **results["utility"]}
        rows |= {f"  {channel}": behind for channel, behind in row["channels"].items()}
    return rows


def text_cells(row: dict[str, Any], with_bayes: bool) -> list[str]:
    """One row of the table of text."""
    best = [bayes_cell(row)] if with_bayes else []
    return [*recovered_cells(row), *best, f"{row['perplexity']:.1f}", f"{100 * row['accuracy']:.1f} %"]


def bayes_cell(row: dict[str, Any]) -> str:
    """How many tokens the best guess behind the true text before it gets right; blank where that was not measured."""
    best = (row.get("bayes") or {}).get("token_accuracy")
    return f"{100 * best:.1f}" if isinstance(best, int | float) else ""


def recovered_cells(row: dict[str, Any]) -> list[str]:
    """How much text came back, in the columns `RECOVERED`."""
    leak = (row.get("leak") or {}).get("similarity")
    return [
        f"{100 * row['em']['mean']:.1f} %",
        f"{100 * row['token_accuracy']['mean']:.1f} %",
        f"{row['similarity']['mean']:.3f}",
        f"{leak['mean']:.2f}" if leak else "",
        f"{100 * row['verified']:.0f} %",
        f"{row['seconds_per_token']:.3f}",
    ]


def attack_rows(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every attack that reconstructs by its name, the floors first, the worst case over the others last."""
    rows = dict(sorted(results["attacks"].items(), key=lambda item: item[0] not in FLOORS))
    rows.pop(GALLERY, None)
    return {**rows, WORST: results["worst_case"]} if results["worst_case"] else rows


def comparable(row: dict[str, Any], other: dict[str, Any] | None) -> bool:
    """Whether two rows are of the same attack, with the same settings, on as many inputs."""
    same = ("settings", "samples", "stopped", "attacks")
    return other is not None and all(row.get(name) == other.get(name) for name in same)


def attack_cells(name: str, row: dict[str, Any], metrics: Sequence[str]) -> list[str]:
    """One row of the table; what was not measured is left blank."""
    return [
        name + (" (stopped)" if row.get("stopped") else ""),
        *(mean_std_worst(row[metric]) if metric in row else "" for metric in metrics),
        f"{100 * row['recognised']['mean']:.0f} %" if "recognised" in row else "",
        f"{row['rank']['mean']:.1f}" if "rank" in row else "",
        short_duration(row["seconds"]) if "seconds" in row else "",
    ]


def cuts_table(network: str, places: Sequence[Place], blocks: Sequence[str]) -> None:
    """Print where a network can be cut, a row a place, within 80 columns; a long name has a line of its own.

    Args:
        network: its name.
        places: in the order that the network runs.
        blocks: the last layer of each block, which a number means, too.
    """
    print(f"where {network} can be cut, what is sent,\nand the client's share of multiply-adds and parameters")
    print(f"{'--cut':<40}{'z':>16}{'mult-adds':>12}{'parameters':>12}")
    for place in places:
        number = f" or {blocks.index(place.name) + 1}" if place.name in blocks else ""
        name, shape = place.name + number, "×".join(map(str, place.shape))
        if len(name) >= 40:
            print(name)
            name = ""
        print(f"{name:<40}{shape:>16}{100 * place.macs:>10.1f} %{100 * place.parameters:>10.1f} %")


def headline(results: dict[str, Any]) -> str:
    """A run in one line."""
    accuracy = f"accuracy {in_short(results['utility'])}"
    samples = counted(results["worst_case"]["samples"], "prompt" if "tokenizer" in results["data"] else "input")
    model = f"{results['model']['name']} cut after {results['model']['cut']}"
    suite = f", suite {suite_of(results)}" if suite_of(results) else ""
    return f"{results['data']['name']}, {model}, {describe_defence(results['defence'])}: {accuracy}, {samples}{suite}"


def recovery_table(results: dict[str, Any], console: Console | None = None) -> None:
    """Print recovered texts, a row a prompt, with how many tokens are verified and where it becomes suspicious.

    Where the original texts are known, they stand beside, or above where the terminal is too narrow for both.
    """
    console = console or Console()
    model, config = results["model"], results["config"]
    title = f"{config['policy']} on {model['name']}, cut {model['cut']}, {config['dtype']}, noise {config['noise']:g}"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    truth, texts = results.get("truth"), [prompt["text"] for prompt in results["prompts"]]
    longest = [max((cell_len(text) for text in each), default=0) for each in (truth or [], texts)]
    beside = truth is not None and sum(longest) + BEFORE_TEXTS <= console.width
    named = ["recovered"] if truth is None else ["right", *(["original", "recovered"] if beside else ["", "text"])]
    for column in ("verified", "believe", *named):
        table.add_column(column, overflow="fold")
    for number, prompt in enumerate(results["prompts"]):
        first = prompt["suspicious_from"]
        believe = f"up to token {first}" if first is not None else "yes" if all(prompt["verified"]) else "cannot tell"
        if "confidence" in prompt:
            believe = f"{100 * prompt['confidence']:.0f} % {in_classes(prompt['probability'])}"
        shown: list[str | Text] = [f"{sum(prompt['verified'])} of {len(prompt['tokens'])}", believe]
        recovered = Text(prompt["text"])  # brackets in it are no markup
        if truth is None:
            table.add_row(*shown, recovered)
            continue
        shown.append("yes" if prompt["text"] == truth[number] else "no")
        if beside:
            table.add_row(*shown, Text(truth[number]), recovered)
        else:
            table.add_row(*shown, "original", Text(truth[number]))
            table.add_row("", "", "", "recovered", recovered)
    console.print(table)
    if any("confidence" in prompt for prompt in results["prompts"]):
        console.print(f"believe: how probable it is that every token is right; {CLASSES}", style="dim")
    if "note" in results:
        console.print(results["note"], highlight=False, soft_wrap=True)
    spent = results["seconds_per_token"]
    parts = ", ".join(f"{part} {seconds:.3f}" for part, seconds in spent.items() if part != "total")
    line = f"{spent['total']:.3f} s a token ({parts})"
    if truth is not None:
        line = (
            f"EM {100 * results['em']:.1f} %, tokens {100 * results['token_accuracy']:.1f} %, "
            f"similarity {results['similarity']:.3f}, {line}"
        )
    console.print(line, highlight=False)
