"""Each row of known_bugs.toml is held: source, range, plain words, and a line or a frame that proves its symptom."""

from __future__ import annotations

import re

import pytest

from preflight.explain.causes.known_bug import ID
from preflight.explain.effects import EFFECTS
from preflight.model.explanation import Explanation
from preflight.model.known_bugs import BugFit, Effect, KnownBug, Surroundings, fitting
from preflight.show.explain import explain_page
from preflight.show.text import Detail, Style
from preflight.system.known_bugs import load_known_bugs
from tests.explain.logs import explain_bytes

BUGS = load_known_bugs()
COMPONENTS = {"NCCL", "torch", "driver", "kernel", "vLLM", "flashinfer", "aws-ofi-nccl", "Fabric Manager", "HAMi-core"}
VERSION = re.compile(r"\d{1,3}(?:\.\d{1,3}){0,2}(?:-\d{1,4})?")
MOST_CHARS = 125  # of what is said: it stands in two lines of a page
BIRTH = {"NCCL": "2.1", "torch": "1.0", "driver": "300", "vLLM": "0.1", "aws-ofi-nccl": "0.9", "flashinfer": "0.0.1"}


def by_id(name: str) -> KnownBug:
    return next(bug for bug in BUGS if bug.id == name)


def test_there_are_enough_rows_and_each_has_a_name_of_its_own() -> None:
    assert len(BUGS) >= 60
    assert len({bug.id for bug in BUGS}) == len(BUGS)
    assert {bug.component for bug in BUGS} == COMPONENTS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_row_has_a_source_a_range_and_who_looked(bug: KnownBug) -> None:
    assert all(re.match(r"(?:github\.com|docs\.nvidia\.com)/[\w./-]+", each) for each in bug.source.split("; "))
    assert re.match(r"20\d\d-\d\d-\d\d, \S", bug.looked)
    for version in filter(None, (bug.first, bug.last, bug.fixed)):
        assert VERSION.fullmatch(version), version
    assert bug.span or bug.note or bug.read, "a row without a range says in `note` which versions it was seen with"
    assert ("is not stated" in bug.how_sure) is bool(
        bug.component != "Fabric Manager" and not (bug.first and bug.fixed)
    )
    assert not (bug.last and bug.fixed)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_row_is_in_plain_words(bug: KnownBug) -> None:
    assert len(bug.says) <= MOST_CHARS
    assert not bug.says.endswith(".")
    assert not bug.where.endswith(".")
    assert len(bug.do) < 240
    assert not re.search(r"\b(?:issue|fixes|races?)\b #?\d", bug.says)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_row_has_a_proof_of_its_symptom(bug: KnownBug) -> None:
    assert bug.proof
    if bug.line:
        assert re.search(bug.line, bug.proof)
        assert bug.cause
        return
    if bug.frame:
        assert bug.shows_in([bug.proof])
        return
    answer = explain_bytes(f"{bug.proof}\n".encode())
    if bug.effect is Effect.WRONG_DATA:
        assert any("loss is nan" in note for note in answer.notes)
    else:
        assert EFFECTS[answer.causes[0].cause] is bug.effect


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.fixed or bug.last], ids=lambda bug: bug.id)
def test_a_row_fits_the_versions_that_it_names_and_no_others(bug: KnownBug) -> None:
    has = bug.first or bug.last or BIRTH[bug.component]
    assert bug.has(has)
    if bug.fixed:
        assert not bug.has(bug.fixed)
        assert not bug.has(f"{bug.fixed}+cuda13.0")
    if bug.first:
        assert not bug.has("0.0")
    around = Surroundings(
        {bug.component: (has,)}, bug.architecture, ("NVIDIA GB200", "NVIDIA GB300", "NVIDIA GB10"), 4096, 512
    )
    assert bug.fits(around) in (BugFit.YES, BugFit.UNKNOWN) or "GB" not in bug.gpus


def test_what_contradicts_a_row_leaves_it_out_and_what_is_not_known_leaves_it_open() -> None:
    arm = by_id("nccl-lost-proxy-slots-on-arm")
    assert arm.fits(Surroundings({"NCCL": ("2.28.9",)}, "aarch64")) is BugFit.YES
    assert arm.fits(Surroundings({"NCCL": ("2.29.3",)}, "aarch64")) is BugFit.NO
    assert arm.fits(Surroundings({"NCCL": ("2.28.9",)}, "x86_64")) is BugFit.NO
    assert arm.fits(Surroundings({"NCCL": ("2.28.9",)})) is BugFit.UNKNOWN
    assert arm.not_known(Surroundings({"NCCL": ("2.28.9",)})) == ("the CPU's architecture",)
    assert arm.not_known(Surroundings({}, "aarch64")) == ("the version of NCCL",)
    two = Surroundings({"NCCL": ("2.30.7", "2.28.9")}, "aarch64")
    assert arm.fits(two) is BugFit.YES
    assert arm.version_in(two) == "NCCL 2.28.9"
    stack = by_id("nccl-stack-limit-of-nvlink-domains")
    assert stack.fits(Surroundings({"NCCL": ("2.27.5",)}, "aarch64", ("NVIDIA GB200",), 8, 2)) is BugFit.NO
    assert stack.fits(Surroundings({"NCCL": ("2.27.5",)}, "aarch64", ("NVIDIA GB200",), 48, 12)) is BugFit.UNKNOWN


