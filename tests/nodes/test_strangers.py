"""What listens between nodes, and that strangers who call there change no result."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Command
from tests.containment.test_listening import watching
from tests.netns import can_make_netns, make_nodes
from tests.nodes.cluster import PORT, Cluster
from tests.nodes.stranger import WORDS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
STRANGER = Path(__file__).with_name("stranger.py")

# Both ranks of node 1 join a second late: the strangers find the store and gloo's ports before the peers do.
LATE = """
import time
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroupGloo

def _create(store, rank, size, timeout):
    time.sleep(rank // 2)
    return ProcessGroupGloo(store, rank, size, timeout)

dist.Backend.register_backend("late", _create, devices=["cpu"])
"""


@pytest.fixture(autouse=True)
def _needs(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces need root and iproute2")
    need("ss", shutil.which("ss") is not None, "`ss` of iproute2 is not installed")


def test_only_the_meeting_the_store_and_gloo_listen_and_only_on_the_address_of_the_meeting(command: Command) -> None:
    with make_nodes(2) as nodes:
        cluster = Cluster(command, nodes)
        with watching(command, nodes[0].prefix) as host, watching(command, nodes[1].prefix) as guest:
            ended = cluster.run()
    assert {each.code for each in ended.values()} == {0}, ended[0].page
    assert {address for address, _, _ in host.seen} == {"10.79.0.1"}
    assert {address for address, _, _ in guest.seen} == {"10.79.0.2"}
    probes = [line for _, _, line in (*host.seen, *guest.seen) if "path_probe" in line]
    others = ("preflight.trial.worker", "path_probe")
    launchers = {port for _, port, line in host.seen if not any(each in line for each in others)}
    assert launchers == {PORT}
    assert all(line.startswith("preflight-r") or "path_probe" in line for _, _, line in guest.seen), (
        "what listens on other nodes is gloo and, for a moment, what tries the ways between the nodes"
    )
    assert len(probes) <= 2, "one address a node"


@pytest.mark.parametrize("words", WORDS)
def test_strangers_at_every_port_of_node_0_change_no_result(command: Command, words: str) -> None:
    modules = command.tmp_path / "modules"
    modules.mkdir()
    (modules / "late.py").write_text(LATE)
    environ = {"PYTHONPATH": f"{modules}:{command.environ()['PYTHONPATH']}"}
    with make_nodes(2) as nodes:
        argv = (*nodes[0].prefix, command.python, str(STRANGER), words)
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as stranger:
            cluster = Cluster(command, nodes)
            cluster.start(0, "--backend", "late@late", env=environ)
            cluster.wait_for_listener(0)
            cluster.start(1, "--backend", "late@late", env=environ)
            ended = cluster.wait()
            stranger.kill()
            assert stranger.stdout is not None
            bothered = stranger.stdout.read().split()
    assert f"10.79.0.1:{PORT}" in bothered
    assert len(bothered) >= 4, "the meeting, the store and both ranks of node 0"
    assert {each.code for each in ended.values()} == {0}, ended[0].page
    assert all(each.report["trials"][0]["outcome"] == "ok" for each in ended.values())
    assert all(each.took_s < 90 for each in ended.values())
