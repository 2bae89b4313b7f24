"""`check --on ssh:` and `gpu-report --on ssh:`: many nodes by one command. Here a program called `ssh` stands in."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.check.on_nodes import NodeCommands, check_there, visit, way_to
from preflight.check.request import Request
from preflight.errors import UsageError
from preflight.model.codec import encode
from preflight.model.finding import Blame
from tests.command import Command, Ran
from tests.show.judged import BLAMED, accepted

pytestmark = pytest.mark.heavy(6)

# What comes after `--` is the host and the command, as for ssh. A node does what the file of its name says, or else
# the command; in a session of its own, since the death of ssh ends nothing on a real node.
STAND_IN = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
if [ -f {folder}/"$2" ]; then exec sh {folder}/"$2"; fi
exec setsid --wait sh -c "$3"
"""
REFUSED = "echo 'ssh: connect to host n1 port 22: Connection refused' >&2; exit 255"
SILENT = "exec sleep 300"


@pytest.fixture
def ssh(tmp_path: Path) -> Path:
    """Return the folder with the stand-in; a file in it that is named like a host is what that node does."""
    folder = tmp_path / "ssh"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "ssh").write_text(STAND_IN.format(folder=folder))
    (folder / "bin" / "ssh").chmod(0o755)
    return folder


def answer(folder: Path, host: str, form: str) -> None:
    """Have a node answer with a report: `accepted` or `rejected`."""
    report = accepted() if form == "accepted" else BLAMED[Blame.GPU]()
    (folder / f"{form}.line").write_text(json.dumps({"report": encode(report)}) + "\n")
    (folder / host).write_text(f"cat {folder / f'{form}.line'}\n")


def commands_of(request: Request, **environ: str) -> Mapping[str, Sequence[str]]:
    with way_to(str(request.on), check_there(request, "run-1"), environ, request.slurm_options) as way:
        return way.commands


def with_stand_in(ssh: Path) -> dict[str, str]:
    return {"PATH": f"{ssh / 'bin'}:{os.environ['PATH']}", "PREFLIGHT_VERBOSE": ""}


def check_on(command: Command, ssh: Path, *arguments: str) -> Ran:
    return command.run("check", *arguments, env=with_stand_in(ssh))


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ({"n1": "accepted", "n2": "accepted"}, 0, ["ALL ALIKE", "2 passed"]),
        ({"n1": "accepted", "n2": "rejected"}, 1, ["NODES FAIL", "--exclude=n2"]),
        ({"n1": "accepted", "n2": REFUSED}, 3, ["UNKNOWN", "unreachable: ssh: connect to host n1", "--exclude=n2"]),
        ({"n1": "rejected", "n2": REFUSED}, 1, ["NODES FAIL", "--exclude=n[1-2]"]),
        ({"n1": "accepted", "n2": "echo welcome; sleep 9"}, 3, ["the answer is not a report", "--exclude=n2"]),
        ({"n1": "accepted", "n2": "exit 1"}, 3, ["no report, exit code 1", "--exclude=n2"]),
        ({"n1": "accepted", "n2": "exit 127"}, 3, [f"same path as here, {sys.executable}", "--exclude=n2"]),
    ],
)
def test_the_page_and_the_exit_code_say_what_became_of_every_node(
    command: Command, ssh: Path, nodes: dict[str, str], code: int, words: list[str]
) -> None:
    for host, does in nodes.items():
        if does in ("accepted", "rejected"):
            answer(ssh, host, does)
        else:
            (ssh / host).write_text(does)
    ran = check_on(command, ssh, "--on", "ssh:n[1-2]", "--accept")
    page = " ".join(ran.stdout.split())
    assert ran.code == code, ran.stdout + ran.stderr
    assert all(each in page for each in words), ran.stdout
    assert ("--exclude" in page) == (code != 0)
    kept = {path.stem for path in (command.cwd / "preflight-reports").glob("*.json")}
    assert kept == {host for host, does in nodes.items() if does in ("accepted", "rejected")}


def test_nodes_that_make_no_sense_and_nodes_of_which_none_answers_leave_no_folder(command: Command, ssh: Path) -> None:
    assert check_on(command, ssh, "--on", "ssh:n1,-oProxyCommand=x").code == 2
    assert os.listdir(command.cwd) == []
    (ssh / "n1").write_text(REFUSED)
    ran = check_on(command, ssh, "--on", "ssh:n1")
    assert (ran.code, os.listdir(command.cwd)) == (3, []) and "preflight-reports" not in ran.stdout


