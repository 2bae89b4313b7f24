"""What the third review (gpu-machines.md) found of machines with GPUs: each finding has a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.check.recommend.env import recommend
from preflight.explain.failed_trial import with_cause
from preflight.judge.check import Check, all_checks, run_checks
from preflight.judge.node.inherited_env import inherited_env
from preflight.judge.node.shm import shm_too_small
from preflight.judge.run.p2p import p2p_data
from preflight.model.collective import Collective
from preflight.model.device_job import DeviceJob, JobKind
from preflight.model.finding import Blame, CheckOutcome, Finding, Severity, Unseen
from preflight.model.gpu_test import CopyBy, Ending
from preflight.model.profile import Profile
from preflight.model.report import NodeVerdict, Report
from preflight.model.trial import AS_IS, IN_START, Candidate, LogLine, Outcome, RankEnd, TrialResult
from preflight.model.xids import UNLISTED, row_of
from preflight.search.gpus.gpu_tests import device_plan
from preflight.search.settings.steps import Known
from preflight.search.settings.suspicion import suspected_families
from preflight.trial.rank.gpu_tests import time_pair
from tests.accept.machines import MACHINES, Machine
from tests.accept.play import play
from tests.gpus import gpu
from tests.hardware import hardware, pair
from tests.judge.findings import found
from tests.node_facts import GIB, MIB, env, failed_with, gpu_case, gpu_node, result, shm, trial
from tests.nvmlsim.machine import NOT_SUPPORTED, SimMachine
from tests.nvmlsim.machines import A100X4, RTX4090X2
from tests.search.flapping import SETTINGS
from tests.search.searching import search

H100 = MACHINES["8 x H100 SXM, NVSwitch"]
EFA = MACHINES["8 x H100 in a virtual machine with EFA"]
PEER = tuple(f"{rank}>{(rank + 1) % 8} via P2P/CUMEM" for rank in range(8))
SHARED = tuple(f"{rank}>{(rank + 1) % 8} via SHM/direct/direct" for rank in range(8))
SIZES = (8, MIB, 32 * MIB, GIB)


def reaching(gb_s: float, *carriers: str, sizes: tuple[int, ...] = SIZES, **overrides: Any) -> TrialResult:
    """Return a trial of 8 ranks that reaches so much busbw with its large all-reduces."""
    results = tuple(result(size_bytes=size, own_us=(max(60.0, size * 1.75 / gb_s / 1e3),) * 8) for size in sizes)
    return trial(world_size=8, transport=carriers, results=results, **overrides)


def alarms(report: Report) -> list[str]:
    """Return the names of the checks that warn or fail."""
    return [finding.check for finding in report.findings if finding.severity is not Severity.INFO]


def text_of(findings: tuple[Finding, ...]) -> str:
    """Return all that findings say."""
    return "\n".join(f"{each.subject}\n{each.problem}\n{each.fix}\n{each.evidence}" for each in findings)


DEFAULT = replace(reaching(467, *PEER, "NVLS"), unset=("NCCL_P2P_DISABLE",))
INHERITED = replace(reaching(12, *SHARED), candidate=AS_IS, trial_env=(("NCCL_P2P_DISABLE", "1"),))


def test_inherited_settings_that_cost_a_factor_of_39_are_a_warning_at_least(tmp_path: Path) -> None:
    assert alarms(play(H100, tmp_path, DEFAULT, INHERITED)) != []


def test_nothing_is_called_harmless_that_was_not_compared() -> None:
    advice = recommend((DEFAULT, INHERITED), (), env(NCCL_P2P_DISABLE="1"), cpu_path=False)
    assert "not clearly slower" not in advice.reason


XML = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, internal error - please report this issue to "
    "the NCCL developers, NCCL version 2.27.5\nncclInternalError: Internal check failed.\nLast error:\n"
    "XML Parse : unterminated cpu"
)


def test_a_topology_file_that_nccl_can_not_parse_is_named_and_accuses_no_host() -> None:
    broken = with_cause(failed_with(XML, Outcome.INIT_ERROR, trial_env=(("NCCL_TOPO_FILE", "/etc/topo.xml"),)))
    inherits = gpu_node(environment=env(NCCL_TOPO_FILE="/etc/topo.xml"))
    findings, _, _ = run_checks(all_checks(), gpu_case(broken, nodes=(inherits,)))
    failed = tuple(each for each in findings if each.severity is Severity.FAIL)
    assert "NCCL_TOPO_FILE" in text_of(failed)
    assert {each.blame for each in failed} == {Blame.CONFIGURATION}


def test_sockets_beside_efa_warn_as_they_do_beside_infiniband(tmp_path: Path) -> None:
    took_sockets = reaching(470, *PEER, "NVLS", "network Socket", "netif ens32")
    assert alarms(play(H100, tmp_path / "ib", took_sockets)) == ["silent-fallback"]
    assert alarms(play(EFA, tmp_path / "efa", took_sockets)) != []


@pytest.mark.parametrize("measured", ["small sizes", "another collective"])
def test_nvls_is_missed_only_where_nccl_would_have_chosen_it(tmp_path: Path, measured: str) -> None:
    if measured == "small sizes":
        default = reaching(470, *PEER, "network IB", sizes=(8, MIB))
    else:
        gathered = (result(Collective.ALL_GATHER, GIB, (2600.0,) * 8),)
        default = trial(world_size=8, transport=(*PEER, "network IB"), results=gathered)
    assert alarms(play(replace(H100, has_nvls=False), tmp_path, default)) == []


XID = "NVRM: Xid (PCI:0000:18:00{}): {}"


@pytest.mark.parametrize("number", [167, 171, 172, 173, 175])
def test_an_xid_of_a_fatal_error_that_the_newest_drivers_have_rejects_the_node(tmp_path: Path, number: int) -> None:
    report = play(H100, tmp_path, xids=(XID.format("", f"{number}, pid=4242, name=python3"),))
    assert report.node_verdict is NodeVerdict.REJECT


def test_lost_memory_has_a_row_among_the_xids() -> None:
    assert row_of(168) is not UNLISTED


def test_the_xid_of_a_mig_instance_is_read_as_that_of_a_gpu(tmp_path: Path) -> None:
    report = play(H100, tmp_path, xids=(XID.format(" GPU-I:05", "48, pid=4242, name=python3"),))
    assert report.node_verdict is NodeVerdict.REJECT


def test_nccls_line_of_timings_and_the_plain_network_make_no_socket_suspect() -> None:
    timing = "node1:7:9 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nranks 2 - Init COMPLETE"
    timing += "\ngpu1:7:9 [0] NCCL INFO Init timings: total 0.49 (kernels 0.11, bootstrap 0.17, allgathers 0.01)"
    log = tuple(LogLine(number, line) for number, line in enumerate(timing.splitlines(), 1))
    ends = tuple(RankEnd(rank, "stuck", "first", "", "nccl/0.log", log) for rank in range(2))
    carriers = ("0>1 via P2P/CUMEM", "network Socket", "netif eth0")
    hung = trial(outcome=Outcome.HANG, problem="hung: ranks 0 and 1", ranks=ends, transport=carriers)
    families = suspected_families(hung, ((0, 1),), ())
    assert "p2p" in families
    assert "socket" not in families


def test_a_gpu_whose_cublas_has_no_bfloat16_multiplies_none() -> None:
    p100 = gpu(0, name="Tesla P100-PCIE-16GB", compute_capability="6.0")
    plan = device_plan(Profile.QUICK, (p100,), gpu_node(1, gpus=(p100,)))
    jobs = [job for each in plan.rounds for group in each.groups for job in group.jobs]
    assert {product.dtype for job in jobs for product in job.products} == {"float32"}


def _answering(machine: SimMachine, code: str, *calls: str) -> SimMachine:
    answers = {f"{call}/{i}": code for call in calls for i in range(len(machine.gpus))}
    return replace(machine, answers={**machine.answers, **answers})


def test_shared_memory_between_gpus_that_the_driver_keeps_apart_is_no_warning(tmp_path: Path) -> None:
    """The 4090 has no peer access by nature, whatever switch it sits below."""
    one = RTX4090X2.gpus[0]
    eight = tuple(replace(one, bus=f"00000000:{0x18 + i:02X}:00.0", numa=i // 4) for i in range(8))
    near = {(a, a + 1): 10 for a in range(0, 8, 2)}
    machine = replace(RTX4090X2, name="8 x 4090", gpus=eight, cpus=("0-31", "32-63"), ancestors=near)
    assert alarms(play(Machine(machine, transport="SHM/direct/direct"), tmp_path)) == []


def test_a_virtual_gpu_without_a_pcie_link_can_be_accepted(tmp_path: Path) -> None:
    part = replace(A100X4.gpus[0], name="GRID A100-40C", links=(), ecc=None, remap=None, mig=None)
    two = tuple(replace(part, bus=each.bus, numa=each.numa) for each in A100X4.gpus[:2])
    machine = replace(A100X4, name="vGPU guest", gpus=two, p2p={}, p2p_default=(5, 5, 5, 5, 5))
    pcie = ("MaxPcieLinkGeneration", "CurrPcieLinkWidth", "CurrPcieLinkGeneration", "MaxPcieLinkWidth")
    calls = (*pcie, "GpuMaxPcieLinkGeneration", "PcieReplayCounter")
    machine = _answering(machine, NOT_SUPPORTED, *(f"nvmlDeviceGet{call}" for call in calls))
    report = play(Machine(machine, transport="SHM/direct/direct"), tmp_path)
    assert [each.check for each in report.skipped_checks if each.costs is Unseen.ACCEPTANCE] == []


def test_a_variable_that_makes_nobody_wait_and_the_watchdog_do_nothing_is_a_warning() -> None:
    node = gpu_node(environment=env(TORCH_NCCL_BLOCKING_WAIT="1"))
    assert [each.severity for each in found(inherited_env, gpu_case(nodes=(node,)))] == [Severity.WARN]


def test_a_small_shm_over_which_the_trial_has_just_passed_is_no_warning() -> None:
    passed = trial(transport=("0>1 via SHM/direct/direct", "1>0 via SHM/direct/direct"))
    findings = found(shm_too_small, gpu_case(passed, nodes=(gpu_node(shm=shm(64 * MIB)),)))
    assert [each for each in findings if each.severity is not Severity.INFO] == []


def test_a_kernel_that_fails_in_preflights_own_trial_is_no_mistake_of_a_program() -> None:
    crashed = with_cause(failed_with("torch.AcceleratorError: CUDA error: unspecified launch failure"))
    assert "CUDA error: unspecified launch failure" in crashed.ranks[1].detail
    assert "illegal memory access" not in crashed.problem
    assert "device-side assertion" not in crashed.problem


def test_where_the_default_passes_nobody_is_told_to_switch_peer_access_off() -> None:
    tests = hardware(2, pairs=(pair(end=Ending.HANG, problem="silent for 10 s"),))
    (finding,) = found(p2p_data, gpu_case(trial(transport=("0>1 via P2P/CUMEM",)), hardware=tests))
    assert finding.severity is Severity.FAIL
    assert "NCCL_P2P" not in finding.fix


class SlowLink:
    """Devices between which 10 GB/s cross, counted where they arrive; no other call is made by what times a pair."""

    def allocate(self, place: int, elements: int, wide: bool) -> int:
        return elements * (8 if wide else 4)

    def time_copies(self, transfers: list[tuple[int, int]], repeats: int) -> float:
        return repeats * sum(target for _, target in transfers) / 10e9


def test_the_speed_of_a_copy_by_kernel_counts_what_crosses_the_link() -> None:
    told: list[dict[str, Any]] = []
    job = DeviceJob(JobKind.PAIR_SPEED, (0, 1), (64 * MIB,), 0.05)
    time_pair(SlowLink(), job, told.append)  # type: ignore[arg-type]
    speeds = {each["speed"]["by"]: each["speed"]["gb_s"] for each in told if "speed" in each}
    assert speeds == pytest.approx({CopyBy.COPY_ENGINE.value: 10.0, CopyBy.SM.value: 10.0})


FULL = (
    "4096 bytes by copy_engine, a_to_b: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 1 has a total capacity of "
    "79.19 GiB of which 12.06 MiB is free. Process 4242 has 78.90 GiB memory in use. Of the allocated memory 1.00 GiB "
    "is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
    "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
    "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def test_of_torchs_out_of_memory_text_a_check_repeats_the_first_sentence() -> None:
    tests = hardware(2, pairs=(pair(end=Ending.INCONCLUSIVE, problem=FULL),))
    check: Check = p2p_data
    (ran,) = run_checks((check,), gpu_case(hardware=tests)).ran
    assert ran.outcome is CheckOutcome.COULD_NOT_LOOK
    assert "CUDA out of memory" in ran.reason
    assert "PYTORCH_ALLOC_CONF" not in ran.reason


def test_after_a_kill_from_outside_the_default_is_tried_again_before_any_setting() -> None:
    killed = tuple(RankEnd(rank, "signal", "init", "died by SIGKILL") for rank in range(2))
    tried: list[Candidate] = []

    def run(candidate: Candidate) -> TrialResult:
        tried.append(candidate)
        if len(tried) == 1:
            return trial(outcome=Outcome.INIT_ERROR, ranks=killed, problem="rank 0 was killed", failed_in=IN_START)
        return trial(candidate.name, env=candidate.env, reason=candidate.reason)

    search(SETTINGS, run, known=Known(seed=1, left_s=170.0))
    assert [candidate.env for candidate in tried[:2]] == [(), ()]
