"""What the page says, and what it leaves out where something is missing."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweetspot.errors import UserError
from sweetspot.reports.families import styles_of
from sweetspot.reports.gallery import columns_for, recovered_images, rows_of, shown_inputs, worst_images
from sweetspot.reports.gathering import gather
from sweetspot.reports.page import Report, write_report
from tests.reports.fabricated import (
    ATTACKS,
    HOSTILE,
    LABEL_ONLY,
    defence_of,
    drawn_images,
    failed_run,
    gradient_file,
    image_grid,
    image_run,
    text_run,
    zoo,
    zoo_defence,
)


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.text += data.replace("\u00a0", " ")

    def of(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        return [attrs for name, attrs in self.found if name == tag and kind in [*attrs.get("class", "").split(), ""]]


def page_of(folder: Path, **options: object) -> tuple[Report, Elements]:
    report = write_report([folder], folder / "report.html", **options)  # type: ignore[arg-type]
    return report, Elements(report.page.read_text(encoding="utf-8"))


def test_the_page_says_the_verdict_and_has_a_panel_a_cell_and_a_row_a_run(tmp_path: Path) -> None:
    image_grid(tmp_path, (0.1, 10), (1e-2, 1e-4), seeds=(0, 1))
    report, page = page_of(tmp_path, title="Grey rings")
    assert report.verdicts[0].found
    assert report.verdicts[0].sentence in page.text
    assert "Grey rings" in page.text
    assert len(page.of("article", "panel")) == 5
    assert len([row for row in page.of("tr") if "data-cell" in row]) == 10
    assert len(page.of("svg", "heat")) == 7  # accuracy, distance, worst leak, SSIM and PSIM, the paper's two attacks
    assert len(page.of("article", "standing")) == 2
    assert report.csv.is_file()
    assert report.markdown.is_file()


def test_families_have_maps_curves_or_a_choice_of_axes_by_how_many_they_have(tmp_path: Path) -> None:
    zoo(tmp_path)
    report, page = page_of(tmp_path)
    labels = [attrs["aria-label"] for attrs in page.of("section", "family-charts")]
    assert labels == ["MixCon along λ, β", "compress + gaussian along λ, σ, bottleneck, cut", "gaussian along σ"]
    assert len(page.of("svg", "curve")) == 2
    assert len(page.of("select")) == 1
    assert [attrs["value"] for attrs in page.of("option")] == ["0-1", "0-2", "0-3", "1-2", "1-3", "2-3"]
    squares = {attrs["data-square"] for attrs in page.of("g", "square") if "data-square" in attrs}
    slots = [attrs["data-slot"] for attrs in page.of("g") if "data-slot" in attrs]
    assert len(squares) == 2 * 36
    assert {slot: slots.count(slot) for slot in squares} == dict.fromkeys(squares, 6), "a place in every pair"
    assert len(page.of("article", "panel")) == len(report.settings[0].cells) == 46


def test_a_search_is_drawn_along_its_axes_not_over_them(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0))
    for n in range(12):
        defence = zoo_defence("compress", 1e-3 * 1.3**n, None, ["gaussian"], sigma=0.3 * 1.2 ** (n * 5 % 12))
        image_run(tmp_path, defence, attacks=("prototype", "decoder/adaptive"))
    _, page = page_of(tmp_path)
    assert not page.of("svg", "heat")
    assert len(page.of("svg", "curve")) == 4


def test_every_family_has_a_colour_and_a_shape_of_its_own(tmp_path: Path) -> None:
    releases = ("gaussian", "laplace", "dropout", "topk", "quantise", "clip")
    for penalty, lam in (("none", 0.0), ("nopeek", 1.0)):
        for release in releases:
            image_run(tmp_path, zoo_defence(penalty, lam, None, [release]), attacks=("decoder/adaptive",))
    setting = write_report([tmp_path], tmp_path / "report.html").settings[0]
    styles = styles_of(setting)
    assert len(styles) == len(set(styles.values())) == 12


def test_old_runs_stand_beside_new_ones(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0), is_older=True)
    image_run(tmp_path, defence_of("mixcon", 10, 1e-4), is_older=True)
    noise = zoo_defence("compress", 0.01, "120-16", ["gaussian"], sigma=2.0)
    image_run(tmp_path, noise)
    report, page = page_of(tmp_path)
    assert [cell.recovery is not None for cell in report.settings[0].cells] == [True] * 3
    assert "the leak of 2 of 3 runs is against prototype alone" in page.text
    assert "nats beyond the label" in page.text


def test_the_verdict_says_what_to_do_and_what_must_be_known_beside_it(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0))
    image_run(tmp_path, zoo_defence("compress", 0.01, "120-16", ["gaussian"], sigma=2.0))
    report, page = page_of(tmp_path)
    assert report.verdicts[0].found
    assert "Use compress(0.01) + bottleneck 120-16 + gaussian(2): hardly more than the label" in page.text
    for words in (
        "No picture", "No identity", "Attacker without data", "Attacker with data", "re-identified among 100 of",
        "75 % of multiply-adds, 11 % of parameters", "points of accuracy over a linear classifier",
        "gradients may be masked", "none: nothing random leaves the client", "standard 1",
    ):  # fmt: skip
        assert words in page.text, words
    (scale,) = page.of("svg", "scale")
    assert scale["aria-label"].startswith("leak of vanilla 0.")
    assert len(page.of("dl", "glossary")) == 1
    assert "class recognised" in page.of("g", "point")[-1]["aria-label"]


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    image_grid(tmp_path, (1,), (1e-2,))
    _, page = page_of(tmp_path)
    for _, attrs in page.found:
        for name in ("src", "href"):
            assert attrs.get(name, "#").startswith(("#", "data:"))
    assert "url(http" not in (tmp_path / "report.html").read_text()


def test_pictures_show_the_same_inputs_from_the_originals_down(tmp_path: Path) -> None:
    image_grid(tmp_path, (1,), (1e-2,))
    _, page = page_of(tmp_path)
    sizes = set()
    for attrs in page.of("img"):
        data = base64.b64decode(attrs["src"].removeprefix("data:image/webp;base64,"))
        sizes.add(Image.open(io.BytesIO(data)).size)
    assert sizes == {(8 * 29 - 1, 7 * 29 - 1), (8 * 29 - 1, 3 * 29 - 1)}  # seven rows in a panel, three in the headline


def test_rows_of_reconstructions_are_those_of_their_inputs(tmp_path: Path) -> None:
    folder = image_run(tmp_path, defence_of("none", 0, 0))
    run = gather([folder]).runs[0]
    inputs = [run.results["attacks"]["whitebox/paper"]["inputs"][row] for row in (4, 1)]
    whole = np.load(folder / "recovered-whitebox-paper.npz")["x"]
    assert np.array_equal(recovered_images(run, inputs)["whitebox/paper"], whole[[4, 1]])
    strongest = worst_images(run, inputs, "ssim")
    assert strongest is not None
    scores = {key: run.results["attacks"][key]["scores"]["ssim"][4] for key in ATTACKS if key not in LABEL_ONLY}
    best = max(scores, key=lambda key: scores[key])
    assert np.array_equal(strongest[0], np.load(folder / f"recovered-{best.replace('/', '-')}.npz")["x"][4])


def test_inputs_that_one_run_was_not_attacked_on_are_not_shown(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0))
    image_run(tmp_path, defence_of("mixcon", 1, 1e-2), originals=drawn_images(5))
    assert len(shown_inputs(gather([tmp_path]).runs)) == 5


def test_many_runs_show_fewer_inputs_each() -> None:
    counts = [columns_for(pictures, (3, 64, 64), 6) for pictures in (1, 50, 200, 400, 100_000)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 8
    assert counts[-1] == 0


def test_text_from_runs_stays_text(tmp_path: Path) -> None:
    text_run(tmp_path, defence_of("none", 0, 0), prompt=HOSTILE)
    text_run(tmp_path, defence_of("mixcon", 1, 1e-2), prompt=HOSTILE)
    broken = tmp_path / HOSTILE.replace("/", "-")
    broken.mkdir()
    (broken / "results.json").write_text("{")
    failed_run(tmp_path, 1, 1e-4, HOSTILE)
    _, page = page_of(tmp_path, title=HOSTILE)
    assert not [attrs for attrs in page.of("img") if "onerror" in attrs]
    assert len(page.of("script")) == 1
    assert HOSTILE in page.text


def test_tokens_are_marked_by_more_than_colour(tmp_path: Path) -> None:
    text_run(tmp_path, defence_of("mixcon", 10, 1e-4))
    _, page = page_of(tmp_path)
    titles = {attrs["title"] for attrs in page.of("span", "token") if "title" in attrs}
    assert titles == {"right and verified", "right, not verified", "wrong"}
    assert {"noise 0.3", "noise 1"} <= set(re.findall(r"noise [\d.]*\d", page.text))
    assert page.of("svg", "losses")


def test_a_failed_cell_is_a_cross_with_its_error(tmp_path: Path) -> None:
    image_grid(tmp_path, (1,), (1e-2, 1e-4))
    failed_run(tmp_path, 10, 1e-4, "out of memory")
    _, page = page_of(tmp_path)
    crosses = [attrs for attrs in page.of("g", "square") if "failed: out of memory" in attrs["aria-label"]]
    assert len(crosses) == len(page.of("svg", "heat"))
    assert "data-cell" not in crosses[0]
    assert "out of memory" in page.text


def test_recovered_gradients_are_shown_as_images_or_as_numbers(tmp_path: Path) -> None:
    gradient_file(tmp_path / "images.json")
    gradient_file(tmp_path / "vectors.json", ())
    _, page = page_of(tmp_path)
    assert len(page.of("article", "gradient")) == 2
    assert len(page.of("img")) == 1
    assert "only the true batch explains the gradient" in page.text


def test_an_odd_gradient_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    gradient_file(tmp_path / "good.json")
    odd = json.loads((tmp_path / "good.json").read_text()) | {"recovered": {"tensor": {}}}
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    _, page = page_of(tmp_path)
    assert len(page.of("article", "gradient")) == 1
    assert "odd.json cannot be shown" in page.text


def no_pictures(folder: Path) -> None:
    for file in image_run(folder, defence_of("mixcon", 1, 1e-2)).glob("*.npz"):
        file.unlink()


def no_originals(folder: Path) -> None:
    (image_run(folder, defence_of("mixcon", 1, 1e-2)) / "originals.npz").unlink()


def torn_pictures(folder: Path) -> None:
    for file in image_run(folder, defence_of("mixcon", 1, 1e-2)).glob("*.npz"):
        file.write_bytes(file.read_bytes()[:200])


def vectors(folder: Path) -> None:
    made = image_run(folder, defence_of("mixcon", 1, 1e-2), metrics=("mcs", "mse"))
    results = json.loads((made / "results.json").read_text())
    results["data"]["shape"] = [10]
    (made / "results.json").write_text(json.dumps(results))


def bare_text(folder: Path) -> None:
    """As an older version would have left it: nothing of what is optional."""
    made = text_run(folder, defence_of("mixcon", 1, 1e-2))
    results = json.loads((made / "results.json").read_text())
    for name in ("observed", "recovered", "channels", "verified", "seconds"):
        del results["attacks"]["text/hybrid"][name]
    (made / "results.json").write_text(json.dumps(results))


MISSING: dict[str, Callable[[Path], object]] = {
    "attacks": lambda folder: image_run(folder, defence_of("mixcon", 1, 1e-2), attacks=()),
    "vanilla": lambda folder: image_run(folder, defence_of("mixcon", 1, 1e-2)),
    "defended": lambda folder: image_run(folder, defence_of("none", 0, 0)),
    "psim": lambda folder: image_run(folder, defence_of("mixcon", 1, 1e-2), metrics=("ssim", "psnr")),
    "known defence": lambda folder: image_run(folder, defence_of("brandnew", 1, 0)),
    "colour": lambda folder: image_run(folder, defence_of("mixcon", 1, 1e-2), originals=drawn_images(4, 3, 9)),
    "pictures": no_pictures,
    "originals": no_originals,
    "whole pictures": torn_pictures,
    "images": vectors,
    "optional text": bare_text,
    "finished": lambda folder: failed_run(folder, 1, 1e-2),
}  # fmt: skip


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_leaves_a_gap(what: str, tmp_path: Path) -> None:
    MISSING[what](tmp_path)
    report, page = page_of(tmp_path)
    for verdict in report.verdicts:
        assert verdict.sentence in page.text
    assert len(page.of("section", "setting")) == len(report.settings)
    assert "nan" not in page.text.split()


def test_a_metric_that_no_run_has_is_refused(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0), metrics=("ssim", "psnr"))
    with pytest.raises(UserError, match=r"no run was measured by --metric psim; there are ssim, psnr"):
        page_of(tmp_path, metric="psim")


def test_another_metric_moves_the_plot_and_the_maps(tmp_path: Path) -> None:
    image_grid(tmp_path, (1, 10), (1e-2, 1e-4))
    report, page = page_of(tmp_path, metric="psim")
    assert report.settings[0].recovery == "psim leak"
    assert "worst-case PSIM leak" in report.verdicts[0].sentence
    assert "PSIM leak of whitebox/paper" in page.text


def test_a_report_leaves_the_old_one_where_it_cannot_be_written(tmp_path: Path) -> None:
    image_run(tmp_path, defence_of("none", 0, 0))
    page_of(tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    with pytest.raises(UserError):
        page_of(tmp_path, metric="nonsense")
    assert (tmp_path / "report.html").read_bytes() == before
    assert not list(tmp_path.glob(".*tmp*"))


def test_reading_some_rows_of_a_file_refuses_what_is_not_there(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=drawn_images(3))
    assert rows_of(tmp_path / "a.npz", [3]) is None
    assert rows_of(tmp_path / "none.npz", [0]) is None


def test_what_one_attack_alone_would_say_is_beside_the_verdict(tmp_path: Path) -> None:
    image_grid(tmp_path, (0.1, 10), (1e-2, 1e-4))
    page = write_report([tmp_path], tmp_path / "report.html").page.read_text(encoding="utf-8")
    assert "And if there were one attack only" in page
    assert re.search(r"<dt>whitebox/paper</dt><dd>Sweet spot: [^<]*, whitebox/paper SSIM leak -?0\.", page)


def test_a_cell_that_was_spared_attacks_has_no_worst_case_on_the_map_and_is_hollow_in_the_plot(tmp_path: Path) -> None:
    image_grid(tmp_path, (1,), (1e-2, 1e-4))
    image_run(tmp_path, defence_of("mixcon", 10, 1e-2), attacks=("prototype", "whitebox/paper"))
    _, page = page_of(tmp_path)
    spared = [attrs["aria-label"] for attrs in page.of("g", "square") if "MixCon(10, 0.01)" in attrs["aria-label"]]
    assert any(label.startswith("Worst-case SSIM: not by every attack") for label in spared)
    assert any(re.match(r"SSIM leak of whitebox/paper: -?0\.\d", label) for label in spared)
    hollow = page.of("g", "spared")
    assert len(hollow) == 1
    assert "MixCon(10, 0.01)" in hollow[0]["aria-label"]
    assert "hollow points went through fewer attacks" in page.text


def test_an_attack_that_was_stopped_says_so(tmp_path: Path) -> None:
    made = image_run(tmp_path, defence_of("none", 0, 0))
    results = json.loads((made / "results.json").read_text())
    results["attacks"]["whitebox/paper"]["stopped"] = True
    (made / "results.json").write_text(json.dumps(results))
    assert "whitebox/paper (stopped)" in page_of(tmp_path)[1].text


def test_without_runs_there_are_no_tables_and_two_pages_keep_theirs_apart(tmp_path: Path) -> None:
    (tmp_path / "batches").mkdir()
    gradient_file(tmp_path / "batches" / "one.json")
    report = write_report([tmp_path / "batches"], tmp_path / "report.html")
    assert not report.csv.exists()
    assert "results.csv" not in report.page.read_text()
    image_run(tmp_path / "runs", defence_of("none", 0, 0))
    for name, tables in (("report", "results"), ("other", "other")):
        write_report([tmp_path / "runs"], tmp_path / f"{name}.html")
        assert (tmp_path / f"{tables}.csv").is_file()
        assert (tmp_path / f"{tables}.md").is_file()


def test_colours_do_not_make_a_difference_where_there_is_none(tmp_path: Path) -> None:
    image_grid(tmp_path, (1, 2), (1e-2, 1e-3))
    text = page_of(tmp_path)[0].page.read_text(encoding="utf-8")
    worst = text[text.index('aria-label="Worst-case SSIM over') :]
    assert ">0.000</text>" in worst[: worst.index("</svg>")]
    assert ">1.000</text>" in worst[: worst.index("</svg>")]


def test_one_epoch_is_one_epoch(tmp_path: Path) -> None:
    made = image_run(tmp_path, defence_of("none", 0, 0))
    results = json.loads((made / "results.json").read_text())
    results["config"]["epochs"] = 1
    (made / "results.json").write_text(json.dumps(results))
    text = page_of(tmp_path)[1].text
    assert text.count("1 epoch, batch 32") == 2
