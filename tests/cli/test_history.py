"""`--history DIR`: three runs know of each other by their reports; a folder that is none is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command, Ran

MACHINE = Path(__file__).parent.parent / "machines" / "rtx4090x2.json"


def check(command: Command, at: str, report: str, *more: str) -> Ran:
    for path in command.tmp_path.glob("count.*"):
        path.unlink()
    flap = {"SIMNCCL": "hang:rank=1,stage=first", "FLAP_AT": at, "FLAP_COUNT": str(command.tmp_path / "count")}
    return command.run(
        "check", "--machine", str(MACHINE), "--backend", "simnccl@flapping", "--stage-limit", "5", "--accept",
        "--history", "reports", "--report", f"reports/{report}.json", "--json", "-", *more, env=flap, timeout_s=170,
    )  # fmt: skip


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_the_same_gpu_in_two_of_three_runs_rejects_the_node(command: Command) -> None:
    (command.cwd / "reports").mkdir(mode=0o755)
    first = check(command, "0", "1")
    assert (first.code, first.document["node_verdict"]) == (3, "unknown")
    assert first.document["parts_tried"] == [f"GPU-0000000{n}-0000-0000-0000-000000000000" for n in (1, 2)]
    healthy = check(command, "99", "2")
    assert (healthy.document["verdict"], healthy.document["good_at"]) == ("ready", "")
    path = command.cwd / "reports/2.json"
    path.write_text(path.read_text().replace("580.95.05", "575.57.08"))
    third = check(command, "0", "3")
    assert (third.code, third.document["node_verdict"]) == (1, "reject")
    found = next(each for each in third.document["findings"] if each["check"] == "intermittent")
    changed = {each["what"]: (each["before"], each["now"]) for each in third.document["changed"]}
    assert (third.document["good_at"], changed) == (
        healthy.document["created_at"],
        {"NVIDIA driver": ("575.57.08", "580.95.05")},
    )
    assert "the same in 2 of the last 3 runs with GPU-00000002" in found["problem"]
    assert check(command, "99", "4").document["verdict"] == "ready", "the past accuses no run without a fault"
    assert len(list((command.cwd / "reports").iterdir())) == 4, "no run writes anything but its report"


def test_what_is_no_folder_is_refused_before_a_rank_starts(command: Command) -> None:
    (command.cwd / "history.jsonl").write_text("{}\n")
    ran = command.run("check", "--history", "history.jsonl")
    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1), ran.stderr
    assert "--history history.jsonl: it is no folder; give a folder of earlier reports" in ran.stderr
    assert [path.name for path in command.cwd.iterdir()] == ["history.jsonl"]
