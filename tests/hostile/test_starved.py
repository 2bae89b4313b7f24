"""A check in an environment that lacks something ends with the right code, one answer, and never with a verdict."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Command
from tests.hostile.fuzz import kept, mutate, trouble_of
from tests.hostile.interrupts import walk
from tests.hostile.targets import Target, targets
from tests.netns import can_mount

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
    "address space: 400 MB": (("prlimit", "--as=400000000", "--"), {}, (3,)),
    "processor time: 1 s": (("prlimit", "--cpu=1", "--"), {}, (3,)),
    "processor time: 6 s": (("prlimit", "--cpu=6", "--"), {}, (0, 3)),
    "a host name that no DNS takes": (("unshare", "--uts", "sh", "-c", f'hostname {"a" * 64}; "$@"', "sh"), {}, (3,)),
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

# What the one who reads it must learn.
NAMED = {
    "address space: 200 MB": "`ulimit -v`",
    "address space: 60 MB": "`ulimit -v`",
    "address space: 400 MB": "`ulimit -v`",
    "processor time: 1 s": "`ulimit -t` allows only 1 s",
    "processor time: 6 s": "`ulimit -t` allows 6 s",
    "a host name that no DNS takes": "host names above 63 characters",
    "a wrong TORCH_DISTRIBUTED_DEBUG": "TORCH_DISTRIBUTED_DEBUG is 'garbage'",
}


@pytest.mark.parametrize("lack", STARVED)
def test_what_is_missing_never_becomes_a_verdict_or_yesterday_s_answer(command: Command, lack: str) -> None:
    prefix, env, codes = STARVED[lack]
    report = command.cwd / "preflight-report.json"
    report.write_text(OLD)
    ran = command.run(*CPU, prefix=prefix, env=env)
    assert ran.code in codes, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.code == 0 or NAMED.get(lack, "") in " ".join((ran.stdout + ran.stderr).split())
    assert not report.exists() or report.read_text() != OLD
    command.wait_until_gone(20)


MEMORY, PIDS = ("memory.max", "memory.limit_in_bytes"), ("pids.max", "pids.max")
NEED_MEMORY = (3, "ran out of memory")
# A cgroup with a limit that is too tight: the files of version 2 and 1, the limit, how many ranks, code and reason.
TIGHT: dict[str, tuple[tuple[str, str], int, int, tuple[int, str]]] = {
    "4 processes": (PIDS, 4, 1, (3, "")),
    "8 processes": (PIDS, 8, 1, (3, "")),
    "200 processes": (PIDS, 200, 1, (0, "")),
    "60 MB": (MEMORY, 60 << 20, 2, NEED_MEMORY),
    "150 MB": (MEMORY, 150 << 20, 2, NEED_MEMORY),
    "160 MB for 16 ranks": (MEMORY, 160 << 20, 16, (3, "which need 320 MiB")),
    "600 MB": (MEMORY, 600 << 20, 2, (0, "")),
}


@pytest.fixture
def cgroup(request: pytest.FixtureRequest, need: Callable[[str, bool, str], None]) -> Iterator[Path]:
    """Make a cgroup of a limit's controller, wherever this machine has that mounted."""
    (v2, _), *_ = TIGHT[request.param]
    root = next(
        (path for each in (v2.split(".")[0], "") if (path := Path("/sys/fs/cgroup", each)).is_dir()), Path("/-")
    )
    group = root / f"preflight-{os.getpid()}-{request.param.replace(' ', '-')}"
    try:
        group.mkdir()
    except OSError as error:
        need("cgroups", False, f"no cgroup can be made: {error}")
    yield group
    group.rmdir()


@pytest.mark.parametrize(("cgroup", "tight"), [(each, each) for each in TIGHT], indirect=["cgroup"])
def test_a_cgroup_that_is_too_tight_is_no_verdict_and_is_named(
    command: Command, cgroup: Path, tight: str, need: Callable[[str, bool, str], None]
) -> None:
    (v2, v1), limit, ranks, (code, says) = TIGHT[tight]
    files = [cgroup / name for name in (v2, v1) if (cgroup / name).exists()]
    need("cgroups", bool(files), f"the controller of {v2} is not to be had")
    files[0].write_text(str(limit))
    if (swap := cgroup / "memory.memsw.limit_in_bytes").exists() and v1 != v2:
        swap.write_text(str(limit))
    ran = command.run(
        "check", "--backend", "gloo", "--nproc", str(ranks),
        prefix=("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh"),
    )  # fmt: skip
    assert ran.code == code, ran.stdout + ran.stderr
    assert ran.report["exit_code"] == code
    assert says in " ".join(ran.report["headline"].split())
    command.wait_until_gone(20)


def test_wherever_ctrl_c_comes_the_exit_code_is_130_and_the_report_s(need: Callable[[str, bool, str], None]) -> None:
    need("mount", can_mount(), "mounting needs root")
    points, wrong = walk(loading=20_000, running=700, offset=17, number=signal.SIGINT)
    assert points > 100, "the lines were not walked"
    assert wrong == []


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_three_hundred_mutations_of_each_kind_of_input_are_taken(target: Target) -> None:
    random_ = random.Random(17)
    for _ in range(300):
        data = mutate(random_.choice(target.seeds), random_.choice(target.seeds), random_)
        assert trouble_of(target, data) == "", data[:300]


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_what_failed_once_is_taken_now(target: Target) -> None:
    assert [why for data in (*target.seeds, *kept(target)) if (why := trouble_of(target, data))] == []
