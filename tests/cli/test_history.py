"""`--history FILE`: three runs know of each other; a file that is none is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from preflight.errors import MalformedInput
from preflight.model.gap import Gap
from preflight.model.history import MOST_RUNS, Accused, PastRun, history_text, parse_history
from preflight.model.input_limits import HISTORY
from tests.command import Command, Ran

MACHINE = Path(__file__).parent.parent / "machines" / "rtx4090x2.json"
RUN = PastRun(
    "2026-01-01T00:00:00+00:00", "n1", Gap("no"), False, ("GPU-1",), (Accused("GPU-1", "intermittent", "hung"),)
)


def check(command: Command, at: str, *more: str) -> Ran:
    for path in command.tmp_path.glob("count.*"):
        path.unlink()
    flap = {"SIMNCCL": "hang:rank=1,stage=first", "FLAP_AT": at, "FLAP_COUNT": str(command.tmp_path / "count")}
    return command.run(
        "check", "--machine", str(MACHINE), "--backend", "simnccl@flapping", "--stage-limit", "5", "--accept",
        "--history", "h.jsonl", *more, env=flap, timeout_s=170,
    )  # fmt: skip


def lines(command: Command) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (command.cwd / "h.jsonl").read_text().splitlines()]


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_the_same_gpu_in_two_of_three_runs_rejects_the_node(command: Command) -> None:
    first = check(command, "0")
    assert (first.code, first.report["node_verdict"]) == (3, "unknown")
    healthy = check(command, "99")
    assert healthy.report["verdict"] == "ready"
    third = check(command, "0")
    assert (third.code, third.report["node_verdict"]) == (1, "reject")
    found = next(each for each in third.report["findings"] if each["check"] == "intermittent")
    assert "so did 2 of the last 3 runs with GPU-00000002" in found["problem"]
    assert [len(each["accused"]) for each in lines(command)] == [2, 0, 2]
    assert check(command, "99").report["verdict"] == "ready", "what happened before accuses no run without a fault"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "h.jsonl, line 1: not JSON"),
        ("[]\n", "h.jsonl, line 1: "),
        (history_text([RUN]) + '{"at": 3}\n', "h.jsonl, line 2: "),
    ],
)
def test_what_is_no_history_is_refused_before_anything_starts(command: Command, text: str, said: str) -> None:
    (command.cwd / "h.jsonl").write_text(text)
    ran = command.run("check", "--history", "h.jsonl")
    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)
    assert said in ran.stderr
    assert [path.name for path in command.cwd.iterdir()] == ["h.jsonl"]


@pytest.mark.parametrize("path", ["-", ".", "preflight.env", "/nonexistent/h"])
def test_a_history_is_a_file_of_its_own(command: Command, path: str) -> None:
    ran = command.run("check", "--history", path)
    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1), ran.stderr


def test_a_history_is_bounded_by_its_runs_and_by_its_size() -> None:
    runs = parse_history(history_text([RUN] * (MOST_RUNS + 3)), "h")
    assert runs == tuple(decoded(MOST_RUNS))
    with pytest.raises(MalformedInput, match="which no history is"):
        parse_history(" " * (HISTORY.most_bytes + 1), "h")


def decoded(count: int) -> list[PastRun]:
    return list(parse_history(history_text([RUN]), "h")) * count


def test_no_gap_is_lost_in_a_history() -> None:
    (read,) = parse_history("\n" + history_text([RUN]) + "\n", "h")
    assert read == RUN
