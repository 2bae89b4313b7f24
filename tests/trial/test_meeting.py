"""The meeting itself, over loopback and without ranks: who is let in, who is refused, what is said of the missing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.check.request import BenchRequest
from preflight.errors import MeetingError
from preflight.model.joint import PROTOCOL, Hello, JointPlan, SoloResult
from preflight.model.network_survey import NetworkSurvey
from preflight.model.placement import Placement
from preflight.search.nodes.joint_plan import plan_jointly
from preflight.trial.launch_result import Launch
from preflight.trial.launcher import Peers
from preflight.trial.nodes.follower import Follower
from preflight.trial.nodes.leader import Leader
from preflight.trial.nodes.meeting_point import Listening, listen
from preflight.trial.nodes.peers import Member
from preflight.trial.nodes.wire import line_of, pack
from preflight.trial.run_dir import make_joint_dir
from tests.search.nodes.test_joint_plan import solo
from tests.trial.test_launcher import SPEC

pytestmark = pytest.mark.heavy(4)

HERE = Listening(("127.0.0.1",), "a test's")
EFFORT = BenchRequest()


class Meeting:
    """Node 0 and any number of others in one process, each with its own `Launch`."""

    def __init__(self, tmp_path: Path, nodes: int, within_s: float = 20) -> None:
        self._tmp_path, self._nodes, self._within_s = tmp_path, nodes, within_s
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.parts: dict[str, tuple[Peers, Launch]] = {}
        self._made = 0
        self.leader = Leader(self.node(0), HERE, (), self._plan)
        self.parts["leader"] = (self.leader, after_solo())

    def _plan(
        self, solo_results: Mapping[int, SoloResult], store_host: str, left_s: float, _: NetworkSurvey | None
    ) -> Mapping[int, JointPlan] | str:
        return plan_jointly(solo_results, store_host, left_s, EFFORT)

    def node(self, rank: int, **overrides: Any) -> Member:
        place = Placement(self._nodes, rank, "127.0.0.1", (self.port,), "run", (), ())
        now = time.monotonic()
        hello = replace(Hello(PROTOCOL, "1", "run", self._nodes, rank, f"n{rank}", 0.0), **overrides)
        self._made += 1
        run_dir = self._tmp_path / f"run{self._made}"
        run_dir.mkdir()
        make_joint_dir(str(run_dir))
        spec = replace(SPEC, run_dir=str(run_dir))
        return Member(place, hello, spec, now + self._within_s, now + 60, lambda _: solo(f"n{rank}"))

    def join(self, name: str, rank: int, **overrides: Any) -> Follower:
        follower = Follower(self.node(rank, **overrides), ())
        self.parts[name] = (follower, after_solo())
        return follower

    def problem(self, name: str) -> str:
        return self.parts[name][1].result.problem

    def until(self, what: Callable[[], object], within_s: float = 10) -> None:
        limit = time.monotonic() + within_s
        while not what():
            assert time.monotonic() < limit
            for peers, launched in self.parts.values():
                peers.turn(launched)
            time.sleep(0.005)

    def end(self) -> None:
        for peers, _ in self.parts.values():
            if isinstance(peers, Follower):
                peers.finish("")
        self.leader.finish({"kind": "bye"})


def after_solo() -> Launch:
    launched = Launch()
    launched.end_solo("")
    return launched


@pytest.fixture
def meet(tmp_path: Path) -> Any:
    made: list[Meeting] = []

    def make(nodes: int, within_s: float = 20) -> Meeting:
        made.append(Meeting(tmp_path, nodes, within_s))
        return made[0]

    yield make
    for meeting in made:
        meeting.end()


def test_all_that_come_begin_together(meet: Callable[..., Meeting]) -> None:
    meeting = meet(3)
    followers = [meeting.join(f"g{rank}", rank) for rank in (2, 1)]
    meeting.until(lambda: meeting.leader.has_begun and all(follower.node.relay for follower in followers))
    assert sorted(meeting.leader.solo_results()) == [0, 1, 2]


def test_who_is_missing_is_named_after_the_limit(meet: Callable[..., Meeting]) -> None:
    meeting = meet(3, within_s=0.5)
    meeting.join("g2", 2)
    meeting.until(lambda: meeting.problem("leader"))
    assert "2 of 3 nodes came" in meeting.problem("leader")
    assert "missing: node 1" in meeting.problem("leader")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"preflight": "2"}, "versions differ: preflight 2 there, 1 on n0"),
        ({"protocol": PROTOCOL + 1}, "versions differ"),
        ({"run_id": "other"}, "belongs to another run"),
        ({"nodes": 5}, "it expects 5 nodes"),
        ({"node_rank": 0}, "calls itself node 0"),
        ({"node_rank": 9}, "calls itself node 9"),
    ],
)
def test_who_does_not_belong_is_refused_with_the_reason(
    meet: Callable[..., Meeting], overrides: dict[str, Any], words: str
) -> None:
    meeting = meet(2)
    meeting.join("odd", 1, **overrides)
    meeting.until(lambda: meeting.problem("odd"))
    assert words in meeting.problem("odd")
    assert meeting.problem("leader") == ""
    meeting.join("right", 1)
    meeting.until(lambda: meeting.leader.has_begun)


def test_a_second_node_of_the_same_number_is_refused_and_the_first_stays(meet: Callable[..., Meeting]) -> None:
    meeting = meet(3)
    meeting.join("first", 1)
    meeting.until(lambda: meeting.leader.followers)
    meeting.join("second", 1)
    meeting.until(lambda: meeting.problem("second"))
    assert "node 1 is here already" in meeting.problem("second")
    assert list(meeting.leader.followers) == [1]


def test_a_node_that_goes_away_before_the_common_trials_may_come_again(meet: Callable[..., Meeting]) -> None:
    meeting = meet(3)
    first = meeting.join("first", 1)
    meeting.until(lambda: meeting.leader.followers)
    del meeting.parts["first"]
    first.finish("stopped by SIGTERM")
    meeting.until(lambda: not meeting.leader.followers)
    assert meeting.problem("leader") == ""
    for rank in (1, 2):
        meeting.join(f"g{rank}", rank)
    meeting.until(lambda: meeting.leader.has_begun)


def test_a_node_that_goes_away_later_ends_the_run_and_is_named_with_its_reason(meet: Callable[..., Meeting]) -> None:
    meeting = meet(2)
    follower = meeting.join("g", 1)
    meeting.until(lambda: follower.node.relay)
    del meeting.parts["g"]
    follower.finish("stopped by SIGTERM")
    meeting.until(lambda: meeting.problem("leader"))
    assert "n1 (node 1) went away" in meeting.problem("leader")
    assert "stopped by SIGTERM" in meeting.problem("leader")


STRANGERS = [
    b"",
    b"\x00\xff" * 500 + b"\n",
    b"{}\n",
    b'{"kind":"hello"}\n',
    b"[" * 4000,
    b"x" * 100_000,
    b'{"kind":"solo"}\n',
]


@pytest.mark.parametrize("words", STRANGERS)
def test_strangers_keep_nobody_from_meeting(meet: Callable[..., Meeting], words: bytes) -> None:
    meeting = meet(2)
    strangers = [socket.create_connection(("127.0.0.1", meeting.port)) for _ in range(300)]
    try:
        for stranger in strangers:
            stranger.setblocking(False)
            try:
                stranger.send(words)
            except OSError:
                continue
        meeting.join("g", 1)
        meeting.until(lambda: meeting.leader.has_begun)
        assert list(meeting.leader.solo_results()) == [0, 1]
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_host_that_talks_nonsense_is_not_node_0(tmp_path: Path, meet: Callable[..., Meeting]) -> None:
    meeting = meet(2, within_s=1)
    meeting.leader.finish({"kind": "bye"})
    del meeting.parts["leader"]
    with socket.create_server(("127.0.0.1", meeting.port)) as odd:
        odd.setblocking(False)
        held = []
        meeting.join("g", 1)

        def answered() -> str:
            try:
                held.append(odd.accept()[0])
                held[-1].sendall(b"SSH-2.0-x\r\n")
            except BlockingIOError:
                pass
            return meeting.problem("g")

        meeting.until(answered)
        for sock in held:
            sock.close()
    assert "no message of preflight" in meeting.problem("g")


def test_a_step_before_the_common_trials_have_begun_changes_nothing(meet: Callable[..., Meeting]) -> None:
    meeting = meet(3)
    follower = meeting.join("g", 1)
    meeting.until(lambda: meeting.leader.followers)
    (link,) = (each.link for each in meeting.leader.followers.values())
    link.queue_line(line_of({"kind": "key", "key": "step/0", "z": pack({"kind": "stop"})}))
    meeting.join("late", 2)
    meeting.until(lambda: follower.node.relay)
    assert not Path(follower.node.spec.run_dir, "joint", "control", "step.0").exists()


def test_the_next_free_port_of_several_is_taken_and_a_single_one_that_is_not_free_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MeetingError, match=f"port {port} on 127.0.0.1 is taken by another process"):
            listen(HERE, (port,))
        opened, chosen = listen(HERE, (port, 0))
        assert chosen == 0
        for sock in opened:
            sock.close()
