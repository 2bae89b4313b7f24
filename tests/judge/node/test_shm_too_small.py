from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from preflight.judge.node.shm import shm_too_small
from preflight.judge.node_limits import nccl_shm_bytes
from preflight.model.facts import ContainerKind, Gap
from preflight.model.finding import Blame, Severity
from tests.judge.findings import found, on_gpus, only, skips
from tests.node_facts import GIB, MIB, case, contained, failed_with, gpu_case, gpu_node, node, shm, trial

DOCKER = contained(gpu_node(shm=shm(64 * MIB)))
NCCL_TEXT = "Error while creating shared memory segment /dev/shm/nccl-4QWzIv (size 9637888)"


def test_dockers_default_of_64_mib_is_too_small_for_two_gpus() -> None:
    finding = only(on_gpus(shm_too_small, DOCKER))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.CONTAINER)
    assert "--shm-size=1g" in finding.fix


def test_the_1_gib_that_nvidia_recommends_is_enough_for_eight_gpus() -> None:
    assert found(shm_too_small, gpu_case(nodes=(gpu_node(8, shm=shm(GIB)),), world_size=8)) == ()


def test_a_host_is_told_to_remount() -> None:
    finding = only(on_gpus(shm_too_small, gpu_node(shm=shm(32 * MIB))))
    assert finding.blame is Blame.HOST
    assert "mount -o remount" in finding.fix


def test_it_is_the_free_room_that_counts() -> None:
    assert only(on_gpus(shm_too_small, gpu_node(shm=shm(GIB, free_bytes=8 * MIB)))).severity is Severity.WARN


def test_a_trial_that_failed_for_want_of_room_fails_the_run() -> None:
    finding = only(found(shm_too_small, gpu_case(failed_with(NCCL_TEXT), nodes=(DOCKER,))))
    assert finding.severity is Severity.FAIL
    assert any("nccl-4QWzIv" in evidence.value for evidence in finding.evidence)


def test_it_stays_a_warning_where_a_candidate_works() -> None:
    cure = trial("shm-off", env=(("NCCL_SHM_DISABLE", "1"),))
    assert only(found(shm_too_small, gpu_case(failed_with(NCCL_TEXT), cure, nodes=(DOCKER,)))).severity is Severity.WARN


def test_a_bus_error_proves_something_only_where_there_is_little_room() -> None:
    crash = failed_with("Bus error (core dumped)")
    assert found(shm_too_small, gpu_case(crash)) == ()
    assert only(found(shm_too_small, gpu_case(crash, nodes=(DOCKER,)))).severity is Severity.FAIL


def test_gloo_needs_no_shared_memory() -> None:
    assert only(found(shm_too_small, case(nodes=(contained(node(shm=shm(64 * MIB))),)))).severity is Severity.INFO


def test_probe_counts_the_gpus_and_says_nothing_without_any() -> None:
    small = shm(64 * MIB)
    assert only(found(shm_too_small, gpu_case(nodes=(gpu_node(shm=small),), world_size=0))).severity is Severity.WARN
    assert found(shm_too_small, case(nodes=(node(shm=small),), world_size=0)) == ()


def test_a_dev_shm_that_could_not_be_read_skips_the_check() -> None:
    skipped = skips(shm_too_small, gpu_case(nodes=(gpu_node(shm=Gap("statvfs: permission denied")),)))
    assert skipped[0].reason == "statvfs: permission denied"


def test_kubernetes_gets_its_own_fix() -> None:
    assert "emptyDir" in only(on_gpus(shm_too_small, contained(DOCKER, ContainerKind.KUBERNETES))).fix


@given(st.integers(0, 64))
def test_more_ranks_never_need_less(ranks: int) -> None:
    assert nccl_shm_bytes(ranks + 1) >= nccl_shm_bytes(ranks)
