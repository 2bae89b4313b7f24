"""The fleet's page: all of it escaped, bounded in size, and readable in a browser.

With PREFLIGHT_SCREENSHOTS=DIR the pictures are kept there, to be looked at.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.fleet.overview import overview
from preflight.model.fleet import Fleet
from preflight.show.fleet_html import MOST_ODD, render_fleet_html
from tests.fleet.test_overview import fleet_of, report
from tests.show.outputs import hostile
from tests.show.test_browser import CONTRAST, MOST_SCREENS, PHONE_PX, Opened, browser

__all__ = ["browser"]
MOST_BYTES = 1 << 20


def slow(host: str, factor: float = 0.6) -> dict[str, Any]:
    document = report(host, random.Random(9))
    for result in document["trials"][0]["results"]:
        result["busbw_gb_s"] *= factor
    return document


def mixed() -> Fleet:
    """Return a fleet with an odd node, a failing one, another driver and a file that is no report."""
    chance = random.Random(5)
    documents = {f"n{i:03d}.json": report(f"n{i:03d}", chance) for i in range(60)}
    documents["n007.json"] = slow("n007")
    bad = {"check": "gpu-recovery", "severity": "fail", "subject": "n009 GPU 3"}
    documents["n009.json"] |= {"verdict": "not_ready", "findings": [bad]}
    documents["n011.json"] |= {"verdict": "unknown"}
    documents["n012.json"]["nodes"][0]["system"]["kernel"] = "5.15.0"
    read = [(path, document, "") for path, document in documents.items()]
    return overview([*read, ("broken.json", None, "no JSON")])


def test_odd_nodes_stand_above_the_spread_with_their_figure_and_what_is_usual() -> None:
    page = render_fleet_html(mixed())
    assert page.index("<h3>Outliers") < page.index("Settings that differ") < page.index("Range of each metric")
    assert "slower in 4 of 4 speeds (median " in page
    strips = re.findall(r'<div class="name">(all_\w+ [0-9.]+ \w+) busbw', page)
    assert strips == [f"{name} {size}" for name in ("all_reduce", "all_gather") for size in ("8 B", "1 MiB")]
    assert "n007" in page and "(usual: " in page and "gpu-recovery: n009 GPU 3" in page
    assert "no JSON" in page and "5.15.0" in page
    assert re.search(r'<rect class="odd"', page), "who lies outside is coloured"


def test_a_fleet_without_a_report_says_so() -> None:
    assert "nothing read" in render_fleet_html(overview([("x", None, "empty")]))


def test_hostile_names_stay_text_and_nothing_is_fetched() -> None:
    page = render_fleet_html(hostile(mixed()))
    assert "<script" not in page and "<img" not in page
    assert all(char.isprintable() or char == "\n" for char in page)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)


def test_ten_thousand_nodes_fit_a_page_and_what_was_cut_is_said() -> None:
    hosts = [f"gpu{i:05d}" for i in range(10_000)]
    observed = fleet_of(30, n003=slow("n003"))
    (group,) = observed.groups
    odd = tuple(type(each)(host, f"/reports/{host}.json", each.what, each.value, each.usual, 9.0)
                for host in hosts[:1000] for each in group.odd)  # fmt: skip
    large = type(observed)(10_000, 10_000, tuple(hosts[::2]), (), (), (
        type(group)(group.kind, tuple(hosts), odd, group.metrics, group.drift, ""),
    ), (), (), False)  # fmt: skip
    page = render_fleet_html(large)
    assert len(page.encode()) < MOST_BYTES
    assert f"the first {MOST_ODD} of 1000 outliers" in page


@pytest.mark.integration
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_fits_the_screen_says_nothing_asks_for_nothing_and_is_reached_by_role(
    browser: Any, need: Callable[[str, bool, str], None], tmp_path: Path, width: int, scheme: str
) -> None:
    need("browser", browser is not None, "no Chromium is installed")
    path = tmp_path / "fleet.html"
    path.write_text(render_fleet_html(mixed()), encoding="utf-8")
    opened = Opened(browser, path, width, scheme)
    page = opened.page
    folder = Path(os.environ.get("PREFLIGHT_SCREENSHOTS", tmp_path))
    page.screenshot(path=folder / f"fleet-{width}-{scheme}.png", full_page=True)
    assert opened.said == [] and opened.asked == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_by_role("heading", level=1).inner_text().lower().startswith("nodes fail")
    table = page.get_by_role("table", name=re.compile("largest difference first"))
    assert table.get_by_role("rowheader", name="n007").count() >= 1
    assert page.get_by_role("img", name="busbw GB/s").count() >= 1
    assert page.evaluate(CONTRAST)["ratio"] >= 4.5
    if width == 390:
        assert page.evaluate("document.documentElement.scrollHeight") <= MOST_SCREENS * PHONE_PX
    assert opened.violations() == []
    opened.unfold()
    assert opened.violations() == []
    opened.close()