def test_the_surest_comes_first() -> None:
    around = Surroundings({"NCCL": ("2.28.9",)}, "aarch64", ("NVIDIA GB200",), 512, 128)
    found = fitting(BUGS, around)
    assert found[0][0].id == "nccl-lost-proxy-slots-on-arm"
    assert found[0][1] is BugFit.YES
    assert [fit is BugFit.YES for _, fit in found] == sorted((fit is BugFit.YES for _, fit in found), reverse=True)


def test_a_span_is_readable() -> None:
    assert by_id("nccl-network-errors-swallowed").span == "2.26.2 and newer, before 2.28.3"
    assert by_id("nccl-ras-dies-unasked").span == "2.27.7"
    assert by_id("nccl-lost-proxy-slots-on-arm").span == "before 2.29.3"
    assert by_id("nccl-host-memory-differs").span == "2.26.3 and newer"
    assert by_id("driver-patched-p2p").span == ""


def test_a_bugs_own_line_names_it_and_a_version_without_it_does_not() -> None:
    line = by_id("nccl-ras-dies-unasked").proof
    old, new = ("gpu-1:7:7 [0] NCCL INFO NCCL version 2.27.7+cuda12.4", "gpu-1:7:7 [0] NCCL INFO NCCL version 2.28.9")
    named = explain_bytes(f"{old}\n{line}\nSegmentation fault (core dumped)\n".encode()).causes[0]
    assert named.cause == ID
    assert "NCCL 2.27.7" in named.verdict
    assert "NCCL_RAS_ENABLE=0" in named.remedy.split("\n")[0]
    other = explain_bytes(f"{new}\n{line}\nSegmentation fault (core dumped)\n".encode()).causes[0]
    assert other.cause == "segfault_worker"
    untold = explain_bytes(f"{line}\nSegmentation fault (core dumped)\n".encode()).causes[0]
    assert "the log does not show the version" in untold.because


def test_a_line_of_a_hang_counts_only_if_something_timed_out() -> None:
    line = by_id("nccl-unknown-event").proof
    timed_out = by_id("nccl-alltoallv").proof
    assert not explain_bytes(f"{line}\nstep 7 loss 2.1\nTraining finished.\n".encode()).causes
    named = explain_bytes(f"{line}\n{timed_out}\n".encode()).causes[0]
    assert named.cause == ID
    assert "GID table" in named.verdict


ARM = '  File "/usr/lib/aarch64-linux-gnu/libc.so.6", in clone'
OLD, NEW = (
    "tray-1:7:7 [0] NCCL INFO NCCL version 2.28.9+cuda13.0",
    "tray-1:7:7 [0] NCCL INFO NCCL version 2.29.3+cuda13.0",
)


def timed_out(*before: str) -> Explanation:
    return explain_bytes("\n".join((*before, by_id("nccl-alltoallv").proof, "")).encode())


def test_a_timeout_on_a_gb200_with_2_28_9_may_be_the_known_bug_and_its_repair_comes_first() -> None:
    named = timed_out("srun: job 7 on GB200 NVL72", OLD)
    assert "This may be a known bug of NCCL 2.28.9: one rank spins in NCCL" in named.summary
    assert named.causes[0].remedy.startswith("If it is this bug: use NCCL 2.29.3 or newer")
    assert "its makers say so" in named.causes[0].remedy.split("\n")[0]
    page = explain_page(named).shown(Detail.SCREEN, Style(width=80))
    assert "known bug of" in " ".join(page.split())
    assert len(page.splitlines()) <= 24


def test_another_version_or_another_machine_has_no_known_bug() -> None:
    for before in ((ARM, NEW), (OLD,), ("NVIDIA H100 80GB HBM3", OLD), ()):
        assert "known bug" not in timed_out(*before).summary


def test_a_version_that_the_log_does_not_tell_is_said_to_be_unknown() -> None:
    assert "NCCL before 2.29.3 (the log does not show the version)" in timed_out(ARM).summary


def test_a_crash_on_v100_with_2_28_9_may_be_the_known_one() -> None:
    lines = (OLD, "GPU 0: Tesla V100-SXM2-32GB", "[gpu-1:4242] Signal: Segmentation fault (11)", "")
    assert "ranks die by SIGSEGV in ncclCommInitRank on V100" in explain_bytes("\n".join(lines).encode()).summary
    assert "known bug" not in explain_bytes("\n".join(lines[:1] + lines[2:]).encode()).summary


def test_the_version_of_a_plugin_is_read_from_its_own_line() -> None:
    line = "ip-10-0-1-2:7:7 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.20.0"
    assert "This may be a known bug of aws-ofi-nccl 1.20.0" in timed_out(line).summary
    assert "known bug" not in timed_out(line.replace("1.20.0", "1.21.0")).summary