def test_a_report_of_an_earlier_run_is_not_this_runs(command: Command, ssh: Path) -> None:
    answer(ssh, "n1", "accepted")
    assert check_on(command, ssh, "--on", "ssh:n1").code == 0
    (ssh / "n1").write_text(REFUSED)
    ran = check_on(command, ssh, "--on", "ssh:n1", "--json", "-")
    assert ran.code == 3
    assert [each["host"] for each in ran.document["unknown"]] == ["n1"]
    assert os.listdir(command.cwd / "preflight-reports") == ["n1.json.stale"]


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ({"n1": "nvml passed"}, 0, ["n1: 1 part ran", "archives of 1 node."]),
        ({"n1": "nvml passed", "n2": "bench failed"}, 1, ["n2: 1 part ran; bench failed", "archives of 2 nodes."]),
        ({"n1": "bench found", "n2": REFUSED}, 1, ["n2: unreachable: ssh", "archives of 1 node."]),
        ({"n1": "nvml passed", "n2": "echo '{\"report\": {}}'; sleep 9"}, 3, ["n2: what came back can't be read"]),
        ({"n1": "exit 2"}, 3, ["n1: no report, exit code 2"]),
    ],
)
def test_the_archives_of_all_nodes_come_into_one_folder(
    command: Command, ssh: Path, nodes: dict[str, str], code: int, words: list[str]
) -> None:
    sent = {}
    for host, does in nodes.items():
        part, *outcome = does.split()
        if outcome and outcome[0] in ("passed", "failed", "found"):
            sent[f"{host}.tar.gz"] = host.encode()
            archive = base64.b64encode(sent[f"{host}.tar.gz"]).decode()
            report = {"report": {"archive": archive, "parts": {part: outcome[0], "topology": "not run"}}}
            (ssh / host).write_text(f"echo '{json.dumps(report)}'\n")
        else:
            (ssh / host).write_text(does)
    ran = command.run("gpu-report", "--on", "ssh:" + ",".join(nodes), "-o", "here", env=with_stand_in(ssh))
    assert ran.code == code, ran
    assert all(each in ran.stdout + ran.stderr for each in words), ran
    folder = command.cwd / "here"
    assert {path.name: path.read_bytes() for path in folder.glob("*")} == sent
    assert folder.exists() == bool(sent)


@pytest.mark.usefixtures("cpu_path")
def test_the_same_check_runs_there_and_leaves_nothing(command: Command, ssh: Path) -> None:
    ran = check_on(command, ssh, "--on", "ssh:root@n1", "--nproc", "1", "--tests", "collectives", "--report", "here")
    assert ran.code == 0, ran.stdout + ran.stderr
    report = json.loads((command.cwd / "here" / "root@n1.json").read_text())
    assert (report["world_size"], report["narrowed"], len(report["nodes"])) == (1, "--tests collectives", 1)
    assert os.listdir(command.cwd) == ["here"]
    assert not command.run_dirs
    command.wait_until_gone(5)


@pytest.mark.usefixtures("cpu_path")
def test_ctrl_c_shows_who_answered_and_leaves_nothing_on_any_node(command: Command, ssh: Path) -> None:
    answer(ssh, "n1", "accepted")
    with command.start("check", "--on", "ssh:n[1-3]", env=with_stand_in(ssh)) as process:
        until = time.monotonic() + 60
        while len(command.run_dirs) < 2:  # both that really check are at their trials
            assert time.monotonic() < until, command.processes()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "n[2-3] (2): stopped by SIGINT" in stdout
    assert "1 passed" in stdout
    command.wait_until_gone(10)
    assert not command.run_dirs
    assert not command.shm_files()


