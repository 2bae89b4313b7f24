"""The control channel across nodes: what each launcher passes on, and what it does not let another node say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from preflight.errors import MeetingError
from preflight.trial.nodes.relay import Relay
from preflight.trial.nodes.wire import Message, pack
from preflight.trial.rank.channel import Channel

STEP = {"kind": "run", "label": "default"}


class Side:
    """One node's directory, its channel and its mirror."""

    def __init__(self, path: Path, ranks: range, is_leader: bool) -> None:
        path.mkdir()
        self.channel = Channel(str(path))
        self.relay = Relay(str(path), ranks, is_leader)

    def say(self) -> list[Message]:
        return list(self.relay.outbound())


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    host, follower = Side(tmp_path / "host", range(2), True), Side(tmp_path / "guest", range(2, 4), False)
    yield host, follower
    host.relay.close()
    follower.relay.close()


def test_steps_go_from_node_0_to_the_others_and_not_back(sides: tuple[Side, Side]) -> None:
    host, follower = sides
    host.channel.put("store/0", {"port": 1})
    host.channel.put("step/0", STEP)
    said = host.say()
    assert [message["key"] for message in said] == ["store/0", "step/0"]
    for message in said:
        follower.relay.take_key(message)
    assert follower.channel.get("step/0") == STEP
    assert follower.say() == []
    assert host.say() == []


def test_answers_go_to_node_0_once_all_ranks_of_the_node_have_answered(sides: tuple[Side, Side]) -> None:
    host, follower = sides
    follower.channel.put("end/0/2", ["two"])
    assert follower.say() == []
    follower.channel.put("end/0/3", ["three"])
    (message,) = follower.say()
    host.relay.take_ends(message, range(2, 4))
    assert host.channel.get("ends/0/2") == {"2": ["two"], "3": ["three"]}
    assert host.say() == []


def test_a_kill_goes_both_ways_and_the_first_reason_counts(sides: tuple[Side, Side]) -> None:
    host, follower = sides
    host.channel.put_first("kill/0", {"by": 0, "why": "hang"})
    follower.channel.put_first("kill/0", {"by": 2, "why": "failed"})
    (from_host,), (from_guest,) = host.say(), follower.say()
    follower.relay.take_key(from_host)
    host.relay.take_key(from_guest)
    assert host.channel.get("kill/0")["why"] == "hang"
    assert host.say() == follower.say() == []


@pytest.mark.parametrize("key", ["step/0", "store/0", "end/0/1", "../x", "kill/../../etc", "", None])
def test_what_only_node_0_may_say_it_takes_from_nobody(sides: tuple[Side, Side], key: object) -> None:
    with pytest.raises(MeetingError, match="not its business"):
        sides[0].relay.take_key({"kind": "key", "key": key, "z": pack({})})
    assert sides[0].say() == []


@pytest.mark.parametrize("answers", [{"0": []}, {"2": []}, {"2": [], "3": [], "4": []}, {"../x": []}, [], None])
def test_answers_for_other_ranks_than_its_own_are_refused(sides: tuple[Side, Side], answers: object) -> None:
    with pytest.raises(MeetingError, match="other ranks than its own 2 to 3"):
        sides[0].relay.take_ends({"kind": "ends", "step": 0, "z": pack(answers)}, range(2, 4))
    assert not sides[0].channel.has("end/0/0")


def test_files_that_are_still_being_written_are_not_passed_on(sides: tuple[Side, Side]) -> None:
    host, _ = sides
    Path(host.channel.directory, "step.0.4711").write_text("{")
    Path(host.channel.directory, "ready.0").write_text("{}")
    assert host.say() == []
