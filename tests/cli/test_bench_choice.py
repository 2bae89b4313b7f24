"""`preflight bench` takes collectives and sizes in nccl-tests' words."""

from __future__ import annotations

import pytest

from preflight.cli import options
from preflight.errors import UsageError
from preflight.model.collective import Collective
from tests.command import Command


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
