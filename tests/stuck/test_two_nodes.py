"""Two nodes, each with its own network, processes and host name: what both saw gives one answer."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from preflight.system.processes import descendants_of
from tests.netns import Netns, can_make_netns, make_nodes
from tests.stuck.hanging_jobs import PROJECT, TRAIN, HangingJob, Looked, hanging_job, look

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RANKS_EACH = 2
COMMON = {
    "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "29500",
    "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
}  # fmt: skip
# The init of a PID namespace of its own: starts this node's ranks and waits for them.
INIT = 'for rank in $RANKS; do RANK=$rank LOCAL_RANK=$((rank % 2)) "$@" >"$DIR/log.$rank" 2>&1 & done; wait'


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster with its part of the job."""

    netns: Netns
    host: str
    init_pid: int

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that is to run on this node."""
        return ("nsenter", "--target", str(self.init_pid), "--pid", "--mount", "--net", "--uts")


@contextlib.contextmanager
def _cluster(job: HangingJob) -> Iterator[list[Node]]:
    """Start a job of four ranks on two nodes."""
    with make_nodes(2) as netns, contextlib.ExitStack() as stack:
        nodes = []
        for number, each in enumerate(netns):
            ranks = " ".join(str(number * RANKS_EACH + i) for i in range(RANKS_EACH))
            own = COMMON | {"RANKS": ranks, "DIR": str(job.folder)}
            prefix = (*each.named(f"n{number}"), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
            started = subprocess.Popen(
                [*prefix, "sh", "-c", INIT, "sh", sys.executable, str(TRAIN), job.way, str(job.folder)],
                env={"PATH": os.environ["PATH"], **own}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(_end, started)
            nodes.append(Node(each, f"n{number}", _init_of(started.pid)))
        yield nodes


def _init_of(pid: int) -> int:
    """Return the first process of the PID namespace below a process."""
    own = os.readlink("/proc/self/ns/pid")
    end_at = time.monotonic() + 60
    while time.monotonic() < end_at:
        for each in sorted(descendants_of(pid)):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{each}/ns/pid") != own:
                    return each
        time.sleep(0.02)
    raise AssertionError("no PID namespace came up")


def _end(started: subprocess.Popen[bytes]) -> None:
    """End a node: its processes go with the namespace's init, which goes with unshare."""
    started.kill()
    started.wait(30)


def _look_on_both(nodes: list[Node], out: Path) -> Looked:
    for node in nodes:
        ran = subprocess.run(
            [*node.inside, sys.executable, "-m", "preflight", "stuck", "--out", str(out), "--json", "-"],
            cwd=PROJECT, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        seen = json.loads(ran.stdout)
        assert len([place for place in seen["places"] if place["pid"]]) == RANKS_EACH, ran.stderr
        assert any(each.startswith("2 of 4 ranks run on ") for each in seen["not_seen"])
    return look("--merge", str(out))


def _results(job: HangingJob, limit_s: float = 90) -> set[str]:
    paths = [job.folder / f"result.{rank}" for rank in range(4)]
    end_at = time.monotonic() + limit_s
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < end_at, job.logs()
        job.drain()
        time.sleep(0.05)
    return {path.read_text() for path in paths}


@pytest.fixture(autouse=True)
def _namespaces(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces can't be made here")


def test_a_save_on_one_node_is_the_one_answer_of_both() -> None:
    with hanging_job("save") as job, _cluster(job) as nodes:
        job.wait_until_hung()
        seen = _look_on_both(nodes, job.folder / "out")
        (culprit,) = seen.report["culprits"]
        assert (seen.code, culprit["ranks"], culprit["host"], culprit["reason"]) == (1, [2], "n1", "rank_elsewhere")
        assert {(p["rank"], p["host"]) for p in seen.report["places"]} == {(0, "n0"), (1, "n0"), (2, "n1"), (3, "n1")}
        job.go_on()
        assert len(_results(job)) == 1


def test_one_command_looks_on_every_node_and_says_which_it_did_not_see(tmp_path: Path) -> None:
    with hanging_job("save") as job, _cluster(job) as nodes:
        job.wait_until_hung()
        ways = "".join(f'{node.host}) exec {" ".join(node.inside)} sh -c "$3";;\n' for node in nodes)
        script = f'while [ "$1" != -- ]; do shift; done\ncase $2 in\n{ways}esac\necho no route to $2 >&2; exit 255\n'
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{script}")
        (tmp_path / "ssh").chmod(0o755)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        seen = look("--on", "ssh:n[0-2]", environ=path)
        (culprit,) = seen.report["culprits"]
        assert (seen.code, culprit["ranks"], culprit["host"], culprit["reason"]) == (1, [2], "n1", "rank_elsewhere")
        assert sorted((p["rank"], p["host"]) for p in seen.report["places"]) == [
            (0, "n0"), (1, "n0"), (2, "n1"), (3, "n1")
        ]  # fmt: skip
        assert "n2: unreachable: no route to n2" in seen.report["not_seen"]
        assert "n0: 2 ranks" in seen.stderr and "n1: 2 ranks" in seen.stderr
        job.go_on()
        assert len(_results(job)) == 1


def test_a_broken_path_is_told_with_its_two_ends() -> None:
    with hanging_job("path") as job, _cluster(job) as nodes:
        job.wait_until_hung()
        nodes[1].netns.ip("link", "set", "eth0", "down")
        (job.folder / "cut").touch()
        seen = _look_on_both(nodes, job.folder / "out")
        assert (seen.code, {c["reason"] for c in seen.report["culprits"]}) == (1, {"path_broken"}), seen.report[
            "summary"
        ]
        assert "10.79.0.1" in seen.report["summary"] and "10.79.0.2" in seen.report["summary"]
        nodes[1].netns.ip("link", "set", "eth0", "up")
        assert len(_results(job)) == 1
