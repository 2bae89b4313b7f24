"""The first screen of `preflight explain`: answer, proof and what to do, for each kind of answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.explain.explain_files import explain_paths
from preflight.model.explanation import Explanation
from preflight.show.explain import explain_page
from preflight.show.screen import ROWS
from preflight.show.text import Detail, Style, width_of
from tests.conftest import PROJECT
from tests.show.outputs import hostile, keep_screen

SEEDS = sorted((PROJECT / "tests" / "explain" / "seeds").glob("*.log"))
LINES = {
    "healthy": ["step 1 loss 2.0", "Training completed. Do not forget to share your model", "exit code 0"],
    "unfinished": [f"{{'loss': {2 - i / 10}, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(9)],
    "unknown": ["step 1 loss 2.0", "Aborted (core dumped)"],
}


def explained(name: str) -> Explanation:
    log = Path(f"{name}.log")
    log.write_text("\n".join(LINES[name]) + "\n", encoding="utf-8")
    return explain_paths([str(log)])


@pytest.mark.parametrize("log", SEEDS, ids=lambda path: path.stem)
def test_a_cause_is_shown_with_its_proof_and_what_to_do(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    keep_screen(f"explain_{log.stem}", explain_page(explain_paths([log.name])).shown(Detail.SCREEN, Style()))


@pytest.mark.parametrize("name", sorted(LINES))
def test_an_answer_without_a_cause_says_what_was_last_and_what_to_fetch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_screen(f"explain_{name}", explain_page(explained(name)).shown(Detail.SCREEN, Style()))


@pytest.mark.parametrize("log", SEEDS, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_the_log_holds_is_one_screen(log: Path, width: int) -> None:
    lines = explain_page(hostile(explain_paths([str(log)]))).shown(Detail.SCREEN, Style(width)).splitlines()
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width and line.isprintable() for line in lines)


def test_the_answer_alone_is_one_line() -> None:
    page = explain_page(explain_paths([str(SEEDS[0])])).shown(Detail.VERDICT, Style())
    assert page.startswith("FOUND  A rank ran out of GPU memory") and page.count("\n") == 1
