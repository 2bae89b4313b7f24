"""The first screen of `preflight probe`: a conclusion for each kind of answer, on one screen."""

from __future__ import annotations

import pytest

from preflight.check.survey import survey_capture
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Blame, Finding, Severity, SkippedCheck
from preflight.show.probe_page import probe_page
from preflight.show.screen import ROWS
from preflight.show.text import Detail, Style, width_of
from tests.conftest import PROJECT
from tests.reports import node_facts
from tests.show.outputs import keep_screen

MACHINES = PROJECT / "tests" / "machines"
LOST = Finding(
    "gpu-lost", Blame.GPU, Severity.FAIL, "n1 GPU 3", "the GPU has fallen off the bus", "reboot, then RMA", ()
)
CRASHED = SkippedCheck("memlock", Blame.HOST, "KeyError: 'x'", crashed=True)


@pytest.mark.parametrize(("name", "gpus"), [("h100x8", None), ("l20x10_ens34", "6,7,8,9")])
def test_a_machine_has_a_conclusion(name: str, gpus: str | None) -> None:
    found = survey_capture((MACHINES / f"{name}.json").read_text(encoding="utf-8"), gpus)
    page = probe_page(found.node, *found.checked, 0, found.gpu_set, found.expected).shown(Detail.SCREEN, Style())
    keep_screen(f"probe_{name}", page)


@pytest.mark.parametrize(
    ("name", "findings", "skipped", "exit_code"), [("fault", (LOST,), (), 1), ("unknown", (), (CRASHED,), 3)]
)
def test_what_was_found_and_what_could_not_look_differ(
    name: str, findings: tuple[Finding, ...], skipped: tuple[SkippedCheck, ...], exit_code: int
) -> None:
    keep_screen(
        f"probe_{name}", probe_page(node_facts(), findings, skipped, (), exit_code).shown(Detail.SCREEN, Style())
    )


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (node_facts(), "no NVIDIA GPU on the PCI bus"),
        (node_facts(nvidia_pci=Gap("no /sys")), "GPUs unknown (libnvidia-ml.so.1: not there)"),
        (node_facts(gpus=()), "no GPU"),
        (node_facts(nics=Gap("no /sys")), "NICs unknown"),
    ],
)
def test_what_could_not_be_read_is_unknown_and_never_none(node: NodeFacts, words: str) -> None:
    assert words in probe_page(node, (), (), (), 0).shown(Detail.VERDICT, Style())
    assert words in " ".join(probe_page(node, (), (), (), 0).shown(Detail.SCREEN, Style()).split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_whatever_was_found_is_one_screen(width: int) -> None:
    long = "x" * 300 + " words" * 50
    many = tuple(Finding(f"check-{i}", Blame.HOST, Severity.WARN, long, long, long, ()) for i in range(40))
    lines = probe_page(node_facts(host="h" * 300), many, (), (), 0).shown(Detail.SCREEN, Style(width)).splitlines()
    assert len(lines) <= ROWS
    assert all(width_of(line) <= width for line in lines)
