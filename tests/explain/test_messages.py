"""Every message names its cause alone, in every wrapping in which logs carry it; what is benign names none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from preflight.explain.cause import all_causes
from preflight.model.explanation import ExplainVerdict
from tests.explain.logs import cause_of, cause_of_lines, explain_bytes
from tests.explain.messages import BENIGN, MESSAGES
from tests.explain.messages_by_vendor import BY_VENDOR
from tests.explain.variants import ELSEWHERE, HARMLESS, VARIANTS

KNOWN = (MESSAGES, VARIANTS, ELSEWHERE, BY_VENDOR)
CASES = [(cause, m) for known in KNOWN for cause, messages in known.items() for m in messages]
DECORATIONS: dict[str, Callable[[str], str]] = {
    "srun -l": lambda line: f"12: {line}",
    "mpirun": lambda line: f"[1,23]<stderr>:{line}",
    "torchrun": lambda line: f"[default3]:{line}",
    "kubernetes": lambda line: f"2026-01-09T17:40:31.169312Z trainer-0 {line}",
    "ray": lambda line: f"\x1b[36m(RayWorkerWrapper pid=4711, ip=10.1.2.4)\x1b[0m {line}",
    "markdown quote": lambda line: f"> {line}",
    "progress bar": lambda line: f"\r 12%|█▏        | 12/100 [00:12<01:28,  1.01s/it]{line}",
    "carriage returns": lambda line: f"{line}\r",
    "NUL bytes": lambda line: f"\0\0{line}\0",
}


@pytest.mark.parametrize(("cause", "message"), CASES, ids=[f"{cause}-{i}" for i, (cause, _) in enumerate(CASES)])
def test_a_message_names_its_cause(cause: str, message: str) -> None:
    assert cause_of_lines([message]) == cause


@pytest.mark.parametrize("where", sorted(DECORATIONS))
def test_a_prefix_changes_no_cause(where: str) -> None:
    decorate = DECORATIONS[where]
    bare_lines = ("Killed",)
    wrong = []
    for cause, message in CASES:
        lines = [decorate(line) for line in message.split("\n")]
        if cause not in ("not_nccl", "host_oom_killed") and not message.endswith(bare_lines):
            named = cause_of("\n".join(lines).encode() + b"\n")
            wrong += [(message, named)] if named != cause else []
    assert wrong == []


@pytest.mark.parametrize("message", (*BENIGN, *HARMLESS))
def test_what_is_seen_in_healthy_runs_is_no_cause(message: str) -> None:
    lines = [line for step in range(3) for line in (message, f"{{'loss': 1.{step}}}", f"step {step}")]
    assert explain_bytes("\n".join(lines).encode()).causes == ()


def test_a_plugin_that_only_some_hosts_found_is_named() -> None:
    lines = [
        "node-1:4411:4420 [0] NCCL INFO Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
        "node-2:4411:4420 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    ]
    assert cause_of_lines(lines) == "nccl_plugin_problem"
    assert cause_of_lines([line.replace("node-2", "node-1") for line in lines]) == "unfinished"


def test_an_address_that_the_socket_transport_refuses_is_another_plugin_s_and_no_missing_interface() -> None:
    node = "node-1:4411:4420 [0] "
    refused = f"{node}misc/socket.cc:717 NCCL WARN ncclSocketInit: connecting to address with family 33022 is neither AF_INET(2) nor AF_INET6(10)"  # noqa: E501
    in_transport = [f"{node}NCCL INFO transport/net_socket.cc:331 -> 3", f"{node}NCCL INFO transport/net.cc:687 -> 3"]
    assert cause_of_lines([refused, *in_transport]) == "nccl_plugin_problem"
    assert cause_of_lines([refused, f"{node}NCCL INFO bootstrap.cc:554 -> 3"]) == "wrong_socket_interface"
    missing = f"{node}bootstrap.cc:68 NCCL WARN Bootstrap : no socket interface found"
    assert cause_of_lines([missing, *in_transport]) == "wrong_socket_interface"


def test_every_cause_of_the_list_has_a_file_of_its_own() -> None:
    inferred = {
        "checkpoint_save_timeout",
        "data_preprocessing_on_rank0_timeout",
        "found_by_stuck",
        "hang_no_error",
        "teardown_after_success",
        "device_mapping_unknown",
        "variables_differ",
    }
    assert {cause.id for cause in all_causes()} == set(MESSAGES) | set(BY_VENDOR) | inferred


@pytest.mark.parametrize("cause", sorted({**MESSAGES, **BY_VENDOR}))
def test_a_cause_comes_with_evidence_a_remedy_and_a_way_to_confirm_it(cause: str) -> None:
    named = explain_bytes({**BY_VENDOR, **MESSAGES}[cause][0].encode() + b"\n").causes[0]
    assert named.evidence and named.remedy and named.confirm_with


SEGMENT = "shared memory segment /dev/shm/nccl-a1 (size 4460544)"
FULL = f"creating {SEGMENT}, error: No space left on device (28)"
MISSING = f"attaching to {SEGMENT}, error: No such file or directory (2)"


@pytest.mark.parametrize(
    ("answers", "words", "enlarges"),
    [
        ([f"creating {SEGMENT}, error: Permission denied (13)"], "1777", False),
        ([MISSING], "another container or IPC namespace", False),
        ([FULL], "too small or full", True),
        ([FULL, MISSING], "too small or full", True),
        ([MISSING, FULL], "too small or full", True),
        ([f"attaching to {SEGMENT}, error: Permission denied (13)"], "another user", False),
    ],
    ids=["denied", "missing", "full", "full-first", "missing-first", "somebody-else's"],
)  # fmt: skip
def test_headline_and_steps_of_shared_memory_are_by_what_the_kernel_answered(
    answers: list[str], words: str, enlarges: bool
) -> None:
    lines = [f"n1:1{i}:1{i} [{i}] misc/shmutils.cc:129 NCCL WARN Error while {each}" for i, each in enumerate(answers)]
    explanation = explain_bytes("\n".join([*lines, "ncclSystemError: System call failed", ""]).encode())
    assert explanation.causes[0].cause == "shm_too_small" and words in explanation.summary
    assert ("enlarge" in explanation.causes[0].remedy) is enlarges


def test_without_a_timeout_preparing_data_is_not_what_the_ranks_waited_for() -> None:
    prepared = "[NeMo I utils:47] Build and save the GPTDataset train indices\n"
    down = (
        "[rank0]:[E ProcessGroupNCCL.cpp:570] [Rank 0] To avoid data inconsistency, we are taking the process down.\n"
    )
    timed_out = (
        "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3) ran for 600001 ms\n"
    )
    late = "data_preprocessing_on_rank0_timeout"
    assert late not in {each.cause for each in explain_bytes((prepared + down).encode()).causes}
    assert late in {each.cause for each in explain_bytes((prepared + timed_out + down).encode()).causes}


def test_a_benchmark_that_prints_speeds_is_no_start_that_hangs() -> None:
    start = "".join(f"n1:1{i}:1{i} [{i}] NCCL INFO Bootstrap : Using ib0:10.1.8.3<0>\n" for i in range(4))
    assert explain_bytes(start.encode()).causes[0].cause == "hang_no_error"
    assert explain_bytes(f"{start} busbw: 40.4923  Gbps\n".encode()).verdict is ExplainVerdict.UNFINISHED


def test_a_handshake_of_nixl_that_failed_is_a_lost_peer() -> None:
    log = (
        b"(Worker_TP0 pid=465) ERROR 05-01 16:00:23 [nixl_connector.py:1263] NIXL transfer failure: handshake_failed\n"
    )
    assert explain_bytes(log).causes[0].cause == "remote_peer_died"


def test_only_addresses_that_changed_before_a_lost_message_are_the_first_step() -> None:
    lost = "n1:8:5 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 9, vendor err 129\n"
    changed = "n1:7:6 [0] transport/net_ib.cc:73 NCCL WARN NET/IB : Got async event : GID table change\n"
    for log, is_first in ((changed + lost, True), (lost, False), (lost + changed, False)):
        cause = explain_bytes(log.encode()).causes[0]
        assert cause.cause == "ib_broken" and ("ip monitor address" in cause.remedy.split("\n")[0]) is is_first