def test_a_silent_node_is_silent_and_does_not_delay_the_others_answer(ssh: Path) -> None:
    answer(ssh, "n1", "accepted")
    (ssh / "n2").write_text(SILENT)
    (ssh / "n3").write_text(f"echo '{{\"started\": true}}'; {SILENT}")
    (ssh / "n4").write_text(f"cat {ssh / 'accepted.line'}; {SILENT}")  # it reports, and does not go
    way = commands_of(Request(on="ssh:n[1-4]"))
    commands = {host: (str(ssh / "bin" / "ssh"), *command[1:]) for host, command in way.items()}
    came: list[str] = []
    problems = visit(NodeCommands(commands, leave_s=0.1), 2.0, lambda host, _: came.append(host), lambda *_: None)
    assert sorted(came) == ["n1", "n4"]
    assert problems == {
        "n2": "silent: nothing came within 2 s, not even that preflight started",
        "n3": "silent: preflight started there, but no report came within 2 s",
    }


def test_what_reaches_the_remote_shell_is_quoted() -> None:
    *options, host, command = commands_of(Request(on="ssh:n1", gpus="0; rm -rf /", policy="it's $HOME"))["n1"]
    assert (options[-1], host) == ("--", "n1")
    assert "BatchMode=yes" in options
    assert not any("StrictHostKeyChecking" in each for each in options)
    assert "'--gpus=0; rm -rf /'" in command
    assert """'--policy=it'"'"'s $HOME'""" in command
    assert "--on=-" in command
    assert "--nnodes=1" in command


@pytest.mark.parametrize(
    "named",
    [
        "ssh:-oProxy=x",
        "ssh:me@-oProxy=x",
        "ssh:a b",
        "ssh:a;b",
        "ssh:",
        "ssh:n[1-",
        "ssh:../n",
        "k8s:3",
        "n1",
        "slurm:",
    ],
)
def test_what_is_no_host_is_refused(named: str) -> None:
    with pytest.raises(UsageError):
        commands_of(Request(on=named))


def test_a_hosts_file_has_comments_ranges_and_one_owner(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# rack 1\nn[01-02]  # spare\n\nn7 n8\nn7\n")
    assert list(commands_of(Request(on=f"ssh:@{file}"))) == ["n01", "n02", "n7", "n8"]
    file.write_text("# none\n")
    with pytest.raises(UsageError, match="no host"):
        commands_of(Request(on=f"ssh:@{file}"))
    if os.geteuid() == 0:
        os.chown(file, 1234, 1234)
        with pytest.raises(UsageError, match="belongs to another user"):
            commands_of(Request(on=f"ssh:@{file}"))


def test_together_each_node_has_its_place_and_the_first_is_the_meeting_point() -> None:
    request = Request(on="ssh:ada@n[1-2],n9", together=True, env_out="x.env", checkpoint_dir="/shared", report="r.json")
    request.must_make_sense(set())
    commands = commands_of(request)
    assert list(commands) == ["ada@n1", "ada@n2", "n9"]
    for place, (host, command) in enumerate(commands.items()):
        words = set(command[-1].split())
        assert {"--nnodes=3", "--rdzv-endpoint=n1:29400", "--rdzv-id=run-1", "--checkpoint-dir=/shared"} <= words, host
        assert (f"--node-rank={place}" in words) and not any(
            each.startswith(("--env-out", "--report")) for each in words
        )
    named = commands_of(Request(on="slurm:2", together=True, rdzv_endpoint="10.0.0.1:7000"), **JOB)
    assert ["--rdzv-endpoint=10.0.0.1:7000" in command[-1] for command in named.values()] == [True, True]
    without_port = commands_of(Request(on="slurm:n2,n3,n2", together=True, rdzv_endpoint="n2-ib"), **JOB)
    assert ["--rdzv-endpoint=n2-ib:29400" in each[-1] for each in without_port.values()] == [True, True]
    for wrong in (Request(on="k8s:2", together=True), Request(together=True), Request(on="ssh:n1", env_out="x.env")):
        with pytest.raises(UsageError):
            wrong.must_make_sense(set())
    with pytest.raises(UsageError, match="at most 256 nodes, and these are 300"):
        commands_of(Request(on="ssh:n[001-300]", together=True))


@pytest.mark.usefixtures("cpu_path")
def test_together_there_is_one_joint_report_and_a_node_that_is_down_is_named(command: Command, ssh: Path) -> None:
    ran = check_on(command, ssh, "--on", "ssh:127.0.0.1,localhost", "--together", "--nproc", "1")
    assert ran.code == 0, ran
    assert (ran.report["world_size"], len(ran.report["nodes"])) == (2, 2)
    assert set(os.listdir(command.cwd)) == {"preflight-report.json", "preflight.env"}
    (ssh / "n2").write_text(REFUSED)
    lost = check_on(command, ssh, "--on", "ssh:127.0.0.1,n2", "--together", "--nproc", "1", "--deadline", "20")
    assert lost.code == 3 and "n2: unreachable: ssh" in lost.report["headline"], lost
    assert any("missing: node 1" in each for each in lost.report["problems"])
    assert set(os.listdir(command.cwd)) == {"preflight-report.json", "preflight.env.stale"}
    (ssh / "127.0.0.1").write_text(REFUSED)
    none = check_on(command, ssh, "--on", "ssh:127.0.0.1,n2", "--together")
    assert none.code == 3 and "no node sent a report: 127.0.0.1: unreachable" in none.stderr, none
    assert none.report["verdict"] == "unknown"
    assert set(os.listdir(command.cwd)) == {"preflight-report.json", "preflight.env.stale"}
    assert not command.run_dirs
    command.wait_until_gone(5)


JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}


