"""A server whose workers wait for the next request is idle, and not stuck; one whose worker does not come is stuck."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.model.stuck import Activity, Reason, StuckVerdict
from preflight.model.stuck_evidence import Frame, RankProcess, ThreadState
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from preflight.stuck.judge.answer import answer
from tests.ports import free_port
from tests.stuck.evidence import ALL_REDUCE, C10D, NONE, SITE, frames, node, process, rank, server, thread
from tests.stuck.hanging_jobs import PROJECT

VLLM = f"{SITE}/vllm"
EXECUTOR = f"{VLLM}/v1/executor/multiproc_executor.py"
MESSAGES = f"{VLLM}/distributed/device_communicators/shm_broadcast.py"
# As py-spy showed them of vLLM 0.32.0.
POLLS = (
    ("Poller.poll", f"{SITE}/zmq/sugar/poll.py", 106),
    ("SpinCondition.wait", MESSAGES, 210),
    ("MessageQueue.acquire_read", MESSAGES, 864),
    ("_GeneratorContextManager.__enter__", "/usr/lib/python3.11/contextlib.py", 137),
    ("MessageQueue.dequeue", MESSAGES, 971),
)
LOOP = ("WorkerProc.worker_busy_loop", EXECUTOR, 1041)
IDLE = frames(*POLLS, LOOP, ("WorkerProc.worker_main", EXECUTOR, 944))
IDLE_ENGINE = frames(
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 327),
    ("Queue.get", "/usr/lib/python3.11/queue.py", 171),
    ("EngineCoreProc._process_input_queue", f"{VLLM}/v1/engine/core.py", 1588),
)


@pytest.mark.parametrize("stack", (IDLE, IDLE_ENGINE), ids=("workers", "engine core"))
def test_a_server_whose_workers_all_wait_for_a_request_is_not_stuck(stack: tuple[Frame, ...]) -> None:
    report = answer(
        [node(*(rank(i, process(100 + i, stack, thread(100 + i, "S", "do_poll")), size=2) for i in (0, 1)))]
    )
    assert (report.verdict, report.exit_code, report.culprits) == (StuckVerdict.NOT_STUCK, 0, ())
    assert {place.activity for place in report.places} == {Activity.IDLE}
    page = stuck_page(report).shown(Detail.SCREEN, Style(width=80))
    assert "NOT STUCK  The server is idle: all 2 ranks wait for the next request." in page
    assert "py-spy" not in page and "End the job" not in page


def test_a_worker_that_waits_within_a_step_is_not_idle() -> None:
    inside = frames(
        *POLLS, ("MessageQueue.broadcast_object", MESSAGES, 990), ("Worker.execute_model", EXECUTOR, 5), LOOP
    )
    report = answer([node(*(rank(i, process(100 + i, inside), size=2) for i in (0, 1)))])
    assert report.verdict is not StuckVerdict.NOT_STUCK


def test_a_worker_that_is_idle_while_another_waits_in_a_collective_holds_it_up() -> None:
    report = answer([node(rank(0, size=2), rank(1, process(101, IDLE), size=2))])
    (culprit,) = report.culprits
    assert (culprit.reason, culprit.ranks) == (Reason.RANK_ELSEWHERE, (1,))
    assert "rank 1 on n0 is idle in the request loop (multiproc_executor.py:1041, worker_busy_loop)" in report.summary


def test_a_stopped_worker_of_an_idle_server_is_named() -> None:
    stopped = rank(1, process(101, IDLE, thread(101, "T", "do_signal_stop")), size=2)
    (culprit,) = answer([node(rank(0, process(100, ALL_REDUCE), size=2), stopped)]).culprits
    assert (culprit.reason, culprit.pids) == (Reason.STOPPED_PROCESS, (101,))


def test_a_missing_worker_keeps_an_idle_server_from_being_called_healthy() -> None:
    report = answer([node(rank(0, process(100, IDLE), size=2))])
    assert report.verdict is not StuckVerdict.NOT_STUCK


def test_a_stopped_engine_core_or_server_above_idle_workers_is_named() -> None:
    idle = [rank(i, process(100 + i, IDLE, thread(100 + i, "S", "do_poll")), size=2) for i in (0, 1)]
    core, program = process(90, IDLE_ENGINE), process(80, frames(("<module>", "/venv/bin/vllm", 8)))
    halted = process(90, IDLE_ENGINE, thread(90, "T", "do_signal_stop"))
    healthy = server(80, "the program vllm", program)
    assert answer([node(*idle, servers=(server(90, "EngineCore", core), healthy))]).exit_code == 0
    report = answer([node(*idle, servers=(server(90, "EngineCore", halted), healthy))])
    (culprit,) = report.culprits
    assert (report.exit_code, culprit.reason, culprit.ranks, culprit.pids) == (1, Reason.STOPPED_PROCESS, (), (90,))
    assert report.summary.startswith("EngineCore on n0 (pid 90) is stopped by a signal at core.py:1588")
    assert any("kill -CONT 90" in step for step in culprit.steps)


def test_an_engine_core_that_waits_outside_its_loop_while_all_workers_are_idle_is_named() -> None:
    idle = [rank(i, process(100 + i, IDLE, thread(100 + i, "S", "do_poll")), size=2) for i in (0, 1)]
    waits = frames(*POLLS, ("EngineCore.step", f"{VLLM}/v1/engine/core.py", 700))
    report = answer([node(*idle, servers=(server(90, "EngineCore_DP0", process(90, waits)),))])
    assert (report.exit_code, report.culprits[0].pids) == (1, (90,))
    assert report.summary.startswith("EngineCore_DP0 on n0 is ") and "all 2 ranks wait for work" in report.summary
    brief = process(90, waits, thread(90, "S", "do_poll", asleep_s=0.1))
    assert answer([node(*idle, servers=(server(90, "EngineCore_DP0", brief),))]).exit_code == 0


# As py-spy showed it of vLLM 0.32.0, which looks again and again whether the block is free.
FULL_RING = frames(
    ("MessageQueue.acquire_write", MESSAGES, 744),
    ("_GeneratorContextManager.__enter__", "/usr/lib/python3.11/contextlib.py", 137),
    ("MessageQueue.enqueue", MESSAGES, 945),
    ("MultiprocExecutor.collective_rpc", EXECUTOR, 427),
    ("EngineCoreProc.run_busy_loop", f"{VLLM}/v1/engine/core.py", 1551),
)
CHECKS = (*frames(("MessageQueue.acquire_write.<locals>.check", MESSAGES, 727)), *FULL_RING)
ELSEWHERE = frames(("pull", f"{VLLM}/worker/connector.py", 12), LOOP)


def writer(stack: tuple[Frame, ...] = FULL_RING, earlier: tuple[Frame, ...] = CHECKS) -> RankProcess:
    busy = ThreadState(90, "VLLM::EngineCor", "R", "", 6.0, 0, 0.0)
    return server(90, "EngineCore", process(90, stack, busy, earlier=earlier))


def test_a_worker_that_does_not_read_its_full_ring_holds_up_the_engine_core_and_an_idle_one_does_not() -> None:
    names = ("Worker_TP0", "Worker_TP1")
    pulls = process(101, ELSEWHERE, thread(101, "S", "hrtimer_nanosleep"))
    ranks = [rank(0, process(100, IDLE, thread(100, "S", "do_poll")), size=2), rank(1, pulls, size=2)]
    ranks = [replace(each, name=name) for each, name in zip(ranks, names, strict=True)]
    report = answer([node(*ranks, servers=(writer(),))])
    (culprit,) = report.culprits
    assert (report.exit_code, culprit.reason, culprit.pids) == (1, Reason.RANK_ELSEWHERE, (101,))
    assert report.summary.startswith(
        "EngineCore waits for a free block in the shared-memory ring (shm_broadcast.py:744, acquire_write); "
        "Worker_TP1 on n0 is sleeping: pull (connector.py:12), for 60 s."
    ), report.summary


def test_an_engine_core_that_spins_at_a_full_ring_and_was_read_only_once_waits_for_it() -> None:
    pulls = rank(1, process(101, ELSEWHERE, thread(101, "S", "hrtimer_nanosleep")), size=2)
    idle = rank(0, process(100, IDLE, thread(100, "S", "do_poll")), size=2)
    core = writer()
    once = replace(core, process=replace(core.process, earlier_stacks=NONE))
    assert answer([node(idle, pulls, servers=(once,))]).summary.startswith("EngineCore waits for a free block")


ANSWERS = frames(*POLLS, ("MultiprocExecutor.get_response", EXECUTOR, 440))


@pytest.mark.parametrize(("wakes", "verdict"), [(400, StuckVerdict.NOT_STUCK), (0, StuckVerdict.STUCK)])
def test_an_engine_core_that_is_woken_by_answers_is_not_stuck_beside_idle_workers(
    wakes: int, verdict: StuckVerdict
) -> None:
    busy = ThreadState(90, "VLLM::EngineCor", "R", "", 1.0, wakes, 0.0)
    core = server(90, "EngineCore", process(90, ANSWERS, busy, earlier=ANSWERS))
    idle = (rank(i, process(100 + i, IDLE, thread(100 + i, "S", "do_poll")), size=2) for i in (0, 1))
    assert answer([node(*idle, servers=(core,))]).verdict is verdict


def test_a_worker_that_makes_progress_while_its_ring_is_full_is_waited_for() -> None:
    loads = ThreadState(101, "python", "R", "", 1.9, 40, 0.0)
    pulls = process(101, ELSEWHERE, loads, earlier=ELSEWHERE[1:])
    idle = rank(0, process(100, IDLE, thread(100, "S", "do_poll")), size=2)
    report = answer([node(idle, rank(1, pulls, size=2), servers=(writer(),))])
    assert report.summary.startswith("Not stuck yet: rank 1 on n0 is in Python code: pull"), report.summary


def test_an_engine_core_that_only_passes_the_ring_does_not_wait_for_it() -> None:
    report = answer([node(rank(0, process(100, ELSEWHERE), size=1), servers=(writer(earlier=IDLE_ENGINE),))])
    assert "ring" not in report.summary


# As py-spy showed them of SGLang 0.5.23: an idle server's schedulers broadcast "no request" hundreds of times a second.
COMMON = f"{SITE}/sglang/srt/utils/common.py"


def scheduler(number: int, line: int, main: ThreadState) -> RankProcess:
    stack = frames(("broadcast", C10D, 3151), ("broadcast_pyobj", COMMON, line))
    return replace(rank(number, process(main.tid, stack, main), size=2), name=f"scheduler_TP{number}")


def test_schedulers_that_broadcast_again_and_again_are_not_stuck_in_whatever_line_they_are_seen() -> None:
    turns = [ThreadState(100 + i, "sglang::schedul", "R", "", 0.6, 900, 0.0) for i in (0, 1)]
    report = answer([node(*(scheduler(i, line, turns[i]) for i, line in enumerate((2715, 2730))))])
    assert (report.verdict, report.exit_code) == (StuckVerdict.NOT_STUCK, 0), report.summary


def test_schedulers_that_wait_in_one_broadcast_are_in_the_same_collective_though_the_root_calls_it_elsewhere() -> None:
    report = answer([node(*(scheduler(i, line, thread(100 + i)) for i, line in enumerate((2715, 2730))))])
    (culprit,) = report.culprits
    assert culprit.reason is Reason.NOTHING_MOVES, report.summary


def test_a_stopped_detokenizer_is_named_while_the_schedulers_go_on() -> None:
    turns = [ThreadState(100 + i, "sglang::schedul", "S", "futex_do_wait", 0.6, 900, 0.0) for i in (0, 1)]
    halted = server(90, "detokenizer", process(90, IDLE_ENGINE, thread(90, "T", "do_signal_stop")))
    ranks = [scheduler(i, line, turns[i]) for i, line in enumerate((2715, 2730))]
    report = answer([node(*ranks, servers=(halted,))])
    assert (report.exit_code, report.culprits[0].pids) == (1, (90,))
    assert report.summary.startswith("detokenizer on n0 (pid 90) is stopped by a signal"), report.summary


def test_workers_have_the_names_that_their_engine_gives_them() -> None:
    names = ("Worker_TP0", "Worker_TP1")
    stopped = process(101, IDLE, thread(101, "T", "do_signal_stop"))
    ranks = [rank(0, process(100, ALL_REDUCE), size=2), rank(1, stopped, size=2)]
    report = answer([node(*(replace(each, name=name) for each, name in zip(ranks, names, strict=True)))])
    assert "Worker_TP0 waits in all_reduce" in report.summary
    assert "; Worker_TP1 on n0 (pid 101) is stopped by a signal" in report.summary
    page = stuck_page(report).shown(Detail.SCREEN, Style(width=80))
    assert re.search(r"\n *Worker_TP1 .*101  stopped", page), page


@pytest.mark.integration
def test_stuck_looks_at_idle_workers_of_a_real_group_and_finds_the_server_idle(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "site-packages"
    for path, text in {
        "vllm/distributed/device_communicators/shm_broadcast.py": "def dequeue(pipe):\n    return pipe.recv()\n",
        "vllm/v1/executor/multiproc_executor.py": (
            "from vllm.distributed.device_communicators.shm_broadcast import dequeue\n\n"
            "def worker_busy_loop(pipe):\n    while True:\n        dequeue(pipe)\n"
        ),
    }.items():
        (site / path).parent.mkdir(parents=True)
        (site / path).write_text(text)
    job = tmp_path / "serve.py"
    job.write_text(
        "import sys\nfrom multiprocessing import Pipe\nimport torch.distributed as dist\n"
        "from vllm.v1.executor.multiproc_executor import worker_busy_loop\n"
        "dist.init_process_group('gloo', init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)\n"
        "dist.barrier()\nopen(sys.argv[3] + sys.argv[2], 'w').close()\nends = Pipe()\nworker_busy_loop(ends[0])\n"
    )
    address, up = f"tcp://127.0.0.1:{free_port()}", tmp_path / "up."
    environ = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    workers = [subprocess.Popen([sys.executable, str(job), address, str(i), str(up)], env=environ) for i in (0, 1)]
    try:
        until = time.monotonic() + 100
        while not all(Path(f"{up}{i}").exists() for i in (0, 1)):
            assert time.monotonic() < until and all(each.poll() is None for each in workers)
            time.sleep(0.1)
        command = [sys.executable, "-m", "preflight", "stuck", "--pid", str(os.getpid()), "--json", "-"]
        ran = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False
        )
    finally:
        for each in workers:
            each.kill()
            each.wait()
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["verdict"]) == (0, "not_stuck"), ran.stdout
    assert report["summary"].startswith("The server is idle: all 2 ranks wait for the next request."), report["summary"]
