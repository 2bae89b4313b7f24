"""Twenty healthy jobs that are silent for as long as one that hangs: none is called stuck, and none is disturbed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from preflight.job.order import Order, supervisor_argv
from tests.command import Command

# All read the same stories, which are started once.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("healthy"),
    pytest.mark.heavy(6),
]

HEALTHY = Path(__file__).with_name("healthy.py")
STUCK_AFTER_S = 3.0
NO_PROGRESS = "no progress for"
AT_ONCE = 3  # most of the time at least one rank of each waits
COMPUTES = r"rank [01] on .* computes in (?:changing|native|lines that were read) [\w ]+\(\d+% of a CPU\)"
CHILD = r"rank 0 on .* waits for its child \S+ \(pid \d+\), which (?:computes|has ended since)"


@dataclass(frozen=True, slots=True)
class Healthy:
    """A job that works, and what a look at it says if it comes in time; "" where nothing may be said."""

    way: str
    says: str = ""
    lines: tuple[str, ...] = ()  # of its own output, besides `done`
    no_rank_waits: bool = False  # then the job is clearly not stuck, and usually nothing is said


WAYS = {
    "rank 0 evaluates and the other waits": Healthy("evaluation", COMPUTES),
    "rank 0 writes a checkpoint slowly": Healthy("save", r"rank 0 on .* reads or writes \d+ kB/s"),
    "torch.save writes to a slow share": Healthy("slow_save", r"rank 0 on .* (?:gets or sends data|reads or writes)"),
    "a compiler works": Healthy("compile", CHILD),
    "a pool of processes tokenizes": Healthy("pool", CHILD),
    "a data worker decodes one long row": Healthy("loader", CHILD),
    "py-spy records rank 0, which computes": Healthy("profiled", COMPUTES),
    "a scheduler suspends the whole job": Healthy("suspended"),
    "rank 0 reads from a slow share": Healthy("slow_share", r"rank 0 on .* (?:gets or sends data|reads or writes)"),
    "a server polls for requests": Healthy("server"),
    "an import takes long": Healthy("import", COMPUTES),
    "one rank works under the lock file of both": Healthy("lock", COMPUTES),
    "rank 0 downloads from a slow server": Healthy("download", r"rank 0 on .* (?:gets or sends data|reads or writes)"),
    "the shell of a rank that works has ended": Healthy("adopted", COMPUTES),
    "rank 0 computes in the threads of numpy": Healthy("numpy", COMPUTES),
    "all ranks accumulate gradients": Healthy("accumulation", COMPUTES, no_rank_waits=True),
    "all ranks wait with growing pauses": Healthy("backoff"),
    "rank 0 exports a trace": Healthy("trace", COMPUTES),
    "rank 0 pickles and collects garbage": Healthy("pickle", COMPUTES),
    "progress is printed every ten seconds": Healthy(
        "seldom",
        COMPUTES,
        tuple(f"rank {rank}: {part} of 2" for rank in (0, 1) for part in (1, 2)),
        no_rank_waits=True,
    ),
}


def _run(way: str, command: Command) -> subprocess.CompletedProcess[str]:
    order = Order([sys.executable, str(HEALTHY), way, str(command.cwd)], [], "no.env", 78, True, STUCK_AFTER_S, "",
                  False)  # fmt: skip
    try:
        return subprocess.run(
            supervisor_argv(order), env=command.environ(), cwd=command.cwd, capture_output=True, text=True,
            close_fds=False, timeout=150, check=False, start_new_session=True,
        )  # fmt: skip
    finally:
        command.kill_all()


@pytest.fixture(scope="module")
def stories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """Run the jobs whose tests were chosen, some at a time: most of the time they wait."""
    own = [each for each in request.session.items if each.path == request.path]
    chosen = [each.callspec.params["name"] for each in own if hasattr(each, "callspec")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {
            name: pool.submit(_run, WAYS[name].way, Command(sys.executable, tmp_path_factory.mktemp(WAYS[name].way)))
            for name in chosen
        }
        yield running
        for each in running.values():
            each.cancel()


@pytest.mark.parametrize("name", WAYS)
def test_a_healthy_job_is_not_called_stuck_and_ends_as_without(
    stories: dict[str, Future[subprocess.CompletedProcess[str]]], name: str
) -> None:
    ran, expected = stories[name].result(), WAYS[name]
    said = " ".join(ran.stderr.split())
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["done 0", "done 1", *expected.lines], ran.stderr
    assert "STUCK" not in said and "dead" not in said and "End the job" not in said and "kill " not in said.lower(), (
        ran.stderr
    )
    if NO_PROGRESS in said:
        assert expected.says and re.search(rf"{NO_PROGRESS}.*says: Not stuck yet: {expected.says}", said), ran.stderr


def test_most_were_looked_at_while_they_worked(
    stories: dict[str, Future[subprocess.CompletedProcess[str]]],
) -> None:
    alone = [name for name in stories if WAYS[name].says in (COMPUTES, CHILD) and not WAYS[name].no_rank_waits]
    seen = [name for name in alone if NO_PROGRESS in stories[name].result().stderr]
    assert len(seen) >= len(alone) // 2, f"only {seen}"