@pytest.mark.parametrize(("named", "hosts"), [("2", ["n1", "n2"]), ("n[2-3]", ["n2", "n3"]), ("3", ["n1", "n2", "n3"])])
def test_inside_a_job_of_slurm_each_of_its_nodes_is_a_step(named: str, hosts: list[str]) -> None:
    request = Request(on=f"slurm:{named}", slurm_args="--gres='gpu:2' -t 5")
    commands = commands_of(request, **JOB)
    assert list(commands) == hosts
    for host, command in commands.items():
        assert command[:3] == ("sh", "-c", 'srun "$@"; exit $?')
        assert {"--nodes=1", "--ntasks=1", "--overlap", "--jobid=7", f"--nodelist={host}"} <= set(command)
        assert command[command.index("--gres=gpu:2") :][:3] == ("--gres=gpu:2", "-t", "5")
        assert command[-3:-1] == ("sh", "-c")
        assert "--on=-" in command[-1] and "--slurm-args" not in command[-1]


@pytest.mark.parametrize(
    ("named", "words"),
    [("4", "job 7, in which this runs, has 3 nodes"), ("n[3-4]", "n4 is no node of job 7"), ("0", "has 3 nodes")],
)
def test_what_is_not_in_the_job_of_slurm_is_refused(named: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        commands_of(Request(on=f"slurm:{named}"), **JOB)


def test_options_for_slurm_are_a_line_as_for_a_shell_and_only_for_slurm() -> None:
    with pytest.raises(UsageError, match="--slurm-args: only --on slurm"):
        Request(on="ssh:n1", slurm_args="-p gpu").must_make_sense(set())
    with pytest.raises(UsageError, match="No closing quotation"):
        Request(on="slurm:1", slurm_args="'").must_make_sense(set())


@pytest.mark.parametrize("other", [{"env_out": "x"}, {"also": ["drain=x"]}, {"nnodes": 2}, {"keep": True}])
def test_what_one_node_alone_can_do_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="--on with --"):
        replace(Request(on="ssh:n1"), **other).must_make_sense(set())  # type: ignore[arg-type]


# What pytest itself holds would count as the command's, since a process begins as a copy of the one that starts it.
MEASURE = """import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
open(sys.argv[1], "w").write(str(used.ru_maxrss))
os._exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.timing
def test_200_nodes_are_one_page_soon_after_the_last_answer_in_little_memory(
    command: Command, ssh: Path, need: Callable[[str, bool, str], None]
) -> None:
    for k in range(1, 201):
        answer(ssh, f"n{k:03d}", "accepted")
    (ssh / "n117").write_text(SILENT)
    since = time.monotonic()
    ran = command.run(
        "check", "--on", "ssh:n[001-200]", "--deadline", "1", env=with_stand_in(ssh),
        prefix=(sys.executable, "-c", MEASURE, str(ssh / "most_kib")),
    )  # fmt: skip
    assert ran.code == 3, ran.stdout
    assert "n117: silent" in ran.stdout
    assert "199 passed" in ran.stdout
    assert time.monotonic() - since < 31 + 10  # the last answer is T's
    assert int((ssh / "most_kib").read_text()) < 300 << 10
