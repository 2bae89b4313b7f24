from __future__ import annotations

from preflight.judge.node.shm import shm_stale
from preflight.model.finding import Severity
from tests.judge.findings import on, only
from tests.node_facts import MIB, node, shm


def test_an_empty_dev_shm_is_fine() -> None:
    assert on(shm_stale, node()) == ()


def test_a_few_stale_segments_are_worth_a_note_with_the_command() -> None:
    stale = shm(64 * MIB, stale_nccl_files=("nccl-AbC", "/dev/shm/nccl-xyz"), stale_nccl_bytes=9 * MIB)
    finding = only(on(shm_stale, node(shm=stale)))
    assert finding.severity is Severity.INFO
    assert "`rm /dev/shm/nccl-AbC /dev/shm/nccl-xyz`" in finding.fix


def test_stale_segments_that_take_more_than_half_are_a_warning() -> None:
    stale = shm(64 * MIB, stale_nccl_files=("nccl-AbC",), stale_nccl_bytes=33 * MIB)
    assert only(on(shm_stale, node(shm=stale))).severity is Severity.WARN


def test_a_file_name_is_quoted_in_the_command_to_copy() -> None:
    stale = shm(stale_nccl_files=("nccl-$(reboot)",), stale_nccl_bytes=1)
    assert "rm '/dev/shm/nccl-$(reboot)'" in only(on(shm_stale, node(shm=stale))).fix


def test_of_many_segments_a_few_are_named() -> None:
    stale = shm(stale_nccl_files=tuple(f"nccl-{i}" for i in range(50)), stale_nccl_bytes=50)
    assert "the others" in only(on(shm_stale, node(shm=stale))).fix
