"""RDMA ports that work beside a job that takes sockets."""

from __future__ import annotations

import pytest

from preflight.judge.check import run_checks
from preflight.judge.run.transport_silent_fallback_nvls import silent_fallback
from preflight.model.facts import NcclConfEntry
from preflight.model.finding import Finding, Severity
from preflight.model.hca import PortState
from preflight.model.trial import AS_IS, Outcome, TrialResult
from tests.node_facts import gpu_case, gpu_node, trial
from tests.topology import port, roce_port

SOCKETS = ("0>1 via P2P/CUMEM", "netif eth0", "network Socket")


def judged(result: TrialResult, **facts: object) -> list[Finding]:
    node = gpu_node(2, **{"hca_ports": (port(),), **facts})
    return list(run_checks((silent_fallback,), gpu_case(result, nodes=(node,))).findings)


@pytest.mark.parametrize("usable", [port(), roce_port()])
def test_an_active_port_that_nccl_does_not_use_warns_however_fast_the_trial_was(usable: object) -> None:
    (finding,) = judged(trial(transport=SOCKETS), hca_ports=(usable,))
    assert finding.severity is Severity.WARN
    assert "NCCL uses sockets" in finding.problem


def test_nothing_is_said_where_nccl_uses_the_port_or_where_there_is_none() -> None:
    assert judged(trial(transport=("hca mlx5_0:1", "network IB"))) == []
    assert judged(trial(transport=SOCKETS), hca_ports=()) == []
    assert judged(trial(transport=SOCKETS), hca_ports=(port(state=PortState.DOWN),)) == []
    assert judged(trial(transport=())) == []


def test_nothing_is_said_where_sockets_were_asked_for_or_the_default_failed() -> None:
    chosen = (NcclConfEntry("/etc/nccl.conf", "NCCL_IB_DISABLE", "1"),)
    assert judged(trial(transport=SOCKETS), nccl_conf=chosen) == []
    assert judged(trial(transport=SOCKETS, trial_env=(("NCCL_NET", "Socket"),))) == []
    assert judged(trial(outcome=Outcome.HANG, transport=SOCKETS)) == []


@pytest.mark.parametrize(("name", "value"), [("NCCL_IB_DISABLE", "0"), ("NCCL_NET", "IB"), ("NCCL_NET", "")])
def test_a_value_that_asks_for_no_sockets_does_not_silence_the_warning(name: str, value: str) -> None:
    (finding,) = judged(trial(transport=SOCKETS), nccl_conf=(NcclConfEntry("/etc/nccl.conf", name, value),))
    assert finding.severity is Severity.WARN
    assert judged(trial(transport=SOCKETS, trial_env=((name, value),)))


TCPXO = (("NCCL_FASTRAK_IFNAME", "eth1"),)


def test_a_cloud_network_whose_variables_are_set_warns_where_nccl_took_sockets() -> None:
    passed = trial(transport=("0>1 via P2P/CUMEM", "network FasTrak"))
    fell_back = trial(AS_IS, transport=("0>1 via P2P/CUMEM", "network Socket"), trial_env=TCPXO)
    (finding,) = run_checks((silent_fallback,), gpu_case(passed, fell_back)).findings
    assert (finding.severity, finding.subject) == (Severity.WARN, "GPUDirect-TCPXO")
    used = trial(AS_IS, transport=("network FasTrak",), trial_env=TCPXO)
    assert run_checks((silent_fallback,), gpu_case(passed, used)).findings == ()


def test_a_plugin_that_was_not_loaded_warns_with_the_variable_that_names_it() -> None:
    result = trial(transport=("0>1 via P2P/CUMEM", "plugin not loaded: TUNER /nowhere/libtuner.so"))
    (finding,) = run_checks((silent_fallback,), gpu_case(result)).findings
    assert "NCCL_TUNER_PLUGIN" in finding.fix
    assert "/nowhere/libtuner.so" in finding.problem
