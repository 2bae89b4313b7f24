"""`check` and `bench` take collectives and sizes in nccl-tests' words; what `check` is to leave out it does not run."""

from __future__ import annotations

import pytest

from preflight.check import options
from preflight.errors import UsageError
from preflight.model.collective import Collective
from preflight.model.finding import CheckOutcome
from preflight.model.profile import ALL_TESTS, GpuTests
from preflight.model.saved_report import load_report
from tests.command import Command

pytestmark = pytest.mark.heavy(6)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1K:8K", (1024, 2048, 4096, 8192)),
        ("8:128:4", (8, 32, 128)),
        ("8:100", (8, 16, 32, 64)),
        ("1m", (1 << 20,)),
    ],
)
def test_sizes_are_read_as_nccl_tests_reads_them(text: str, sizes: tuple[int, ...]) -> None:
    assert options.parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "1K:", "2K:1K", "1:8", "12:64", "8:16:1", "8:1T", "1G:99G", "8-16"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sizes"):
        options.parse_sizes(text)


def test_collectives_have_nccl_tests_names_too() -> None:
    names = "all_reduce_perf,alltoall, Broadcast,all_reduce"
    assert options.parse_collectives(names) == (Collective.ALL_REDUCE, Collective.ALL_TO_ALL, Collective.BROADCAST)
    assert options.parse_collectives("all") == tuple(Collective)
    with pytest.raises(UsageError, match="sendrecv"):
        options.parse_collectives("all_reduce,sendrecv")


def test_bench_measures_what_it_was_asked_for(command: Command) -> None:
    asked = ("--collectives", "broadcast", "--sizes", "1K:4K")
    ran = command.run("bench", "--backend", "gloo", "--nproc", "1", "--profile", "quick", "--json", "-", *asked)
    results = [(each["collective"], each["size_bytes"]) for each in ran.document["trials"][0]["results"]]
    assert sorted(results) == [("broadcast", 1024), ("broadcast", 2048), ("broadcast", 4096)], ran.stderr


def test_tests_are_named_beside_the_collectives() -> None:
    assert options.parse_tests("Pairs, gpus") == {GpuTests.PAIRS, GpuTests.GPUS}
    assert options.parse_tests("collectives") == frozenset()
    assert options.parse_tests("all") == ALL_TESTS
    with pytest.raises(UsageError, match=r"--tests pears: .*did you mean pairs"):
        options.parse_tests("gpus,pears")


def test_a_check_measures_what_it_was_asked_for_and_says_in_every_form_what_was_left_out(command: Command) -> None:
    forms = ("junit", "html", "markdown", "console")
    ran = command.run(
        "check", "--backend", "gloo", "--nproc", "1", "--collectives", "broadcast_perf", "--sizes", "1K:4K:4",
        "--skip", "shm-stale,nofile", *(f"--also={form}={form}" for form in forms),
        env={"PREFLIGHT_CHECK_SKIP": "pids"},
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    report = load_report((command.cwd / "preflight-report.json").read_text(), "the report")
    assert [(each.collective.value, each.size_bytes) for each in report.trials[0].results] == [
        ("broadcast", 1024), ("broadcast", 4096),
    ]  # fmt: skip
    ended = {each.check: (each.outcome, each.reason) for each in report.checks}
    assert ended["shm-stale"] == ended["nofile"] == (CheckOutcome.NOT_RUN, "skipped by --skip")
    assert ended["pids"][0] is CheckOutcome.PASSED, "the command line comes before the variable"
    asked = "--collectives broadcast_perf --sizes 1K:4K:4 --skip nofile,shm-stale"
    assert report.narrowed == asked
    for form in forms:
        text = " ".join((command.cwd / form).read_text().split())
        assert "skipped by --skip" in text, form
        assert asked in text or form == "junit", form
    assert " 2 not run" in ran.stdout
    assert f"Reduced check ({asked}): a full check covers more" in " ".join(ran.stdout.split())


def test_a_check_that_is_not_there_is_an_error_that_names_the_nearest(command: Command) -> None:
    ran = command.run("check", "--skip", "nofile,nvlink-dwn")
    assert (ran.code, ran.stdout) == (2, "")
    assert "--skip nvlink-dwn: there is no such check; did you mean nvlink-down?" in ran.stderr
    assert list(command.cwd.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "most_lines", "has_table"), [((), 24, False), (("-q",), 1, False), (("-v",), 100, True)]
)
def test_bench_prints_one_screen_one_line_or_nccl_tests_table(
    command: Command, options: tuple[str, ...], most_lines: int, has_table: bool
) -> None:
    asked = ("bench", "--backend", "gloo", "--profile", "quick", "--sizes", "1K")
    ran = command.run(*asked, *options, env={"PREFLIGHT_VERBOSE": ""})
    assert (ran.code, ran.stderr) == (0, ""), ran.stdout
    assert len(ran.stdout.splitlines()) <= most_lines
    assert ("# Out of bounds values : 0 OK" in ran.stdout) is has_table
    assert ("READY  2 ranks" in ran.stdout) is not has_table
