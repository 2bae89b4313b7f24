"""Several nodes as namespaces on one bridge: what works, and what each thing that is in the way is called."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Command, default_trial
from tests.netns import BLACKHOLE, can_make_netns, make_nodes
from tests.nodes.cluster import PORT, Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), pytest.mark.heavy(4)]
DEADLINE = ("--deadline", "60")


@pytest.fixture(autouse=True)
def _namespaces(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")


@pytest.fixture
def two(command: Command) -> Iterator[Cluster]:
    with make_nodes(2) as nodes:
        cluster = Cluster(command, nodes)
        yield cluster
        cluster.end()


def test_the_default_works_over_two_nodes_and_all_write_the_same_answer(two: Cluster) -> None:
    ended = two.run("--profile", "quick")
    assert {number: each.code for number, each in ended.items()} == {0: 0, 1: 0}, ended[0].page + ended[1].page
    for each in ended.values():
        report = each.report
        assert (report["verdict"], report["world_size"]) == ("ready", 4)
        assert [node["host"] for node in report["nodes"]] == ["node0", "node1"]
        trial = default_trial(report)
        assert (trial["candidate"], trial["outcome"]) == ("default", "ok")
        assert trial["world_size_seen"] == {str(rank): 4 for rank in range(4)}
        assert trial["transport"] == ["TCP/eth0"]
        assert all(result["verified"] for result in trial["results"])
        assert not re.search(r"export (NCCL|GLOO|TP)_", each.env)
        assert {"what": "nodes", "value": "2", "source": "--nnodes"} in report["launch"]
    assert ended[0].report["findings"] == ended[1].report["findings"]


def test_variables_of_kubernetes_do_for_the_options(two: Cluster) -> None:
    for number in range(2):
        environ = {
            "PET_NNODES": "2",
            "MASTER_ADDR": "node0",
            "MASTER_PORT": "29511",
            "JOB_COMPLETION_INDEX": str(number),
        }
        two.start(number, env=environ, without_options=True)
    ended = two.wait()
    assert {each.code for each in ended.values()} == {0}, ended[0].page
    assert "JOB_COMPLETION_INDEX" in ended[1].page


def test_a_host_name_that_resolves_to_loopback_needs_the_interface_and_gets_it(command: Command) -> None:
    with make_nodes(2, own_address="127.0.1.1") as nodes:
        ended = Cluster(command, nodes).run("--stage-limit", "4")
    assert {each.code for each in ended.values()} == {0}, ended[0].page
    for each in ended.values():
        assert each.report["verdict"] == "ready_with_env"
        settings = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0", "TP_SOCKET_IFNAME": "eth0"}
        assert each.report["advice"]["env"] == settings
        assert "if [" not in each.env, "it was confirmed by all nodes together"
        assert "hostname-loopback" in {finding["check"] for finding in each.report["findings"]}
    assert "127.0.1.1" in " ".join(ended[0].page.split()), "node 0 says why it listens where it does"


def sourced_on(prefix: tuple[str, ...], cwd: Path, command: Command) -> str:
    script = '. ./preflight.env; echo "$GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"'
    argv = (*prefix, "sh", "-c", script)
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=True, env=command.environ()).stdout


def test_where_interfaces_have_other_names_each_node_sets_its_own_from_the_same_file(command: Command) -> None:
    with make_nodes(2, netifs=("ens3", "enp1s0"), own_address="127.0.1.1") as nodes:
        cluster = Cluster(command, nodes)
        ended = cluster.run("--stage-limit", "4")
        sourced = [sourced_on(node.named(f"node{k}"), cluster.cwd(0), command) for k, node in enumerate(nodes)]
    assert {each.code for each in ended.values()} == {0}, ended[0].page
    assert sourced == ["ens3 =ens3\n", "enp1s0 =enp1s0\n"]
    for number, name in enumerate(("ens3", "enp1s0")):
        assert ended[number].report["advice"]["env"]["TP_SOCKET_IFNAME"] == name
        assert "node0" in ended[number].env


def test_a_node_that_never_comes_is_named_and_nobody_is_blamed(command: Command) -> None:
    with make_nodes(3) as nodes:
        cluster = Cluster(command, nodes)
        for number in (0, 2):
            cluster.start(number, *DEADLINE)
        ended = cluster.wait()
    assert {each.code for each in ended.values()} == {3}
    assert all(each.took_s < 60 for each in ended.values())
    for each in ended.values():
        assert "2 of 3 nodes came" in each.told
        assert "missing: node 1" in each.told
        assert each.report["findings"] == []
        assert each.report["trials"], "what a node found alone is in its report"


def test_without_node_0_the_others_say_how_it_was_not_reached(two: Cluster) -> None:
    two.start(1, *DEADLINE)
    (ended,) = two.wait().values()
    assert ended.code == 3
    assert ended.took_s < 60
    assert "10.79.0.1 port 29400: refused" in ended.told


def test_a_host_that_is_down_is_no_route_and_one_whose_packets_are_dropped_is_called_so(two: Cluster) -> None:
    two.nodes[0].ip("addr", "del", "10.79.0.1/24", "dev", "eth0")
    two.start(1, *DEADLINE)
    (ended,) = two.wait().values()
    assert (ended.code, "no route" in ended.told) == (3, True), ended.told
    two.nodes[1].ip("neigh", "replace", "10.79.0.1", "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
    dropped = Cluster(two.command, two.nodes)
    dropped.start(1, *DEADLINE)
    (ended,) = dropped.wait().values()
    assert (ended.code, "dropped" in ended.told) == (3, True), ended.told


def test_a_name_that_does_not_resolve_is_called_so(two: Cluster) -> None:
    two.start(1, "--rdzv-endpoint", "nosuchhost:29400", *DEADLINE)
    (ended,) = two.wait().values()
    assert (ended.code, "nosuchhost does not resolve" in ended.told) == (3, True), ended.told


@pytest.mark.parametrize("killed", [0, 1], ids=["node-0", "node-1"])
def test_a_node_that_dies_in_a_trial_is_named_and_the_other_ends_alike(two: Cluster, killed: int) -> None:
    arguments = ("--backend", "simnccl@simnccl", "--stage-limit", "30", "--deadline", "90")
    for number in range(2):
        two.start(number, *arguments, env={"SIMNCCL": "hang:rank=3,stage=first", **two.own_tmp(number)})
    two.wait_for(1, "joint/control/step.0")
    time.sleep(0.5)
    victim = two.running.pop(killed)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    died_at = time.monotonic()
    (survivor,) = two.wait().values()
    assert survivor.code == 3, survivor.page
    assert time.monotonic() - died_at < 20
    assert f"node{killed} (node {killed}) went away" in survivor.told
    assert survivor.report["trials"] == [] or all(t["outcome"] != "crash" for t in survivor.report["trials"])


def test_a_port_that_is_taken_is_named_on_node_0_and_both_end_with_3(two: Cluster) -> None:
    script = f"import socket, time; s = socket.create_server(('10.79.0.1', {PORT})); time.sleep(300)"
    holder = two.command.start(prefix=(*two.nodes[0].prefix, two.command.python, "-c", script, "x"))
    try:
        ended = two.run(*DEADLINE)
    finally:
        holder.kill()
        holder.communicate()
    assert {number: each.code for number, each in ended.items()} == {0: 3, 1: 3}
    assert f"port {PORT} on 10.79.0.1 is taken" in ended[0].told
    assert "--rdzv-endpoint" in ended[0].told
    assert "another program than preflight listens there" in ended[1].told


def test_nodes_with_different_versions_refuse_each_other_and_say_which(two: Cluster) -> None:
    other = two.command.tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import preflight; preflight.__version__ = '9.9.9'\n")
    two.start(0, *DEADLINE)
    path = f"{other}:{two.command.environ()['PYTHONPATH']}"
    two.start(1, *DEADLINE, env={"PYTHONPATH": path})
    ended = two.wait()
    assert {each.code for each in ended.values()} == {3}
    for each in ended.values():
        assert "versions differ" in each.told
        assert "9.9.9" in each.told


def test_a_dead_name_server_changes_nothing_between_nodes_that_know_each_other(command: Command) -> None:
    with make_nodes(2, name_server=BLACKHOLE) as nodes:
        for node in nodes:
            node.ip("neigh", "add", "10.79.0.99", "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
            node.ip("route", "add", "default", "via", "10.79.0.99")
        ended = Cluster(command, nodes).run()
    assert {each.code for each in ended.values()} == {0}, ended[0].page
    assert all(each.took_s < 90 for each in ended.values())
