"""What a report says of a file of settings that was not written, and of a node that could not be probed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.check.report_builder import unprobed, without_file
from preflight.check.request import Request
from preflight.model.finding import Severity
from preflight.show.verdict import by_weight
from tests.node_facts import advice
from tests.show.outputs import every_report

REPORTS = every_report()
(BLAMED, *_) = (each for each in REPORTS["blame gpu"].findings if each.check == "gpu-recovery")
FIX = "workaround: `source preflight.env` before the job; repair P2P"


@pytest.mark.parametrize(
    ("env", "unset", "fix"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, (), "workaround: `export NCCL_P2P_DISABLE=1` before the job; repair P2P"),
        (
            {"NCCL_SOCKET_IFNAME": "=eth 1"}, ("NCCL_ALGO",),
            "workaround: `export NCCL_SOCKET_IFNAME='=eth 1'; unset NCCL_ALGO` before the job; repair P2P",
        ),
        ({}, (), FIX),
    ],
)  # fmt: skip
def test_a_workaround_names_its_settings_where_no_file_has_them(
    env: dict[str, str], unset: tuple[str, ...], fix: str
) -> None:
    told = without_file(replace(BLAMED, fix=FIX), replace(advice(), env=tuple(env.items()), unset=unset))
    assert told.fix == fix


def test_copies_that_go_wrong_come_before_the_trial_that_failed_for_them() -> None:
    checks = ("straggler", "trial-failed", "p2p-data")
    found = tuple(replace(BLAMED, check=check, severity=Severity.WARN) for check in checks)
    order = by_weight(replace(REPORTS["healthy"], findings=found))
    assert [each.check for each in order] == ["p2p-data", "trial-failed", "straggler"]


def test_memory_that_ran_out_without_a_word_is_named() -> None:
    assert unprobed(Request(), MemoryError()).headline == "unknown: the node could not be probed: MemoryError"
