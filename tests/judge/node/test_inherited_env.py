from __future__ import annotations

import pytest

from preflight.judge.node.inherited_env import inherited_env, settings_in_force
from preflight.model.facts import Gap, NcclConfEntry
from preflight.model.finding import Blame, Severity
from preflight.model.gpu import Gpu
from tests.gpus import gpu
from tests.judge.findings import on, on_gpus, only, skips
from tests.node_facts import case, env, gpu_node, node


def test_an_empty_environment_is_fine() -> None:
    assert on(inherited_env, node()) == ()


def test_a_switch_that_does_nothing_is_a_warning_of_the_configuration() -> None:
    finding = only(on(inherited_env, node(environment=env(NCCL_IB_DISABLE="true"))))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.CONFIGURATION)
    assert finding.problem.startswith("NCCL_IB_DISABLE=true is not a number")
    assert "unset NCCL_IB_DISABLE" in finding.fix


def test_a_line_of_nccl_conf_is_judged_like_a_variable_and_its_file_named() -> None:
    conf = (NcclConfEntry("/etc/nccl.conf", "NCCL_NVLS_ENABLE", "true"),)
    finding = only(on(inherited_env, node(nccl_conf=conf)))
    assert "/etc/nccl.conf" in finding.fix
    assert finding.evidence[0].source == "/etc/nccl.conf"


def test_the_environment_wins_over_files_and_the_first_file_over_the_second() -> None:
    conf = (
        NcclConfEntry("/root/.nccl.conf", "NCCL_IB_DISABLE", "1"),
        NcclConfEntry("/etc/nccl.conf", "NCCL_IB_DISABLE", "true"),
        NcclConfEntry("/etc/nccl.conf", "NCCL_P2P_DISABLE", "true"),
    )
    settings = settings_in_force(node(environment=env(NCCL_P2P_DISABLE="0"), nccl_conf=conf))
    assert {(s.name, s.value, s.source) for s in settings} == {
        ("NCCL_P2P_DISABLE", "0", "environment"),
        ("NCCL_IB_DISABLE", "1", "/root/.nccl.conf"),
    }


def test_interfaces_are_compared_with_those_of_this_node() -> None:
    findings = on(inherited_env, node(environment=env(NCCL_SOCKET_IFNAME="bond0", GLOO_SOCKET_IFNAME="=eth0")))
    assert [finding.severity for finding in findings] == [Severity.WARN] * 2


def test_interfaces_that_could_not_be_read_are_said_to_be_uncompared() -> None:
    finding = only(on(inherited_env, node(environment=env(NCCL_SOCKET_IFNAME="eth0"), netifs=Gap("denied"))))
    assert finding.severity is Severity.INFO
    assert "denied" in finding.problem


def test_hiding_every_gpu_matters_only_where_gpus_are_wanted() -> None:
    hidden = env(CUDA_VISIBLE_DEVICES="")
    assert only(on_gpus(inherited_env, gpu_node(environment=hidden))).severity is Severity.WARN
    assert on(inherited_env, node(environment=hidden)) == ()


def test_an_environment_that_could_not_be_read_skips_the_check() -> None:
    assert skips(inherited_env, case(nodes=(node(environment=Gap("denied")),)))[0].reason == "denied"


MIXED = (gpu(0), gpu(1, name="NVIDIA A40"), gpu(2))


def test_numbers_of_gpus_of_different_models_are_cudas_own() -> None:
    finding = only(on_gpus(inherited_env, gpu_node(3, gpus=MIXED, environment=env(CUDA_VISIBLE_DEVICES="1,2"))))
    assert finding.severity is Severity.WARN
    assert "numbers the fastest GPU model first" in finding.problem
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in finding.fix


@pytest.mark.parametrize(
    ("gpus", "variables"),
    [
        (MIXED, {"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-0a1b"}),
        ((gpu(0), gpu(1), gpu(2)), {"CUDA_VISIBLE_DEVICES": "1,2"}),
    ],
)
def test_numbers_that_mean_what_nvidia_smi_shows_are_fine(gpus: tuple[Gpu, ...], variables: dict[str, str]) -> None:
    assert on_gpus(inherited_env, gpu_node(3, gpus=gpus, environment=env(**variables))) == ()
