"""The prolog only reads, within 10 s; the epilog tries; both reject for what they found twice, and for nothing else.

Neither calls a command of Slurm's: slurm_health_check.sh tells Slurm what they leave in the spool.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from preflight.model.finding import Blame
from preflight.show.drain_nagios_k8s import render_drain
from tests.conftest import PROJECT
from tests.nvmlsim.machines import BROKEN
from tests.nvmlsim.simulate import simulate
from tests.scripts.conftest import ANSWERS, SCRIPTS, StandIn
from tests.show.judged import BLAMED

LOST = "preflight probe: gpu-lost GPU 1 (0000:11:00.0)"
OTHER = "preflight probe: gpu-lost GPU 2 (0000:12:00.0)"
HEALTH = "slurm_health_check.sh"
FABRIC = render_drain(BLAMED[Blame.FABRIC]())


def run(stand_in: StandIn, script: str, **env: str) -> int:
    """Run a script as slurmd of node n7 would; return its exit code."""
    places = {"PREFLIGHT_PATH": str(stand_in.bin), "PREFLIGHT_DIR": str(stand_in.out), "SLURMD_NODENAME": "n7",
              "PREFLIGHT_SHARED": str(stand_in.folder / "shared")}  # fmt: skip
    ran = stand_in.run(str(SCRIPTS / script), **{**places, "PREFLIGHT_WHOLE_NODE": "1", **env})
    assert ran.stderr == ""
    return ran.returncode


def spool(stand_in: StandIn) -> dict[str, str]:
    """Return what was left for Slurm, by file name."""
    return {path.name: path.read_text().strip() for path in (stand_in.out / "spool").glob("*")}


def calls(stand_in: StandIn) -> list[str]:
    log = stand_in.folder / "log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(("answers", "leaves", "left"), [
    ([(0, "")], 0, {}),
    ([(1, LOST)], 1, {"prolog.drain": LOST}),
    ([(1, LOST), (0, "")], 0, {}),
    ([(1, LOST), (1, OTHER)], 0, {}),
    ([(1, "")], 0, {"prolog.note": "preflight inconclusive: exit code 1"}),
    ([(1, "Traceback (most recent call last):")], 0, {"prolog.note": "preflight inconclusive: exit code 1"}),
    ([(127, "")], 0, {"prolog.note": "preflight inconclusive: it is not in PREFLIGHT_PATH"}),
    *(([(code, LOST)], 0, {"prolog.note": f"preflight inconclusive: exit code {code}"}) for code in (2, 3, 42)),
])  # fmt: skip
def test_the_prolog_rejects_for_a_gpu_s_fault_that_it_saw_twice_only(
    stand_in: StandIn, answers: list[tuple[int, str]], leaves: int, left: dict[str, str]
) -> None:
    stand_in.says(*((code, "", page) for code, page in answers))
    assert run(stand_in, "slurm_prolog.sh") == leaves
    assert (spool(stand_in), stand_in.told) == (left, [])
    assert [path.name for path in stand_in.out.iterdir()] in (["spool"], []), "two prologs may run at once"


def test_a_good_prolog_takes_back_what_an_earlier_one_noted(stand_in: StandIn) -> None:
    stand_in.says((3, "", ""), (0, "", ""))
    run(stand_in, "slurm_prolog.sh")
    assert list(spool(stand_in)) == ["prolog.note"]
    run(stand_in, "slurm_prolog.sh")
    assert spool(stand_in) == {}


def test_a_shadow_prolog_lets_the_job_start(stand_in: StandIn) -> None:
    stand_in.says((1, "", LOST))
    assert run(stand_in, "slurm_prolog.sh", PREFLIGHT_SHADOW="1") == 0
    assert spool(stand_in) == {"prolog.note": f"SHADOW {LOST}"}


WRONG = ("4.5", "4s", "", "0", "08", "-1", "4 4", "$(false)", "x" * 300, "1e3", "²")


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", ("PREFLIGHT_LOOK_S", "PREFLIGHT_DEADLINE_S", "PREFLIGHT_EVERY_H", "SLURM_JOB_GPUS"))
@pytest.mark.parametrize("script", ("slurm_prolog.sh", "slurm_epilog.sh"))
def test_a_wrong_setting_never_rejects_a_node(stand_in: StandIn, script: str, name: str, value: str) -> None:
    stand_in.answers(0)
    assert run(stand_in, script, **{name: value}) == 0
    assert not any(each.endswith(".drain") for each in spool(stand_in))
    asked = [call.partition("--deadline ")[2].split()[0] for call in calls(stand_in)]
    assert asked in ([], ["3"], ["120"]), "what is no number of seconds is left out"


@pytest.mark.parametrize("script", ("slurm_prolog.sh", "slurm_epilog.sh"))
@pytest.mark.parametrize(
    "setting", ({"PREFLIGHT_DIR": "/dev/null"}, {"PREFLIGHT_DIR": "/proc/x"}, {"PREFLIGHT_PATH": "/none"})
)
def test_a_folder_that_cannot_be_written_never_rejects_a_node(
    stand_in: StandIn, script: str, setting: dict[str, str]
) -> None:
    (stand_in.bin / "preflight").unlink()
    places = {"PREFLIGHT_PATH": str(stand_in.bin), "PREFLIGHT_DIR": str(stand_in.out), "PREFLIGHT_WHOLE_NODE": "1"}
    assert stand_in.run(str(SCRIPTS / script), **(places | setting)).returncode == 0


@pytest.mark.parametrize("script", ("slurm_prolog.sh", "slurm_epilog.sh"))
def test_prolog_and_epilog_hold_no_command_of_slurm(script: str) -> None:
    code = [line.partition(" #")[0] for line in (SCRIPTS / script).read_text().splitlines() if line[:1] != "#"]
    assert not re.findall(
        r"\b(?:scontrol|s(?:acct|acctmgr|alloc|batch|cancel|diag|info|job|queue|run|trigger))\b", "\n".join(code)
    )


@pytest.mark.parametrize(
    ("allotted", "asked"), [("2,3", "probe --reason gpu --gpus 2,3 --deadline"), ("", "probe --reason gpu --deadline")]
)
def test_the_prolog_reads_no_neighbours_gpus(stand_in: StandIn, allotted: str, asked: str) -> None:
    stand_in.answers(0)
    run(stand_in, "slurm_prolog.sh", SLURM_JOB_GPUS=allotted)
    assert [call.startswith(asked) for call in calls(stand_in)] == [True]


def test_the_prolog_of_a_job_without_gpus_reads_none(stand_in: StandIn) -> None:
    stand_in.answers(1)
    assert run(stand_in, "slurm_prolog.sh", PREFLIGHT_WHOLE_NODE="") == 0
    assert calls(stand_in) == []
    assert spool(stand_in) == {}


@pytest.mark.timing
def test_a_prolog_whose_probe_hangs_lets_the_job_start_within_10_s(stand_in: StandIn) -> None:
    (stand_in.bin / "preflight").write_text("#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    assert run(stand_in, "slurm_prolog.sh") == 0
    assert time.monotonic() - start < 10
    assert spool(stand_in) == {"prolog.note": "preflight inconclusive: no answer within 4 s"}


@pytest.mark.integration
@pytest.mark.parametrize(("gpus", "leaves"), [("0,1", 0), ("6,7", 1)])
def test_the_prolog_with_the_real_probe_of_a_machine_whose_gpu_6_is_lost(
    stand_in: StandIn, tmp_path: Path, gpus: str, leaves: int
) -> None:
    (tmp_path / "tree").mkdir()
    simulate(BROKEN["a GPU that fell off the bus"][1], tmp_path / "tree")
    real = [sys.executable, "-m", "preflight"]
    (stand_in.bin / "preflight").write_text(f'#!/bin/sh\nexec {shlex.join(real)} "$@" --sysroot {tmp_path}/tree\n')
    own = {"PYTHONPATH": str(PROJECT), "PREFLIGHT_LOOK_S": "40"}  # this machine may be busy
    assert run(stand_in, "slurm_prolog.sh", SLURM_JOB_GPUS=gpus, **own) == leaves
    reason = "preflight probe: gpu-lost unknown GPU 6 (0000:7b:00.0)"
    assert spool(stand_in) == ({"prolog.drain": reason} if leaves else {})


@pytest.mark.parametrize(("answers", "tries", "drains"), [
    ([(0, ANSWERS[0])], 1, False),
    ([(1, ANSWERS[1])], 2, True),
    ([(1, ANSWERS[1]), (0, ANSWERS[0])], 2, False),
    ([(1, ANSWERS[1]), (1, FABRIC)], 2, False),
    ([(1, ANSWERS[1]), (1, ANSWERS[1].replace("node reboot", "drain and reset"))], 2, True),
    ([(3, ANSWERS[3])], 1, False),
    ([(1, "")], 1, False),
    ([(127, "")], 0, False),
])  # fmt: skip
def test_the_epilog_rejects_for_the_same_finding_twice_and_never_fails_itself(
    stand_in: StandIn, answers: list[tuple[int, str]], tries: int, drains: bool
) -> None:
    stand_in.says(*((code, text, "") for code, text in answers))
    assert run(stand_in, "slurm_epilog.sh", SLURM_JOB_EXIT_CODE="256") == 0
    assert len(calls(stand_in)) == tries
    assert all(" --history reports " in call for call in calls(stand_in))
    assert (spool(stand_in), stand_in.told) == ({"epilog.drain": answers[-1][1].strip()} if drains else {}, [])


def test_the_epilog_tries_after_a_job_that_failed_and_else_once_a_day(stand_in: StandIn) -> None:
    stand_in.answers(0)
    counts = []
    for code in ("0", "0", "256", "0"):
        run(stand_in, "slurm_epilog.sh", SLURM_JOB_EXIT_CODE=code)
        counts.append(len(calls(stand_in)))
    assert counts == [1, 1, 2, 2]


def test_an_epilog_whose_check_hangs_ends_by_itself(stand_in: StandIn) -> None:
    (stand_in.bin / "preflight").write_text("#!/bin/sh\nexec sleep 600\n")
    (stand_in.bin / "timeout").write_text('#!/bin/sh\necho "$3" >>"$HOME/limits"\nexit 124\n')
    (stand_in.bin / "timeout").chmod(0o755)
    assert run(stand_in, "slurm_epilog.sh", PREFLIGHT_DEADLINE_S="20") == 0
    assert (stand_in.folder / "limits").read_text() == "50\n"


@pytest.mark.parametrize(("before", "drains"), [
    ("", True), ("Prolog error", True), ("preflight probe: something else", True), ("fan broken, ticket 7", False),
])  # fmt: skip
def test_the_health_check_drains_with_the_reason_in_the_spool_and_leaves_others_reasons_alone(
    stand_in: StandIn, before: str, drains: bool
) -> None:
    stand_in.says((1, "", LOST), (1, "", LOST), (0, "", ""))
    stand_in.shows(Reason=before)
    run(stand_in, "slurm_prolog.sh")
    assert run(stand_in, HEALTH) == 0
    assert stand_in.told == (["update", "NodeName=n7", "State=DRAIN", f"Reason={LOST}"] if drains else [])
    assert spool(stand_in) == {}, "it is told once"


def test_the_health_check_drains_for_no_old_rejection(stand_in: StandIn) -> None:
    stand_in.answers(0)
    asked = stand_in.out / "spool" / "epilog.drain"
    asked.parent.mkdir(parents=True)
    asked.write_text("preflight node rejected: long ago\n")
    os.utime(asked, (0, 0))
    run(stand_in, HEALTH)
    assert (stand_in.told, spool(stand_in)) == ([], {})


@pytest.mark.parametrize("mine", (True, False))
def test_the_health_check_notes_and_takes_back_its_own_comment_only(stand_in: StandIn, mine: bool) -> None:
    stand_in.says((3, "", ""), (0, "", ""), (0, "", ""))
    stand_in.shows(Comment="" if mine else "rack 7, do not touch")
    run(stand_in, "slurm_prolog.sh")
    run(stand_in, HEALTH)
    noted = "preflight inconclusive: exit code 3"
    assert stand_in.told == (["update", "NodeName=n7", f"Comment={noted}"] if mine else [])
    stand_in.shows(Comment=noted if mine else "rack 7, do not touch")
    run(stand_in, "slurm_prolog.sh")
    run(stand_in, HEALTH)
    assert stand_in.told[3:] == (["update", "NodeName=n7", "Comment="] if mine else [])


@pytest.mark.parametrize(
    ("second", "drains"), [("GPU 0: it failed 9 copies [gpu-copy]", True), ("GPU 5: x [gpu-copy]", False)]
)
def test_an_idle_node_is_drained_only_if_both_tries_reject_the_same_part(
    stand_in: StandIn, second: str, drains: bool
) -> None:
    (stand_in.folder / "answers").write_text(f"GPU 0: it failed the copy test [gpu-copy]\n{second}\n")
    for name, text in {
        "srun": 'while [ "$1" != preflight ]; do shift; done\nexec "$@"\n',
        "preflight": 'if [ "$1" = render ]; then exec cat "$2"; fi\nn=$(cat "$HOME/n" 2>/dev/null || echo 1)\n'
        'echo $((n + 1)) >"$HOME/n"\nwhile [ "$1" != --report ]; do shift; done\n'
        'echo "preflight node rejected: $(sed -n "${n}p" "$HOME/answers")" >"$2"\nexit 1\n',
    }.items():
        (stand_in.bin / name).write_text(f"#!/bin/sh\n{text}")
        (stand_in.bin / name).chmod(0o755)
    ran = stand_in.run(str(SCRIPTS / "slurm_drain.sh"), "n7", PREFLIGHT_DIR=str(stand_in.out))
    assert ran.stdout.startswith("n7: drained: " if drains else "n7: left as it is, rejected for another reason"), ran
    reason = f"Reason=preflight node rejected: {second}"
    assert stand_in.told == (["update", "NodeName=n7", "State=DRAIN", reason] if drains else [])


BRAKE = SCRIPTS / "slurm_brake.sh"


def asked_of_brake(stand_in: StandIn, reason: str, node: str, shared: str | None = None) -> tuple[int, str]:
    place = str(stand_in.folder / "shared") if shared is None else shared
    ran = stand_in.run(str(BRAKE), reason, PREFLIGHT_SHARED=place, SLURMD_NODENAME=node)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("how", ["one after the other", "all at once"])
def test_a_fault_of_eight_of_forty_nodes_drains_two(stand_in: StandIn, how: str) -> None:
    known = stand_in.folder / "shared" / "nodes"
    known.mkdir(parents=True)
    for number in range(40):
        (known / f"n{number}").touch()
    reasons = {f"n{number}": f"preflight probe: gpu-lost GPU {number}" for number in range(8)}
    with ThreadPoolExecutor(8 if how == "all at once" else 1) as pool:
        said = pool.map(lambda node: asked_of_brake(stand_in, reasons[node], node), reasons)
        answers = dict(zip(reasons, said, strict=True))
    assert [code for code, _ in answers.values()].count(0) == 2
    held = "preflight brake: 2 of 40 nodes were drained for [gpu-lost] within an hour; the node is kept\n"
    assert [why for code, why in answers.values() if code == 1] == [held] * 6
    drained = next(node for node, (code, _) in answers.items() if code == 0)
    assert asked_of_brake(stand_in, reasons[drained], drained)[0] == 0, "the same node may be drained again"
    assert asked_of_brake(stand_in, "x: y [gpu-copy]", "n30")[0] == 0, "each check counts alone"
    for slot in (stand_in.folder / "shared" / "drains").iterdir():
        os.utime(slot, (0, 0))
    assert asked_of_brake(stand_in, "preflight probe: gpu-lost GPU 9", "n9")[0] == 0, "an hour later"


def test_of_a_thousand_nodes_one_of_fifty_is_drained(stand_in: StandIn) -> None:
    known = stand_in.folder / "shared" / "nodes"
    known.mkdir(parents=True)
    for number in range(150):
        (known / f"n{number}").touch()
    codes = [asked_of_brake(stand_in, "a: b [gpu-copy]", f"n{number}")[0] for number in range(5)]
    assert codes == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(("reason", "shared", "why"), [
    ("a: b [gpu-copy]", "", "PREFLIGHT_SHARED names no folder"),
    ("a: b", None, "the reason names no check"), ("", None, "the reason names no check"),
    ("a: b [../../x]", None, "the reason names no check"), ("$(id) `id` [GPU]", None, "the reason names no check"),
    ("a: b [gpu-copy]", "/proc/nowhere", "can't be written"), ("a: b [gpu-copy]", "/dev/null", "can't be written"),
])  # fmt: skip
def test_the_brake_holds_if_it_can_not_count(stand_in: StandIn, reason: str, shared: str | None, why: str) -> None:
    code, said = asked_of_brake(stand_in, reason, "n1", shared)
    assert code == 1 and why in said and said.endswith("the node is kept\n")


def test_a_prolog_that_the_brake_holds_lets_the_job_start_and_the_health_check_says_so(stand_in: StandIn) -> None:
    stand_in.says((1, "", LOST), (1, "", LOST), (0, "", ""))
    assert run(stand_in, "slurm_prolog.sh", PREFLIGHT_SHARED="") == 0
    assert spool(stand_in) == {"prolog.drain": LOST}
    assert run(stand_in, HEALTH, PREFLIGHT_SHARED="") == 0
    why = "preflight brake: PREFLIGHT_SHARED names no folder that all nodes share; the node is kept"
    assert stand_in.told == ["update", "NodeName=n7", f"Comment={why}: {LOST}"]
    assert run(stand_in, HEALTH) == 0, "and once there is room it drains"
    assert f"Reason={LOST}" in stand_in.told


@pytest.mark.parametrize("script", ["slurm_prolog.sh", HEALTH])
def test_without_the_brake_beside_them_scripts_drain_nobody(stand_in: StandIn, tmp_path: Path, script: str) -> None:
    alone = tmp_path / "etc" / script
    alone.parent.mkdir()
    alone.write_text((SCRIPTS / script).read_text())
    alone.chmod(0o755)
    stand_in.says((1, "", LOST), (1, "", LOST), (0, "", ""))
    run(stand_in, "slurm_prolog.sh", PREFLIGHT_SHARED="")
    places = {"PREFLIGHT_PATH": str(stand_in.bin), "PREFLIGHT_DIR": str(stand_in.out), "SLURMD_NODENAME": "n7"}
    ran = stand_in.run(str(alone), PREFLIGHT_WHOLE_NODE="1", PREFLIGHT_SHARED=str(stand_in.folder / "s"), **places)
    assert ran.returncode == 0
    assert "State=DRAIN" not in stand_in.told
