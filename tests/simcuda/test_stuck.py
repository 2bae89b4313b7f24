"""`preflight stuck` beside ranks of the real NCCL that hang: with the words of NCCL's RAS and without.

RAS counts what each rank has launched. So it tells a rank that launched less, and one that is gone. Where a path loses
the bytes all have launched the same: then sockets name the pair, and of two GPUs of one node nothing does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.netns import Netns, make_nodes, node_address
from tests.simcuda.checking import machine_of
from tests.simcuda.places import PROJECT
from tests.simcuda.sandbox import Sandbox

pytestmark = [
    pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(300),
    pytest.mark.parametrize("ras", ("with RAS", "without")),
]  # fmt: skip

START_S, STILL_S = 90.0, 1.0
RAS: dict[str, dict[str, str]] = {"with RAS": {}, "without": {"NCCL_RAS_ENABLE": "0"}}
CODE = Path(__file__).with_name("hanging_job.py").read_text().splitlines()


@dataclass(slots=True)
class Job:
    """A job whose ranks write the step that they have begun."""

    out: Path
    size: int
    node_count: int
    nodes: list[subprocess.Popen[str]] = field(default_factory=list)
    looks: int = 0

    def wait_for_step(self, step: int) -> None:
        """Wait until every rank has begun a step."""
        self._wait(lambda: min(self._steps(), default=-1) >= step)

    def wait_until_still(self) -> None:
        """Wait until no rank begins another step."""
        seen: list[Any] = [None, 0.0]

        def is_still() -> bool:
            steps = self._steps()
            if steps != seen[0]:
                seen[:] = [steps, time.monotonic()]
            return bool(steps) and time.monotonic() - seen[1] > STILL_S

        self._wait(is_still)

    def look(self, *options: str, kill: tuple[int, ...] = (), is_last: bool = True) -> None:
        """Have the nodes look, and wait for their answers."""
        (self.out / "new").write_text(json.dumps({"options": options, "kill": kill, "is_last": is_last}))
        (self.out / "new").rename(self.out / f"look.{self.looks}")
        self._wait(lambda: len(list(self.out.glob(f"answer.{self.looks}.*"))) == self.node_count)
        self.looks += 1

    def answer(self, look: int = 0) -> dict[str, Any]:
        """Return what the first node answered."""
        document: dict[str, Any] = json.loads((self.out / f"answer.{look}.0").read_text())
        return document

    def _steps(self) -> list[int]:
        texts = [path.read_text() for path in sorted(self.out.glob("step.*"))]
        return [int(text) for text in texts] if all(texts) and len(texts) == self.size else []

    def _wait(self, is_so: Callable[[], bool]) -> None:
        end_at = time.monotonic() + START_S
        while True:
            has_failed = any(each.poll() for each in self.nodes)
            if is_so():
                return
            logs = "\n".join(path.read_text()[-2000:] for path in self.out.glob("log.*"))
            assert not has_failed and time.monotonic() < end_at, f"steps {self._steps()}\n{logs}"
            time.sleep(0.1)


@contextlib.contextmanager
def started(place: Path, ranks: tuple[int, ...], *nodes: Netns, env: dict[str, str], **faults: str) -> Iterator[Job]:
    """Start a job with so many ranks on each node."""
    job = Job(place / "out", sum(ranks), len(ranks))
    job.out.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        for number, count in enumerate(ranks):
            prefix = nodes[number].named(f"node{number}") if nodes else ()
            machine = machine_of("pcie4-2numa", 1, **faults)
            sandbox = Sandbox(machine, place / f"node{number}", prefix=prefix, module="tests.simcuda.hanging_job")
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # py-spy is beside this Python
            arguments = (str(sum(ranks[:number])), str(count), str(job.size), str(job.out))
            sandbox.place.mkdir()
            job.nodes.append(stack.enter_context(sandbox.started(*arguments, env={"PATH": path, **env})))
        yield job


def _waits_for_rank(place: Path, env: dict[str, str]) -> Job:
    """Have rank 2 never launch its tenth sum, look, kill it, and look again; without RAS ask torch for its dumps."""
    recorder = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "100", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(place / "dump_"),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(place / "pipe_"),
    } if env else {}  # fmt: skip
    with started(place, (3,), env=env | recorder, RANK_SLEEPS="2:10") as job:
        job.wait_until_still()
        job.look(*(["--dump"] if recorder else []), is_last=False)
        job.look(kill=(2,))
    return job


def _loses_bytes(place: Path, env: dict[str, str]) -> Job:
    with started(place, (2,), env=env, P2P_LOSES="0-1") as job:
        job.wait_until_still()
        job.look()
    return job


def _loses_path(place: Path, env: dict[str, str]) -> Job:
    """Have nodes 0 and 1 lose the way to each other; node 2 reaches both."""
    with make_nodes(3) as nodes, started(
        place, (1, 1, 1), *nodes, env={"MASTER_ADDR": node_address(0), **env}
    ) as job:  # fmt: skip
        job.wait_for_step(3)
        for number in (0, 1):
            nodes[number].ip("route", "add", "blackhole", f"{node_address(1 - number)}/32")
        job.wait_until_still()
        job.look()
    return job


def _line(call: str) -> str:
    return f"(hanging_job.py:{CODE.index(f'        {call}') + 1}, run_rank)"


def _ras(report: dict[str, Any]) -> list[str]:
    """Return what the evidence has from RAS."""
    return [each for culprit in report["culprits"] for each in culprit["evidence"] if "NCCL's RAS" in each]


def test_a_rank_that_launches_nothing_is_named_and_one_that_is_gone(ras: str, tmp_path: Path) -> None:
    job = _waits_for_rank(tmp_path, RAS[ras])
    report = job.answer()
    (culprit,) = report["culprits"]
    assert (report["exit_code"], culprit["reason"], culprit["ranks"]) == (1, "other_collective", [2])
    where = f"waits in all_reduce {_line('dist.all_reduce(loss)')}, 2 others for the GPU {_line('loss.item()')}"
    assert where in culprit["what"], culprit
    said = "has launched 9 AllReduce operations, others 10"
    assert [said in each for each in _ras(report)] == ([True] if ras == "with RAS" else []), culprit
    if ras == "without":  # torch dumped on request; it writes a call down before it launches, so all are level
        gaps = {gap["fact"]: gap["reason"] for gap in report["gaps"]}
        assert "flight recorder dumps show their ranks level" in gaps["nodes[0].recorded"]
    report = job.answer(1)
    (culprit,) = report["culprits"]
    assert (report["exit_code"], culprit["reason"], culprit["ranks"]) == (1, "dead_rank", [2])
    assert f"2 ranks wait for the GPU {_line('loss.item()')}" in report["summary"]
    assert ["does not answer" in each for each in _ras(report)] == ([True] if ras == "with RAS" else []), culprit


def test_where_a_pair_of_gpus_loses_the_bytes_no_rank_is_named(ras: str, tmp_path: Path) -> None:
    report = _loses_bytes(tmp_path, RAS[ras]).answer()
    (culprit,) = report["culprits"]
    assert (report["exit_code"], culprit["reason"], culprit["ranks"]) == (1, "nothing_moves", [])
    assert f"all 2 ranks that were found wait for the GPU {_line('loss.item()')}" in culprit["what"]
    assert [each for each in culprit["evidence"] if "no GPU computes" in each], culprit
    assert ["have launched the same" in e for e in _ras(report)] == ([True] if ras == "with RAS" else []), culprit


def test_the_pair_of_nodes_whose_path_breaks_is_named(ras: str, tmp_path: Path) -> None:
    job = _loses_path(tmp_path, RAS[ras])
    command = [sys.executable, "-m", "preflight", "stuck", "--merge", str(job.out / "nodes"), "--json", "-"]
    merged = json.loads(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False).stdout)
    (culprit,) = merged["culprits"]
    assert (merged["exit_code"], culprit["reason"], culprit["ranks"]) == (1, "path_broken", [0, 1]), merged["summary"]
    assert f"from {node_address(0)}, rank 0 (node0) at {node_address(1)}, rank 1" in culprit["what"], culprit
    levels = [node["ras"]["is_level"] for node in merged["nodes"] if node["ras"]]
    assert levels == ([False] * 3 if ras == "with RAS" else []), "RAS itself can't reach all"
