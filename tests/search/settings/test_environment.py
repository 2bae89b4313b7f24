"""What a trial sets and removes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check.survey import survey_capture
from preflight.model.gap import known_or
from preflight.model.trial import AS_IS, Candidate, Scope
from preflight.search.settings.candidate_plan import plan_nccl
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.environment import (
    DIAGNOSTIC,
    KEPT,
    NCCL_TRIAL_ENV,
    inherited_tuning,
    matters,
    may_be_recommended,
    trial_environment,
)
from tests.conftest import PROJECT

NAMES = st.sampled_from(
    [*KEPT, *DIAGNOSTIC, "NCCL_ALGO", "GLOO_SOCKET_IFNAME", "TORCH_NCCL_BLOCKING_WAIT", "TP_SOCKET_IFNAME", "PATH",
     "LD_LIBRARY_PATH", "FI_PROVIDER", "UCX_TLS", "CUDA_VISIBLE_DEVICES", "TORCH_DISTRIBUTED_DEBUG", "TORCH_HOME"]
)  # fmt: skip
ENVIRONS = st.dictionaries(NAMES, st.text(max_size=5))
AS_IS_CANDIDATE = Candidate(AS_IS, (), "", Scope.ANYWHERE)
ETH0 = Candidate("netif eth0", (("GLOO_SOCKET_IFNAME", "eth0"),), "", Scope.ONE_NODE)
BACKENDS = st.sampled_from(["gloo", "nccl", "simnccl"])
CANDIDATES = st.sampled_from([DEFAULT_CANDIDATE, AS_IS_CANDIDATE, ETH0])
MACHINE = {*KEPT, "PATH", "LD_LIBRARY_PATH", "FI_PROVIDER", "UCX_TLS", "CUDA_VISIBLE_DEVICES", "TORCH_HOME"}


@given(ENVIRONS, CANDIDATES, BACKENDS)
def test_what_is_part_of_the_machine_is_never_removed_or_changed(
    environ: dict[str, str], candidate: Candidate, backend: str
) -> None:
    set_env, unset = trial_environment(candidate, inherited_tuning(environ), backend, "/run/x.log")
    assert not MACHINE & {*dict(set_env), *unset}


@given(ENVIRONS, BACKENDS)
def test_as_is_removes_nothing_and_changes_only_what_the_harness_needs(environ: dict[str, str], backend: str) -> None:
    set_env, unset = trial_environment(AS_IS_CANDIDATE, inherited_tuning(environ), backend, "/run/x.log")
    assert unset == ()
    harness = {name for name, _ in NCCL_TRIAL_ENV} | {"NCCL_DEBUG_FILE"} if backend == "nccl" else set()
    changed = {name for name, value in set_env if environ.get(name) != value}
    assert changed <= harness


@given(ENVIRONS, BACKENDS)
def test_the_default_runs_without_any_inherited_tuning(environ: dict[str, str], backend: str) -> None:
    inherited = inherited_tuning(environ)
    set_env, unset = trial_environment(DEFAULT_CANDIDATE, inherited, backend, "/run/x.log")
    assert {name for name, _ in inherited} <= {*unset, *dict(set_env)}
    assert not set(unset) & {*dict(set_env)}


@given(ENVIRONS, CANDIDATES, BACKENDS)
def test_what_a_candidate_recommends_is_what_its_trial_ran_with(
    environ: dict[str, str], candidate: Candidate, backend: str
) -> None:
    set_env, unset = trial_environment(candidate, inherited_tuning(environ), backend, "/run/x.log")
    assert set(candidate.env) <= set(set_env)
    assert not {name for name, _ in candidate.env} & set(unset)


@given(ENVIRONS)
def test_inherited_tuning_is_sorted_and_comes_unchanged_from_the_environment(environ: dict[str, str]) -> None:
    found = inherited_tuning(environ)
    assert list(found) == sorted(found)
    assert dict(found).items() <= environ.items()
    assert not any(name in KEPT for name, _ in found)


def test_an_nccl_trial_logs_to_its_own_file_and_raises_where_it_hangs() -> None:
    set_env = dict(trial_environment(DEFAULT_CANDIDATE, (), "nccl", "/run/1.%h.%p.log")[0])
    assert set_env["NCCL_DEBUG"] == "INFO"
    assert set_env["NCCL_DEBUG_FILE"] == "/run/1.%h.%p.log"
    assert set_env["NCCL_RAS_ENABLE"] == "0"
    assert "TORCH_NCCL_BLOCKING_WAIT" not in set_env  # with it nobody raises from torch 2.8 on
    assert set_env["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
    assert set_env["TORCH_NCCL_USE_COMM_NONBLOCKING"] == "0"  # a group that knows its GPU would start later than init


def test_a_gloo_trial_sets_nothing_of_nccl() -> None:
    assert trial_environment(DEFAULT_CANDIDATE, (), "gloo", "/run/1.log") == ((), ())


def test_what_only_prints_or_belongs_to_another_backend_changes_nothing() -> None:
    assert not matters("NCCL_DEBUG", "nccl")
    assert not matters("NCCL_ALGO", "gloo")
    assert matters("NCCL_ALGO", "nccl")
    assert matters("GLOO_SOCKET_IFNAME", "gloo")
    assert matters("NCCL_ALGO", "simnccl")


@pytest.mark.parametrize("machine", sorted((PROJECT / "tests" / "machines").glob("*.json")), ids=lambda path: path.stem)
def test_whatever_the_search_plans_may_be_recommended(machine: Path) -> None:
    node = survey_capture(machine.read_text()).node
    plan = plan_nccl(node, tuple(gpu.nvml_index for gpu in known_or(node.gpus, ())), (), for_speed=True)
    planned = [
        *(pair for each in plan.candidates for pair in each.env),
        *(pair for each in plan.settings for pair in each.env),
    ]
    assert planned
    assert [pair for pair in planned if not may_be_recommended(*pair)] == []


@pytest.mark.parametrize(
    ("name", "value", "is_ours"),
    [
        ("NCCL_P2P_DISABLE", "1", True),
        ("NCCL_SOCKET_IFNAME", "=ens34", True),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1", True),
        ("NCCL_NET_PLUGIN", "none", True),
        ("NCCL_CONF_FILE", "/dev/null", True),
        ("NCCL_TOPO_FILE", "", True),  # takes what /etc/nccl.conf says out
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", True),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", True),
        ("TORCH_FR_BUFFER_SIZE", "2000", True),
        ("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2", True),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", True),
        ("PREFLIGHT_PG_TIMEOUT_S", "600", True),
        ("DEEPSPEED_TIMEOUT", "30", True),
        ("NCCL_NET_PLUGIN", "/tmp/libnet.so", False),
        ("NCCL_NET_PLUGIN", "aws-ofi", False),
        ("NCCL_TUNER_PLUGIN", "x", False),
        ("NCCL_PROFILER_PLUGIN", "libx.so", False),
        ("NCCL_ENV_PLUGIN", "x", False),
        ("NCCL_DEBUG_FILE", "authorized_keys", False),
        ("NCCL_TOPO_FILE", "/tmp/topo.xml", False),
        ("NCCL_CONF_FILE", "/tmp/nccl.conf", False),
        ("NCCL_ALGO", "file:/tmp/x", False),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/home/x/.bashrc", False),
        ("GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY", "x", False),
        ("LD_PRELOAD", "/tmp/x.so", False),
        ("LD_LIBRARY_PATH", "", False),
        ("BASH_ENV", "x", False),
        ("PYTHONPATH", "x", False),
        ("PATH", "", False),
        ("UCX_TLS", "tcp", False),
        ("PREFLIGHT_CHECK_MACHINE", "x", False),
        ("XNCCL_P2P_DISABLE", "1", False),
    ],
)
def test_what_loads_code_or_names_a_file_is_never_recommended(name: str, value: str, is_ours: bool) -> None:
    assert may_be_recommended(name, value) is is_ours
