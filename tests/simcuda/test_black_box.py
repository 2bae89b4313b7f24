"""`preflight run` on two nodes whose job of the real NCCL hangs: the cause is named, and the job is untouched."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.job.black_box import let_go_on, wait_until
from tests.netns import Netns, make_nodes, node_address
from tests.simcuda.checking import machine_of
from tests.simcuda.places import PROJECT
from tests.simcuda.sandbox import Sandbox
from tests.stuck.hanging_jobs import HangingJob, hanging_job

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(300)]

STUCK_AFTER_S = 6  # the job's own timeout is torch's for NCCL: 600 s
JOB = (
    'for rank in $RANKS; do RANK=$rank LOCAL_RANK=$((rank % 2)) "$0" -m tests.simcuda.black_box_rank "$@" '
    '>"$2/log.$rank" 2>&1 & done; wait'
)
# The way to hang, the node that sees the cause, and what its `run` says of it.
FAULTS = {
    "stopped": (0, "rank 1 on node0"),
    "path": (1, f"at {node_address(0)} ("),
    "spin": (0, "rank 1 on node0"),
    "save": (1, "rank 2 on node1"),
}
RESULT = 4.0**6  # what four ranks have after six sums, to the bit


@dataclass(slots=True)
class Node:
    """A node with its `preflight run`, and what that has printed so far."""

    netns: Netns
    run: subprocess.Popen[str]
    text: str = ""

    @property
    def said(self) -> str:
        """What `run` has printed, in one line."""
        for stream in (self.run.stdout, self.run.stderr):
            assert stream is not None
            with contextlib.suppress(BlockingIOError):
                while news := os.read(stream.fileno(), 1 << 16):
                    self.text += news.decode(errors="replace")
        return " ".join(self.text.split())


@contextlib.contextmanager
def running(job: HangingJob, folder: Path) -> Iterator[list[Node]]:
    """Run two ranks on each of two nodes; no time is given to the check, which is not tested here."""
    with make_nodes(2) as netns, contextlib.ExitStack() as stack:
        nodes = []
        for number, each in enumerate(netns):
            place = folder / f"node{number}"
            place.mkdir()
            sandbox = Sandbox(machine_of("pcie2-pix"), place, prefix=each.named(f"node{number}"))
            own = {
                "RANKS": f"{2 * number} {2 * number + 1}", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": node_address(0), "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            where = ("--nnodes", "2", "--node-rank", str(number), "--rdzv-endpoint", f"{node_address(0)}:29400")
            # Without the folder that would compute torch's kernels.
            command = ("env", f"PYTHONPATH={PROJECT}", "sh", "-c", JOB, sandbox.python, job.way, str(job.folder))
            options = ("--backend", "nccl", "--deadline", "2", *where, "--stuck-after", str(STUCK_AFTER_S))
            run = stack.enter_context(sandbox.started("run", *options, "--", *command, env=own))
            for stream in (run.stdout, run.stderr):
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
            nodes.append(Node(each, run))
        yield nodes


@pytest.mark.parametrize("way", FAULTS)
def test_the_cause_is_named_on_its_node_before_the_job_s_own_timeout(way: str, tmp_path: Path) -> None:
    number, says = FAULTS[way]
    with hanging_job(way) as job, running(job, tmp_path) as nodes:
        job.wait_until_hung()
        if way == "path":
            nodes[1].netns.ip("link", "set", "eth0", "down")
            (job.folder / "cut").touch()
        wait_until(lambda: "is left running" in nodes[number].said, 90, nodes)
        said = nodes[number].said
        assert said.count("STUCK") == said.count("is left running") == 1 and says in said, said
        let_go_on(job, nodes)
        wait_until(lambda: all(node.run.poll() is not None and node.said for node in nodes), 60, nodes)
        assert [node.run.returncode for node in nodes] == [0, 0], "\n\n".join(node.text for node in nodes)
        assert [float((job.folder / f"result.{rank}").read_text()) for rank in range(4)] == [RESULT] * 4
