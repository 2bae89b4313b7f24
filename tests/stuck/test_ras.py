"""A question to NCCL's RAS can crash the job: only reviewed releases are asked, unless the user insists."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.gap import Gap
from preflight.model.nccl_ras import REVIEWS, RasReview, parse_nccl_version, why_not_ask
from preflight.stuck.collect.jobs import ListedProcess
from preflight.stuck.collect.libraries import mapped_libraries, read_nccl_version
from preflight.stuck.collect.ras import AskRas, ask_ras
from preflight.system.kernel_queries import live_machine
from tests.ports import free_port
from tests.stuck.hanging_jobs import PROJECT

DIED_OF_IT = 9
# Maps the library as NCCL's is mapped, listens as RAS does, and dies of the first question.
STAND_IN = f"""
import mmap, os, socket, sys
with open(sys.argv[1], "rb") as file:
    library = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
print("ready", flush=True)
server.accept()
os._exit({DIED_OF_IT})
"""
SAFE = (RasReview((2, 90, 0), (2, 91, 0), True, "", "made up"),)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A process that looks like a rank of NCCL with RAS."""

    process: subprocess.Popen[str]
    address: str

    def was_asked(self) -> bool:
        """Return whether it died of a question."""
        try:
            return self.process.wait(timeout=0.3) == DIED_OF_IT
        except subprocess.TimeoutExpired:
            return False

    def ask(self, how: AskRas) -> str:
        """Return why nothing came back, with one made-up release that is safe."""
        listed = ListedProcess(
            self.process.pid, 1, os.getuid(), "python", "S", 1, (), {}, {"NCCL_RAS_ADDR": self.address}, frozenset()
        )
        answer = ask_ras(live_machine(), [listed], how, (*REVIEWS, *SAFE))
        assert isinstance(answer, Gap)
        return answer.reason


@contextmanager
def stand_in(folder: Path, version: str) -> Iterator[StandIn]:
    """Run a stand-in until the test has ended."""
    library = folder / "libnccl.so.2"
    library.write_bytes(b"\x7fELF" + bytes(3 << 20) + f"NCCL version {version}+cuda12.9\0".encode() + bytes(100))
    address = f"127.0.0.1:{free_port()}"
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NCCL_RAS_ADDR": address}
    command = [sys.executable, "-c", STAND_IN, str(library), address.rpartition(":")[2]]
    with subprocess.Popen(command, env=os.environ | rank, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            yield StandIn(process, address)
        finally:
            process.kill()


@pytest.mark.parametrize("more", ((), ("--no-ras",), ("--ras",)), ids=("by default", "--no-ras", "--ras"))
def test_stuck_asks_a_release_that_may_crash_only_if_the_user_insists(more: tuple[str, ...], tmp_path: Path) -> None:
    with stand_in(tmp_path, "2.27.5") as rank:
        command = [sys.executable, "-m", "preflight", "stuck", "-v", "--pid", str(rank.process.pid), "--watch", "1s"]
        environ = os.environ | {"PYTHONPATH": str(PROJECT), "COLUMNS": "200"}
        ran = subprocess.run([*command, *more], env=environ, capture_output=True, text=True, check=False)
        assert ran.returncode in (0, 1, 3), ran.stderr  # a stand-in that has just started may still move
        assert rank.was_asked() is (more == ("--ras",))
    said = "NCCL's RAS was not queried: " in ran.stdout
    assert said is (more != ("--ras",)), ran.stdout
    assert ("(NVIDIA/nccl 1762)" in " ".join(ran.stdout.split())) is (more == ()), ran.stdout


@pytest.mark.parametrize(
    ("version", "how", "is_asked"),
    [
        ("2.90.1", AskRas.REVIEWED, True),
        ("2.90.1", AskRas.NEVER, False),
        ("2.91.0", AskRas.REVIEWED, False),
        ("2.29.7", AskRas.REVIEWED, False),
        ("2.29.7", AskRas.INSIST, True),
    ],
)
def test_the_mapped_library_decides_whether_ras_is_asked(
    version: str, how: AskRas, is_asked: bool, tmp_path: Path
) -> None:
    with stand_in(tmp_path, version) as rank:
        reason = rank.ask(how)
        assert rank.was_asked() is is_asked, reason
    assert reason.startswith("NCCL's RAS was not queried: ") is not is_asked


def test_a_library_that_does_not_tell_its_release_is_not_asked(tmp_path: Path) -> None:
    with stand_in(tmp_path, "of nobody's") as rank:
        assert "no report about RAS in NCCL unknown was reviewed" in rank.ask(AskRas.REVIEWED)
        assert not rank.was_asked()


def test_every_release_with_a_thread_about_a_crash_is_refused_with_its_source() -> None:
    threads = {"2.26.2": "1669", "2.26.5": "1718", "2.27.3": "1762", "2.27.7": "1762", "2.29.7": "2346"}
    assert [number for version, number in threads.items() if number not in why_not_ask(version)] == []
    assert why_not_ask("2.33.1") == "no report about RAS in NCCL 2.33.1 was reviewed"


def test_rows_of_the_table_follow_each_other() -> None:
    assert all(one.first < one.before <= other.first for one, other in pairwise(REVIEWS))


def test_only_libraries_that_hold_nccl_are_read() -> None:
    line = "7f0-7f1 r-xp 00000000 08:01 12 "
    other = f"{line}/opt/libnccl-net.so\n{line}[heap]\n7f0-7f1 rw-p 00000000 00:00 0\n"
    both = f"{line}/t/lib/libtorch_cuda.so\n{line}/n/a b/libnccl.so.2\n{line}/n/a b/libnccl.so.2\n"
    assert mapped_libraries(other + both) == ("/n/a b/libnccl.so.2",)
    assert mapped_libraries(both.splitlines()[0]) == ("/t/lib/libtorch_cuda.so",)


def test_a_release_is_found_across_the_pieces_that_are_read_and_in_no_fifo(tmp_path: Path) -> None:
    file, fifo = tmp_path / "libnccl.so.2", tmp_path / "fifo"
    os.mkfifo(fifo)
    for before in range((1 << 20) - 30, (1 << 20) + 3, 3):
        file.write_bytes(bytes(before) + b"NCCL version 2.32.3+cuda13\0")
        assert read_nccl_version(str(file)) == "2.32.3"
    (tmp_path / "link").symlink_to(file)
    assert [read_nccl_version(str(tmp_path / name)) for name in ("fifo", "link", "none")] == [""] * 3


@given(st.text(), st.text(alphabet="0123456789.²", max_size=12))
def test_whatever_a_library_calls_itself_there_is_an_answer(maps: str, version: str) -> None:
    assert isinstance(mapped_libraries(maps), tuple)
    assert why_not_ask(version) or parse_nccl_version(version)


def test_a_review_holds_from_its_first_release_to_the_one_before_its_last() -> None:
    review = (RasReview((2, 27, 3), (2, 29, 2), False, "an answer crashes the process", "NVIDIA/nccl 0"),)
    asked = {text: why_not_ask(text, review) for text in ("2.27.2", "2.27.3", "2.29.1", "2.29.2")}
    assert ["crashes" in why for why in asked.values()] == [False, True, True, False]
