"""Which rank is named when a collective does not end, on torch's own ProcessGroupNCCL.

The fault meets the first process that comes to its twentieth collective on GPU 1: the default's trial, while it times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simcuda.checking import QUICKLY, assert_cured_by, check, machine_of, try_default

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(900)]
KINDS = {
    "never enters": ("RANK_SLEEPS", "hang", {0: "timeout", 1: "stuck"}, "rank 1 hung at timed step"),
    "dies": ("RANK_DIES", "crash", {1: "signal"}, "rank 1 failed at timed step"),
    "is stopped": ("RANK_STOPS", "hang", {0: "timeout", 1: "stopped"}, "rank 1 stopped (process state T)"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_rank_that_keeps_the_others_waiting_is_named(kind: str, tmp_path: Path) -> None:
    fault, outcome, ended, told = KINDS[kind]
    ran = try_default(tmp_path, machine_of("pcie2-pix", 1, **{fault: "1:20"}))
    default = ran.trial("default")
    assert default["outcome"] == outcome and default["culprits"] == [1], ran
    ends = {each["rank"]: each["ended"] for each in default["ranks"]}
    assert ended.items() <= ends.items(), ran
    assert told in default["problem"], default["problem"]


def test_where_a_peer_mapping_loses_the_bytes_all_wait_nobody_is_named_and_p2p_is_switched_off(tmp_path: Path) -> None:
    ran = check(tmp_path, machine_of("pcie2-pix", P2P_LOSES="0-1"), *QUICKLY)
    default = ran.trial("default")
    assert default["outcome"] == "hang" and default["culprits"] == [], ran
    assert {each["ended"] for each in default["ranks"]} == {"timeout"}, ran
    assert "no single rank is identifiable as the cause" in default["problem"]
    assert_cured_by(ran, {"NCCL_P2P_DISABLE": "1"})


def test_where_a_connection_breaks_both_ends_are_told_and_neither_is_named(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("NCCL_P2P_DISABLE=1\nNCCL_SHM_DISABLE=1\n")  # sockets, as between nodes
    network_breaks = machine_of("pcie2-pix", 1, RANK_CUT="1:20")
    ran = try_default(tmp_path, network_breaks, env={"NCCL_CONF_FILE": str(tmp_path / "nccl.conf")})
    default = ran.trial("default")
    assert default["outcome"] == "hang" and default["culprits"] == [], ran
    assert {each["ended"] for each in default["ranks"]} == {"timeout"}, "NCCL 2.27 raises no error that torch could see"
    assert "ranks 0, 1 lost connections to others (socketProgress: Connection closed by" in default["problem"], ran
