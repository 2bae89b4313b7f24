"""One verdict, every form: each form that has an answer gives the same one for every verdict; prints the table."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from preflight.model.facts import Gap
from preflight.model.report import NodeVerdict, Report, Verdict
from preflight.show.formats import Format
from preflight.show.render import render_as
from tests.reports import report_of

NOT_ASKED = Gap("not asked for")
GOOD, BAD, UNKNOWN = "good", "bad", "unknown"
# The verdict for the job, the node's answer, the words of both, and what they come to.
ANSWERS: tuple[tuple[Verdict, NodeVerdict | Gap, str, str, int], ...] = (
    (Verdict.READY, NOT_ASKED, "READY", GOOD, 0),
    (Verdict.READY_WITH_ENV, NOT_ASKED, "READY WITH SETTINGS", GOOD, 0),
    (Verdict.NOT_READY, NOT_ASKED, "NOT READY", BAD, 1),
    (Verdict.UNKNOWN, NOT_ASKED, "UNKNOWN", UNKNOWN, 3),
    *((job, NodeVerdict.ACCEPT, "NODE ACCEPTED", GOOD, 0) for job in (Verdict.READY, Verdict.READY_WITH_ENV)),
    *((job, NodeVerdict.REJECT, "NODE REJECTED", BAD, 1) for job in Verdict),
    *((job, NodeVerdict.UNKNOWN, "NODE UNKNOWN", UNKNOWN, 3) for job in Verdict),
)


def report(job: Verdict, node: NodeVerdict | Gap, words: str, code: int) -> Report:
    headline = f"{words.lower()}: because"
    return report_of(verdict=job, node_verdict=node, exit_code=code, headline=headline, backend="nccl")


def by_k8s(text: str) -> str:
    (status,) = re.findall(r'status: "(\w+)"', text)
    return {"True": GOOD, "False": BAD, "Unknown": UNKNOWN}[status]


def by_nagios(text: str) -> str:
    return {"OK": GOOD, "WARNING": GOOD, "CRITICAL": BAD, "UNKNOWN": UNKNOWN}[text.split()[1]]


def by_prometheus(text: str) -> str:
    (word,) = re.findall(r'^preflight_(?:node_)?verdict\{verdict="(\w+)"\} 1$', text, re.MULTILINE)
    (code,) = re.findall(r"^preflight_exit_code (\d)$", text, re.MULTILINE)
    meant = {"ready": 0, "ready_with_env": 0, "accept": 0, "not_ready": 1, "reject": 1, "unknown": 3}[word]
    return {0: GOOD, 1: BAD, 3: UNKNOWN}[meant] if meant == int(code) else f"exit code {code}, verdict {word}"


def by_junit(text: str) -> str:
    root = ET.fromstring(text.partition("?>")[2])
    (case,) = [each for each in root.iter("testcase") if each.get("name") == "verdict"]
    ends = {child.tag for child in case}
    return BAD if "failure" in ends else UNKNOWN if "error" in ends else GOOD


def by_json(text: str) -> str:
    document = json.loads(text)
    word = document["node_verdict"] or document["verdict"]
    return {"ready": GOOD, "ready_with_env": GOOD, "accept": GOOD, "unknown": UNKNOWN}.get(word, BAD)


def by_words(text: str) -> str:
    """Tell the answer by the words that all forms for people share; the longest that fits is meant."""
    words = {words: meaning for _, _, words, meaning, _ in ANSWERS}
    found = [each for each in sorted(words, key=len, reverse=True) if re.search(rf"\b{each}\b", text, re.IGNORECASE)]
    return words[found[0]] if found else "no answer"


def of_html(text: str) -> str:
    (word,) = re.findall(r'<span class="word">([^<]+)</span>', text)
    return by_words(word)


FORMS: dict[Format, Callable[[str], str]] = {
    Format.CONSOLE: lambda text: by_words(text.splitlines()[0]),
    Format.MARKDOWN: lambda text: by_words(text.splitlines()[0]),
    Format.HTML: of_html,
    Format.DRAIN: by_words,
    Format.TICKET: lambda text: by_words(text.splitlines()[0]),
    Format.NAGIOS: by_nagios,
    Format.K8S: by_k8s,
    Format.PROMETHEUS: by_prometheus,
    Format.JUNIT: by_junit,
    Format.JSON: by_json,
}


def test_every_form_but_the_env_is_in_the_table() -> None:
    assert {*FORMS, Format.ENV} == {*Format}


def test_every_form_gives_the_same_answer_to_every_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    disagreements = 0
    lines = ["".join(f"{form.value:>12}" for form in FORMS)]
    for job, node, words, meaning, code in ANSWERS:
        made = report(job, node, words, code)
        told = {form: read(render_as(form, made)) for form, read in FORMS.items()}
        disagreements += sum(each != meaning for each in told.values())
        cells = "".join(f"{each:>12}" for each in told.values())
        lines.append(f"{cells}  exit {code}  {words} (job: {job.value})")
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, f"{disagreements} disagreements", ""]))
    assert disagreements == 0


@pytest.mark.parametrize(
    "form", [Format.CONSOLE, Format.MARKDOWN, Format.HTML, Format.DRAIN, Format.TICKET, Format.NAGIOS]
)
@pytest.mark.parametrize(("job", "node", "words", "meaning", "code"), ANSWERS)
def test_forms_for_people_use_the_same_words(
    form: Format, job: Verdict, node: NodeVerdict | Gap, words: str, meaning: str, code: int
) -> None:
    assert words.lower() in render_as(form, report(job, node, words, code)).lower(), meaning
