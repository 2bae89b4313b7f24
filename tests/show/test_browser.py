"""The page in headless Chromium: nothing is fetched or run, all is reachable by role, and it fits every screen.

With PREFLIGHT_SCREENSHOTS=DIR the pictures are kept there, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from preflight.show.html_report import render_html
from tests.show.outputs import every_report, hostile

pytestmark = [pytest.mark.integration, pytest.mark.browser]

ALL = every_report()
PAGES = {"eight": ALL["eight"], "cured": ALL["cured"], "reject": ALL["blame gpu"], "hostile": hostile(ALL["eight"])}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LAUNCH_MS = 90_000
SERIOUS = ("serious", "critical")
PHONE_PX, MOST_SCREENS = 844, 4


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Debian's Chromium, driven by Playwright; None where there is none."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        yield None
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        # Without a sandbox: CI runs as root, and the pages are ours.
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=LAUNCH_MS)
        yield opened
        opened.close()


class Opened:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1440, scheme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._note_dialog)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_timeout(100)

    def _note_dialog(self, dialog: Any) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def unfold(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")

    def violations(self) -> list[str]:
        """Return what axe-core finds serious or worse, each rule with an element that breaks it."""
        axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        found = self.page.evaluate(f"{axe}; axe.run()")["violations"]
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in SERIOUS]

    def close(self) -> None:
        self.page.context.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Callable[..., Opened]]:
    need("browser", browser is not None, f"none of {', '.join(BROWSERS)} is installed")
    pages: list[Opened] = []

    def open_it(name: str, **options: Any) -> Opened:
        path = tmp_path / f"{name}.html"
        path.write_text(render_html(PAGES[name]), encoding="utf-8")
        pages.append(Opened(browser, path, **options))
        return pages[-1]

    yield open_it
    for page in pages:
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("name", PAGES)
def test_it_fits_the_screen_says_nothing_and_asks_for_nothing(
    open_page: Callable[..., Opened], name: str, width: int, scheme: str, tmp_path: Path
) -> None:
    opened = open_page(name, width=width, scheme=scheme)
    folder = Path(os.environ.get("PREFLIGHT_SCREENSHOTS", tmp_path))
    opened.page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
    assert opened.said == []
    assert opened.asked == [(tmp_path / f"{name}.html").as_uri()], "only the page itself"
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, "nothing but tables scrolls sideways"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_violation_folded_or_not(
    open_page: Callable[..., Opened], name: str, width: int, scheme: str
) -> None:
    opened = open_page(name, width=width, scheme=scheme)
    assert opened.violations() == []
    opened.unfold()
    assert opened.violations() == []


def test_axe_sees_what_is_wrong(open_page: Callable[..., Opened]) -> None:
    opened = open_page("eight")
    opened.page.evaluate("document.querySelector('h2').style.color = '#bbbbbb'; document.documentElement.lang = ''")
    assert {each.partition(":")[0] for each in opened.violations()} == {"color-contrast", "html-has-lang"}


@pytest.mark.parametrize("name", [name for name in PAGES if name != "hostile"])
def test_on_a_phone_it_is_four_screens_before_anything_is_unfolded(open_page: Callable[..., Opened], name: str) -> None:
    page = open_page(name, width=390).page
    assert page.evaluate("document.documentElement.scrollHeight") <= MOST_SCREENS * PHONE_PX


@pytest.mark.parametrize(("width", "is_shown"), [(390, False), (1440, True)])
def test_a_wide_screen_shows_what_a_phone_folds(open_page: Callable[..., Opened], width: int, is_shown: bool) -> None:
    page = open_page("cured", width=width).page
    assert page.get_by_role("img", name="busbw of all_reduce over message size").is_visible() is is_shown
    assert page.get_by_text("Plots: busbw of large messages").is_visible() is not is_shown
    assert not page.get_by_role("table", name="Network interfaces").is_visible()  # facts are folded everywhere


def test_headings_tables_and_plots_are_reached_by_role(open_page: Callable[..., Opened]) -> None:
    page = open_page("cured").page
    assert page.get_by_role("heading", level=1).inner_text().lower().startswith("ready with settings")
    for title in ("Findings and fixes", "Settings for the job", "Speed over message size", "Facts"):
        assert page.get_by_role("heading", name=title, level=2).count() == 1
        assert page.get_by_role("region", name=title).count() == 1
    table = page.get_by_role("table", name="Paths from each GPU to the other GPUs and to the NICs")
    assert table.get_by_role("rowheader", name="GPU3", exact=True).count() == 1
    assert table.get_by_role("columnheader", name="GPU3", exact=True).count() == 1
    assert page.get_by_role("table", name="3 trials, in the order of the run").get_by_role("row").count() == 4
    assert page.get_by_role("img", name="busbw of all_reduce over message size").count() == 1
    assert page.get_by_role("main").count() == page.get_by_role("navigation").count() == 1


def test_every_heading_follows_one_of_its_level_or_the_level_above(open_page: Callable[..., Opened]) -> None:
    found = open_page("cured").page.locator("h1, h2, h3").evaluate_all("all => all.map(h => Number(h.tagName[1]))")
    assert found[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(found))


@pytest.mark.parametrize("width", [390, 1440])
def test_tables_stay_tables_for_a_screen_reader_on_a_phone_too(open_page: Callable[..., Opened], width: int) -> None:
    opened = open_page("cured", width=width)
    opened.unfold()
    page = opened.page
    trials = page.get_by_role("table", name="3 trials, in the order of the run")
    assert trials.get_by_role("rowheader", name="no-p2p").count() == 1
    assert trials.get_by_role("columnheader", name="outcome").count() == 1


def test_everything_that_scrolls_can_be_reached_by_keyboard(open_page: Callable[..., Opened]) -> None:
    page = open_page("eight", width=390).page
    for region in page.locator(".scroll").all():
        assert region.get_attribute("tabindex") == "0" and region.get_attribute("aria-label")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_told_from_its_background(open_page: Callable[..., Opened], scheme: str) -> None:
    worst = open_page("cured", scheme=scheme).page.evaluate(CONTRAST)
    assert worst["ratio"] >= 4.5, worst


def test_hostile_names_are_text_and_nothing_of_them_runs(open_page: Callable[..., Opened]) -> None:
    opened = open_page("hostile")
    assert opened.page.locator("script, img, iframe, object").count() == 0
    assert "<script>alert(1)</script>" in opened.page.get_by_role("heading", level=1).inner_text()
    assert opened.said == []


def test_printed_it_shows_what_is_folded_away_on_the_screen(open_page: Callable[..., Opened]) -> None:
    page = open_page("eight").page
    page.emulate_media(media="print")
    assert page.get_by_role("navigation").count() == 0
    assert page.locator("details table").first.is_visible()
    assert len(page.pdf()) > 10_000


CONTRAST = """() => {
  const parse = text => { const m = text.match(/[\\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const channel = v => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = c => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
  let worst = { ratio: 99 };
  for (const node of document.querySelectorAll('body *')) {
    if (node.closest('svg') || ![...node.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (!node.checkVisibility() || node.classList.contains('skip')) continue;
    let back = [0, 0, 0, 0];
    for (let under = node; under && back[3] === 0; under = under.parentElement)
      back = parse(getComputedStyle(under).backgroundColor);
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(back)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst.ratio) worst = { ratio, text: node.textContent.trim().slice(0, 40), class: node.className };
  }
  return worst;
}"""
