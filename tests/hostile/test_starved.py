"""A check in an environment that lacks something ends with the right code, one answer, and never with a verdict."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Command
from tests.hostile.fuzz import Target, kept, mutate, targets, trouble_of

pytestmark = pytest.mark.integration
CPU = ("check", "--backend", "gloo", "--nproc", "1")
OLD = '{"verdict": "ready"}'

# What is missing: how it is started, what is set, and the exit codes that are honest there.
STARVED: dict[str, tuple[tuple[str, ...], dict[str, str], tuple[int, ...]]] = {
    "descriptors: 5": (("prlimit", "--nofile=5", "--"), {}, (3,)),
    "descriptors: 10": (("prlimit", "--nofile=10", "--"), {}, (3,)),
    "descriptors: 16": (("prlimit", "--nofile=16", "--"), {}, (0, 3)),
    "address space: 200 MB": (("prlimit", "--as=200000000", "--"), {}, (3,)),
    "address space: 60 MB": (("prlimit", "--as=60000000", "--"), {}, (3,)),
    "file size: 0": (("prlimit", "--fsize=0", "--"), {}, (3,)),
    "a wrong TORCH_DISTRIBUTED_DEBUG": ((), {"TORCH_DISTRIBUTED_DEBUG": "garbage"}, (3,)),
    "a TMPDIR that is none": ((), {"TMPDIR": "/nonexistent"}, (0, 3)),
    "a TMPDIR that is a file": ((), {"TMPDIR": "/etc/passwd"}, (0, 3)),
    "stdin closed": (("sh", "-c", 'exec "$@" <&-', "sh"), {}, (0,)),
    "stdout closed": (("sh", "-c", 'exec "$@" >&-', "sh"), {}, (0, 3)),
    "stderr closed": (("sh", "-c", 'exec "$@" 2>&-', "sh"), {}, (0,)),
    "warnings are errors": ((), {"PYTHONWARNINGS": "error"}, (0, 3)),
    "an ASCII locale": ((), {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, (0,)),
    "no HOME": (("env", "-u", "HOME"), {}, (0,)),
    "a full stdout": (("sh", "-c", 'exec "$@" >/dev/full', "sh"), {}, (3,)),
}


@pytest.mark.parametrize("lack", STARVED)
def test_what_is_missing_never_becomes_a_verdict_or_yesterday_s_answer(command: Command, lack: str) -> None:
    prefix, env, codes = STARVED[lack]
    report = command.cwd / "preflight-report.json"
    report.write_text(OLD)
    ran = command.run(*CPU, prefix=prefix, env=env)
    assert ran.code in codes, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert not report.exists() or report.read_text() != OLD
    command.wait_until_gone(20)


@pytest.mark.parametrize("pids", [4, 8])
def test_a_cgroup_without_room_for_processes_is_no_verdict(
    command: Command,
    pids: int,
    need: Callable[[str, bool, str], None],
) -> None:
    root = next((Path(each) for each in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup") if Path(each).is_dir()), Path("/-"))
    group = root / f"preflight-{os.getpid()}-{pids}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(pids))
    except OSError as error:
        need("cgroups", False, f"no cgroup with pids.max can be made: {error}")
    try:
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        ran = command.run(*CPU, prefix=("sh", "-c", enter, "sh"))
        assert ran.code in (0, 3), ran.stdout + ran.stderr  # never a verdict against the node
        assert ran.report["exit_code"] == ran.code
        command.wait_until_gone(20)
    finally:
        subprocess.run(["rmdir", group], check=False)


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_a_thousand_mutations_of_each_kind_of_input_are_taken(target: Target) -> None:
    random_ = random.Random(17)
    for _ in range(1000):
        data = mutate(random_.choice(target.seeds), random_.choice(target.seeds), random_)
        assert trouble_of(target, data) == "", data[:300]


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_what_failed_once_is_taken_now(target: Target) -> None:
    assert [why for data in (*target.seeds, *kept(target)) if (why := trouble_of(target, data))] == []
