"""What preflight reads of NCCL's own log, line by line, in kept logs of the real one; `explain` on the same."""

from __future__ import annotations

import re

import pytest

from preflight.explain.nccl_start import StartStep, steps
from preflight.model.nccl_log import Algorithm, read_nccl_log
from tests.explain.logs import explain_bytes
from tests.simcuda.kept_logs import FOLDER, SITUATIONS, anonymous, kept, names

HEALTHY = ("p2p", "shm", "sockets", "cards", "nvls")
CAUSES = {
    "no-interface": "wrong_socket_interface",
    "small-shm": "shm_too_small",
    "nvls-unbound": "nvlink_or_fabric_manager",
}
INTERFACES = {"a100x4": "eno1", "pcie2-pix": "eth0", "pcie4-nics": "eth0", "l20x10_ens34": "eno1", "h100x8": "ib0"}
LISTED = {"a100x4": 1, "pcie2-pix": 1, "pcie4-nics": 3, "l20x10_ens34": 4, "h100x8": 8}
VIA = re.compile(r"(?:Channel|CollNet|Ring|Tree) \d+\S* : .* via (.*?)(?: comm 0x.*)?$")
VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)\+cuda")


@pytest.mark.parametrize(("version", "situation"), names())
def test_every_line_of_a_pair_is_read_to_its_end(version: str, situation: str) -> None:
    lines = kept(version, situation).splitlines()
    told = [(line, found[1].strip()) for line in lines if (found := VIA.search(line))]
    for line, via in told:
        assert [path.name for path in read_nccl_log([line]).paths] == [via], line
    assert told or situation not in ("p2p", "shm", "sockets", "cards")


@pytest.mark.parametrize(("version", "situation"), names())
def test_network_and_interfaces_are_read(version: str, situation: str) -> None:
    log = read_nccl_log(kept(version, situation).splitlines())
    if situation == "no-interface":
        assert (log.bootstrap, log.networks, log.socket_interfaces) == ((), (), ())
        return
    machine = SITUATIONS[situation].machine
    assert log.bootstrap == (INTERFACES[machine],)
    assert log.networks == ("Socket",)
    assert len(log.socket_interfaces) == LISTED[machine] and log.socket_interfaces[0] == INTERFACES[machine]
    assert log.cards == ()


@pytest.mark.parametrize(("version", "situation"), names())
def test_the_version_stands_there_once_the_first_rank_has_an_interface(version: str, situation: str) -> None:
    assert set(VERSION.findall(kept(version, situation))) == (set() if situation == "no-interface" else {version})


@pytest.mark.parametrize(
    ("situation", "kinds"), [("p2p", {"P2P", "SHM"}), ("shm", {"SHM"}), ("sockets", {"NET"}), ("cards", {"P2P", "NET"})]
)
@pytest.mark.parametrize("version", ["2.27.5", "2.32.3"])
def test_the_transports_are_those_of_the_situation(version: str, situation: str, kinds: set[str]) -> None:
    log = read_nccl_log(kept(version, situation).splitlines())
    assert {path.transport.value for path in log.paths if path.transport} == kinds
    assert {rank for path in log.paths for rank in path.ranks} == {*range(len(SITUATIONS[situation].gpus))}


@pytest.mark.parametrize("version", ["2.21.5", "2.27.5", "2.32.3"])
def test_nvls_on_one_node_is_seen_where_it_is_used_and_nowhere_else(version: str) -> None:
    assert read_nccl_log(kept(version, "nvls").splitlines()).has_nvls
    assert not any(read_nccl_log(kept(version, other).splitlines()).has_nvls for other in ("p2p", "shm", "sockets"))
    assert all("Connected NVLS tree" not in kept(version, each) for each in SITUATIONS), "that is for several nodes"


@pytest.mark.parametrize("version", ["2.21.5", "2.27.5", "2.32.3"])
def test_the_algorithm_of_a_call_is_read(version: str) -> None:
    collective = "" if version == "2.21.5" else "AllReduce"
    found = {each: read_nccl_log(kept(version, each).splitlines()).algorithms for each in HEALTHY}
    assert found["nvls"] == (Algorithm(collective, 262144, "NVLS", "SIMPLE"),)
    assert {(each.collective, each.size_bytes, each.algorithm) for each in found["p2p"]} == {
        (collective, 262144, "RING")
    }


@pytest.mark.parametrize("version", ["2.21.5", "2.27.5", "2.32.3"])
def test_how_far_a_start_came_is_read(version: str) -> None:
    found = {step for line in kept(version, "p2p").splitlines() for step in steps(line)}
    wanted = {
        StartStep.BOOTSTRAP,
        StartStep.NETWORK,
        StartStep.BEGAN,
        StartStep.CHANNELS,
        StartStep.CONNECTED,
        StartStep.COMPLETE,
    }
    assert wanted <= found
    gone = {step for line in kept(version, "no-interface").splitlines() for step in steps(line)}
    assert not gone


@pytest.mark.parametrize("version", ["2.21.5", "2.27.5", "2.32.3"])
@pytest.mark.parametrize("situation", HEALTHY)
def test_a_start_that_went_well_has_no_cause_whatever_it_warned_of(version: str, situation: str) -> None:
    log = kept(version, situation)
    assert explain_bytes(log.encode()).causes == ()
    assert ("rma_socket requires GDRCopy" in log) == (version == "2.32.3"), "a warning that every run there has"


@pytest.mark.parametrize("version", ["2.21.5", "2.27.5", "2.32.3"])
@pytest.mark.parametrize("situation", CAUSES)
def test_a_start_that_failed_names_its_cause(version: str, situation: str) -> None:
    named = explain_bytes(kept(version, situation).encode()).causes
    assert [each.cause for each in named] == [CAUSES[situation]]


def test_the_kept_logs_name_no_host_and_no_process_and_are_small() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{version}-{name}.log.gz" for version, name in names()}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000
    pids = re.compile(r"(\w+):(\d+):\d+ \[")
    found = {hit for each in names() for hit in pids.findall(kept(*each))}
    assert {host for host, _ in found} == {"host"} and max(int(pid) for _, pid in found) < 1000


def test_what_would_identify_a_machine_is_taken_out() -> None:
    line = "[2026-01-01 00:00:00] node-7.example.org:4711:4712 [0] NCCL INFO to /tmp/simcuda-ab12/nccl.%p.log"
    said = f"rank 0 init 0 no error\n{line}\nnode-7.example.org:4711:4711 [0] NCCL INFO x"
    assert anonymous(said) == (
        "[2026-01-01 00:00:00] host:1:2 [0] NCCL INFO to /tmp/run/nccl.%p.log\nhost:1:1 [0] NCCL INFO x\n"
    )
