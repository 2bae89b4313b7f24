"""The page of `preflight doctor`: the state of each part of the installation, and the fix for each problem."""

from __future__ import annotations

from preflight.model.installation import Installation, InstalledPart, Soundness
from preflight.model.units import counted
from preflight.show.document import Block, Items, Text, answer_line
from preflight.show.screen import Page
from preflight.show.text import line

ANSWERS = {0: ("SOUND", "green"), 3: ("NOT SOUND", "red")}
SIGNS = {Soundness.OK: "", Soundness.NOTE: "note: ", Soundness.PROBLEM: "PROBLEM: "}


def installation_page(installation: Installation) -> Page:
    """Return the page of `preflight doctor`."""
    word, tone = ANSWERS[installation.exit_code]
    answer = answer_line(word, tone, _summary(installation.parts))
    rows = [
        (part.name, SIGNS[part.state] + line("; ".join(filter(None, (part.found, part.fix)))))
        for part in installation.parts
    ]
    blocks: list[Block] = [answer, Text(""), Items(rows)]
    fixes = [part.fix for part in installation.parts if part.state is Soundness.PROBLEM and part.fix]
    return Page(answer, blocks, [], (("Next", line(fixes[0]) if fixes else "none"),), lambda: blocks)


def _summary(parts: tuple[InstalledPart, ...]) -> str:
    bad = [part.name for part in parts if part.state is Soundness.PROBLEM]
    notes = [part.name for part in parts if part.state is Soundness.NOTE]
    if bad:
        return f"{counted(len(bad), 'problem')}: {', '.join(bad)}"
    return f"{counted(len(notes), 'note')}: {', '.join(notes)}" if notes else "every part is there"
