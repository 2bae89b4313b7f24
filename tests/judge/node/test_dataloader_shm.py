from __future__ import annotations

from preflight.judge.node.dataloader_overcommit import dataloader_shm
from preflight.judge.node.shm import shm_too_small
from preflight.model.facts import Gap
from preflight.model.finding import Severity
from tests.judge.findings import found, on_gpus, only, skips
from tests.node_facts import GIB, MIB, case, contained, gpu_case, gpu_node, node, shm


def test_a_gib_for_eight_ranks_is_fine() -> None:
    assert found(dataloader_shm, gpu_case(nodes=(gpu_node(8, shm=shm(GIB)),), world_size=8)) == ()


def test_dockers_default_is_too_small_for_the_batches_of_one_gpu_that_needs_no_nccl() -> None:
    run = gpu_case(nodes=(contained(gpu_node(1, shm=shm(64 * MIB))),), world_size=1)
    finding = only(found(dataloader_shm, run))
    assert finding.severity is Severity.WARN
    assert "--shm-size=1g" in finding.fix
    assert found(shm_too_small, run) == ()


def test_where_nccl_itself_has_no_room_only_one_check_speaks() -> None:
    facts = gpu_node(shm=shm(32 * MIB))
    assert on_gpus(dataloader_shm, facts) == ()
    assert only(on_gpus(shm_too_small, facts)).severity is Severity.WARN


def test_without_gpus_it_is_a_note() -> None:
    assert only(found(dataloader_shm, case(nodes=(node(shm=shm(200 * MIB)),)))).severity is Severity.INFO


def test_a_dev_shm_that_could_not_be_read_skips_the_check() -> None:
    assert skips(dataloader_shm, gpu_case(nodes=(gpu_node(shm=Gap("denied")),)))[0].reason == "denied"
