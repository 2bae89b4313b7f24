"""`preflight run` on two nodes whose job stands still: a page in time on the first node, a line on the other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.job.black_box import let_go_on, wait_until
from tests.netns import Netns, can_make_netns, make_nodes
from tests.stuck.hanging_jobs import PROJECT, TRAIN, HangingJob, hanging_job

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300), pytest.mark.heavy(2)]

RANKS_EACH, STUCK_AFTER_S = 2, 6  # the job's own timeout is gloo's: 1,800 s
# What torchrun does on a node: it starts the ranks, each with its log, and waits for them.
JOB = 'for rank in $RANKS; do RANK=$rank LOCAL_RANK=$((rank % 2)) "$@" >"$DIR/log.$rank" 2>&1 & done; wait'
COMMON = {
    "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.79.0.1", "MASTER_PORT": "29500",
    "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip


@dataclass(slots=True)
class Node:
    """A node with its `preflight run`, and what that has printed so far."""

    netns: Netns
    run: subprocess.Popen[bytes]
    said_path: Path

    @property
    def said(self) -> str:
        """What `run` has printed, in one line."""
        return " ".join(self.said_path.read_text(errors="replace").split())


@contextlib.contextmanager
def running(job: HangingJob, tmp_path: Path) -> Iterator[list[Node]]:
    """Run a job of four ranks on two nodes; no time is given to the check, which is not tested here."""
    with make_nodes(2) as netns, contextlib.ExitStack() as stack:
        nodes = []
        for number, each in enumerate(netns):
            here = tmp_path / f"node{number}"
            (here / "tmp").mkdir(parents=True)
            ranks = " ".join(str(number * RANKS_EACH + i) for i in range(RANKS_EACH))
            own = COMMON | {"RANKS": ranks, "DIR": str(job.folder), "TMPDIR": str(here / "tmp")}
            said = stack.enter_context((here / "said").open("wb"))
            place = ("--nnodes", "2", "--node-rank", str(number), "--rdzv-endpoint", "10.79.0.1:29400")
            run = subprocess.Popen(
                [
                    *each.named(f"n{number}"), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                    sys.executable, "-m", "preflight", "run", "--backend", "gloo", "--deadline", "2", *place,
                    "--stuck-after", str(STUCK_AFTER_S), "--", "sh", "-c", JOB, "sh", sys.executable, str(TRAIN),
                    job.way, str(job.folder),
                ],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), **own}, cwd=here,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, run)
            nodes.append(Node(each, run, here / "said"))
        yield nodes


def _end(run: subprocess.Popen[bytes]) -> None:
    """End a node: its processes go with the namespace's init, which goes with unshare."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait(30)


@pytest.fixture(autouse=True)
def _namespaces(need: Callable[[str, bool, str], None]) -> None:
    need("netns", can_make_netns(), "network namespaces can't be made here")


# The way to hang, the node that sees the cause, and what its `run` says of it.
FAULTS = {
    "stopped": (0, "rank 1 on n0"),
    "path": (1, "10.79.0.1 ("),  # how many of its bytes nobody acknowledges
    "spin": (0, "rank 1 on n0"),
    "save": (1, "rank 2 on n1"),
}
WAITS = "`preflight stuck` could not find the reason"  # where all ranks wait for those of another node


@pytest.mark.parametrize("way", FAULTS)
def test_a_page_on_the_first_node_or_a_line_on_another_names_the_cause_before_the_job_s_own_timeout(
    way: str, tmp_path: Path
) -> None:
    number, says = FAULTS[way]
    with hanging_job(way) as job, running(job, tmp_path) as nodes:
        job.wait_until_hung()
        if way == "path":
            nodes[1].netns.ip("link", "set", "eth0", "down")
            (job.folder / "cut").touch()
        wait_until(lambda: "is left running" in nodes[number].said, 90, nodes)
        wait_until(lambda: any(words in nodes[1 - number].said for words in (WAITS, "is left running")), 30, nodes)
        said = nodes[number].said
        assert said.count("STUCK") == said.count("is left running") == 1 and says in said, said
        assert ("Next" in said.partition("STUCK")[2]) is (number == 0), said
        if number:
            kept = said.partition("stuck.txt")[0].rpartition("(")[2] + "stuck.txt"
            assert "Next" in Path(kept).read_text() and f"node {number}: STUCK" in said, said
        let_go_on(job, nodes)
        for node in nodes:
            assert node.run.wait(60) == 0, node.said
        assert len({(job.folder / f"result.{rank}").read_text() for rank in range(4)}) == 1
