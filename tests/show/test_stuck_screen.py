"""The first screen of `preflight stuck`: stuck, not stuck, could not tell, each on one screen."""

from __future__ import annotations

import pytest

from preflight.show.screen import ROWS
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style, width_of
from preflight.stuck.judge.answer import answer
from tests.show.outputs import hostile, keep_screen
from tests.stuck.evidence import SAVE, four, node, process, rank, thread

MOVING = node(*(rank(i, process(100 + i, main=thread(100 + i, asleep_s=0.3))) for i in range(4)))
REPORTS = {"save": answer((four(rank(2, process(102, SAVE))),)), "moves": answer((MOVING,)), "nobody": answer(())}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_the_screen_is_the_expected_one(name: str) -> None:
    keep_screen(f"stuck_{name}", stuck_page(REPORTS[name], ()).shown(Detail.SCREEN, Style()))


@pytest.mark.parametrize("name", sorted(REPORTS))
@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_was_seen_is_one_screen(name: str, width: int) -> None:
    lines = (
        stuck_page(hostile(REPORTS[name]), ("evidence", "stuck.json")).shown(Detail.SCREEN, Style(width)).splitlines()
    )
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width and line.isprintable() for line in lines)


def test_all_of_it_has_the_calls_that_led_there() -> None:
    page = stuck_page(REPORTS["save"]).shown(Detail.ALL, Style())
    stacks = page.partition("Stacks, innermost call first\n")[2]
    assert stacks.startswith(
        "  pid 102 on n0:\n    serialization.py:88, _save\n    train.py:52, save_checkpoint\n    train.py:170, train\n"
    ), page


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_the_answer_alone_is_one_line(name: str) -> None:
    assert stuck_page(REPORTS[name]).shown(Detail.VERDICT, Style()).count("\n") == 1
