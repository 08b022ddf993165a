"""report.py as a user runs it, and its page in a real browser."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sweetspot.commands.report import main
from tests.conftest import refused_by
from tests.documents import commands
from tests.reports.fabricated import HOSTILE, defence_of, failed_run, image_grid, image_run, text_run, zoo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
in_browser = pytest.mark.skipif(
    BROWSER is None or not PLAYWRIGHT, reason="needs playwright, and chromium or google-chrome to open the page with"
)


def test_the_files_lie_in_the_first_folder_and_the_verdict_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image_grid(tmp_path, (0.1, 10), (1e-2, 1e-4))
    assert main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "Sweet spot: MixCon(" in said
    for name in ("report.html", "results.csv", "results.md"):
        assert (tmp_path / name).stat().st_size > 500
        assert str(tmp_path / name) in said


def test_a_broken_run_is_named_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image_grid(tmp_path, (1,), (1e-2,))
    broken = image_run(tmp_path, defence_of("mixcon", 5, 1e-2)) / "results.json"
    broken.write_text(broken.read_text()[:100])
    assert main([str(tmp_path)]) == 0
    assert f"skipped  {broken} cannot be read" in capsys.readouterr().out
    assert str(broken) in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image_run(tmp_path / "runs", defence_of("none", 0, 0))
    runs, empty = str(tmp_path / "runs"), tmp_path / "empty"
    empty.mkdir()
    refused_by(main, capsys, "there is no folder", str(tmp_path / "nowhere"))
    refused_by(main, capsys, "holds no finished run", str(empty))
    refused_by(main, capsys, "its folder is not there", runs, "--out", str(tmp_path / "nowhere" / "a.html"))
    refused_by(main, capsys, "--out must end in .html", runs, "--out", str(tmp_path / "a.pdf"))
    refused_by(main, capsys, "--max-drop must be a number of at least 0", runs, "--max-drop", "-0.1")
    refused_by(main, capsys, "--max-drop must be a finite number", runs, "--max-drop", "nan")
    refused_by(main, capsys, "--max-drop must be a finite number", runs, "--max-drop", "much")
    refused_by(main, capsys, "--metric must be one of ssim, psim", runs, "--metric", "mse")
    assert not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize("argv", commands("report"), ids=" ".join)
def test_a_command_of_the_documents_runs(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image_run(tmp_path / "checkpoints", defence_of("none", 0, 0))
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 0
    assert (tmp_path / "checkpoints" / "report.html").is_file()


def test_help_ends_in_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "--max-drop" in said
    assert "python report.py checkpoints/" in said


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on images, with a failed cell, and on text that would like to be a script."""
    folder = tmp_path_factory.mktemp("reported")
    image_grid(folder, (0.1, 1, 10), (1e-2, 1e-4), seeds=(0, 1))
    failed_run(folder, 100, 1e-2)
    for defence in (defence_of("none", 0, 0), defence_of("mixcon", 1, 1e-2)):
        text_run(folder, defence, prompt=HOSTILE)
    assert main([str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser, page_file: Path) -> Iterator[Page]:
    """The open page; an error in it or a request from it fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    yield from watched(context, page_file)


def watched(context: BrowserContext, file: Path) -> Iterator[Page]:
    """A page in a browser; an error in it or a request from it fails the test."""
    opened, wrong = context.new_page(), list[str]()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    opened.goto(file.as_uri())
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def zoo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on several families of defences, one of them along four axes, at two cuts."""
    folder = zoo(tmp_path_factory.mktemp("zoo"))
    assert main([str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture
def zoo_page(chromium: Browser, zoo_file: Path) -> Iterator[Page]:
    yield from watched(chromium.new_context(viewport={"width": 1280, "height": 900}), zoo_file)


def shown(page: Page) -> str:
    """The label of the cell that the first section shows."""
    panels = page.locator("#s0 .panel:visible h3")
    assert panels.count() == 1
    return panels.inner_text()


@in_browser
def test_a_click_on_a_map_a_point_or_a_row_shows_that_cell_everywhere(page: Page) -> None:
    assert shown(page).startswith("MixCon(10")  # the sweet spot
    page.locator("#s0 svg.heat").nth(2).locator(".square[aria-label*='MixCon(0.1, 0.01)']").click()
    assert shown(page) == "MixCon(0.1, 0.01)"
    cell = page.evaluate("location.hash").removeprefix("#")
    marks = page.locator(f"[data-cell={cell}]")
    assert marks.count() == 7 + 1 + 2  # in every map, in the plot, and its two seeds in the table
    assert marks.evaluate_all("all => all.every(each => each.classList.contains('shown'))")
    page.locator("#s0 .point.none").click()
    assert shown(page) == "Vanilla"
    page.locator("#s0 tr[data-cell]", has_text="MixCon(1, 1e-4)").first.click()
    assert shown(page) == "MixCon(1, 1e-4)"
    assert page.locator("#s0 .panel:visible img").first.evaluate("image => image.naturalWidth") > 0


@in_browser
def test_a_map_is_walked_with_arrow_keys(page: Page) -> None:
    page.locator("#s0 svg.heat .square[data-cell]").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert shown(page) == "MixCon(1, 1e-4)"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    assert shown(page) == "MixCon(1, 0.01)"


@in_browser
def test_a_plot_is_one_stop_of_the_tab_key_and_is_walked_with_arrow_keys(page: Page) -> None:
    points = page.locator("#s0 svg.plot .point")
    assert points.count() > 3
    assert page.locator("#s0 svg.plot .point[tabindex='0']").count() == 1
    page.locator("#s0 .point.none").focus()
    page.keyboard.press("ArrowDown")  # what is less recovered
    page.keyboard.press("Enter")
    assert shown(page).startswith("MixCon(")


@in_browser
def test_a_row_is_reached_by_the_keyboard_and_chooses_its_cell(page: Page) -> None:
    page.locator("#s0 tr[data-cell] a", has_text="MixCon(0.1, 0.01)").first.focus()
    page.keyboard.press("Enter")
    assert shown(page) == "MixCon(0.1, 0.01)"


@in_browser
def test_the_tip_of_a_failed_cell_stays_on_the_screen(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 400})
    page.emulate_media(reduced_motion="reduce")
    failed = page.locator("#s0 svg.heat .square:not([data-cell])").first
    failed.scroll_into_view_if_needed()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it hides tips
    failed.hover()
    tip = page.locator("#tip")
    assert "failed: out of memory" in tip.inner_text()
    box = tip.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 400


@in_browser
def test_pointing_at_a_cell_says_its_figures_and_shows_its_picture(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    vanilla = page.locator("#s0 .point.none")
    vanilla.scroll_into_view_if_needed()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it hides tips
    vanilla.hover()
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert "Vanilla with accuracy" in tip.inner_text()
    assert tip.locator("img").count() == 1
    page.locator("h1").hover()
    assert not tip.is_visible()


@in_browser
def test_the_table_sorts_by_numbers_both_ways(page: Page) -> None:
    head = page.locator("#s0 table.runs th", has_text="worst case")
    column = head.evaluate("head => head.cellIndex")
    orders = []
    for order in ("ascending", "descending"):
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == order
        keys = page.locator("#s0 table.runs tbody tr").evaluate_all(
            "(rows, column) => rows.map(row => Number(row.cells[column].dataset.key))", column
        )
        orders.append(keys)
    assert orders[0] == sorted(orders[0])
    assert orders[1] == sorted(orders[0], reverse=True)


@in_browser
def test_recovered_text_is_shown_and_not_run(page: Page) -> None:
    assert page.title() != "broken"
    assert page.locator("#s1 .truth q", has_text="</script>").count() >= 2


STICKING_OUT = """() => [...document.querySelectorAll("header *, main *, footer *")]
    .filter(each => each.getClientRects().length && each.getBoundingClientRect().right > innerWidth + 0.5)
    .map(each => `${each.tagName} ${each.getAttribute("class")} ${each.textContent.slice(0, 40)}`)"""


@in_browser
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_sticks_out_or_has_to_be_scrolled_sideways(page: Page, width: int) -> None:
    nothing_sticks_out(page, width)
    scrolled = page.locator(".chart.wide .scroll").evaluate_all("all => all.map(each => each.scrollLeft)")
    assert scrolled == [0] * 4  # of images and of text: all cells, and families at equal cost


def nothing_sticks_out(page: Page, width: int) -> None:
    """Everything lies within the window, with all details open."""
    page.set_viewport_size({"width": width, "height": 844})
    page.reload()
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(STICKING_OUT) == []
    scrolled = page.locator(".scroll:visible").evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1)")
    assert scrolled == []


@in_browser
def test_maps_have_the_width_of_the_page(page: Page) -> None:
    """Beside maps there would be nothing but paper."""
    page.set_viewport_size({"width": 1440, "height": 900})
    box, main = (page.locator(each).first.bounding_box() for each in ("#s0 .maps", "#s0"))
    assert box is not None
    assert main is not None
    assert box["width"] == pytest.approx(main["width"], abs=1)


@in_browser
def test_a_click_below_the_panel_brings_it_into_view(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.locator("#s0 tr[data-cell]", has_text="MixCon(0.1, 0.01)").first.click()
    assert shown(page) == "MixCon(0.1, 0.01)"
    seen = page.locator("#s0 .panel:visible h3").evaluate("e => e.getBoundingClientRect().bottom > 0")
    assert seen


@in_browser
def test_the_hash_of_a_link_chooses_its_cell(page: Page, page_file: Path) -> None:
    page.goto("about:blank")
    page.goto(page_file.as_uri() + "#s0c0")
    assert shown(page) == "Vanilla"


@in_browser
@pytest.mark.parametrize("how", ["without scripts", "in print"])
def test_the_sweet_spot_and_vanilla_show_without_scripts_and_in_print(
    how: str, chromium: Browser, page_file: Path
) -> None:
    context = chromium.new_context(java_script_enabled=how == "in print")
    page = context.new_page()
    page.goto(page_file.as_uri())
    if how == "in print":
        page.emulate_media(media="print")
    labels = page.locator("#s0 .panel:visible h3").all_inner_texts()
    assert len(labels) == 2
    assert "Vanilla" in labels
    pictures = page.locator("#s0 .panel:visible .montage img:visible")
    assert pictures.count() == 2
    context.close()


@in_browser
def test_dark_pages_keep_their_contrast(chromium: Browser, page_file: Path) -> None:
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(page_file.as_uri())
    paper = page.locator("body").evaluate("element => getComputedStyle(element).backgroundColor")
    text = page.locator("#s0 svg.plot .tick").first.evaluate("element => getComputedStyle(element).fill")
    bright = [sum(int(part) for part in colour.strip("rgb()").split(",")) for colour in (paper, text)]
    assert bright[0] < 120
    assert bright[1] > 400
    context.close()


CHOSEN = "#s0 .family-charts:has(select)"


@in_browser
def test_the_axes_of_maps_are_chosen_by_the_keyboard_and_the_cells_stay_what_they_are(zoo_page: Page) -> None:
    maps = zoo_page.locator(f"{CHOSEN} svg.heat")
    square = zoo_page.locator(
        f"{CHOSEN} .square[aria-label*='compress(0.01) + bottleneck 16 + gaussian(1), cut pool2']"
    )
    before = square.first.text_content()
    assert maps.count() == 2 * 6  # of λ and σ, for three bottlenecks at two cuts, twice
    zoo_page.locator(f"{CHOSEN} select").focus()
    zoo_page.keyboard.press("End")
    assert maps.count() == 2 * 6  # of bottleneck and cut, for two λ and three σ
    ticks = maps.first.locator(".tick").all_text_contents()
    assert ticks == ["none", "16", "120-16", "pool1", "pool2"]
    square.first.click()
    assert shown(zoo_page) == "compress(0.01) + bottleneck 16 + gaussian(1), cut pool2"
    assert square.first.text_content() == before
    zoo_page.locator(f"{CHOSEN} svg.heat .square").first.focus()
    zoo_page.keyboard.press("ArrowRight")
    zoo_page.keyboard.press("Enter")
    assert shown(zoo_page) == "compress(1e-3) + gaussian(0.5), cut pool2"
    zoo_page.locator(f"{CHOSEN} select").select_option("0-1")
    assert zoo_page.locator(f"{CHOSEN} .square").count() == 2 * 36
    assert maps.first.locator(".tick").all_text_contents() == ["1e-3", "0.01", "0.5", "1", "2"]


@in_browser
def test_without_scripts_the_first_pair_of_axes_is_shown_and_named(chromium: Browser, zoo_file: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(zoo_file.as_uri())
    assert page.locator(f"{CHOSEN} .square:visible").count() == 2 * 36
    assert not page.locator(f"{CHOSEN} select").is_visible()
    assert page.locator(f"{CHOSEN} .unchosen").inner_text() == "λ and σ"
    context.close()


@in_browser
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_of_many_families_sticks_out(zoo_page: Page, width: int) -> None:
    nothing_sticks_out(zoo_page, width)
