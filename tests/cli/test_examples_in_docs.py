"""Every command line that README and the pages of docs/ show is run in a shell, beside files of the kind that it names.

What other programs would do is played: `srun` runs one task of the step, a launcher says that it was started.
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.cli.program import COMMANDS
from preflight.fleet.known_good import learn_from
from preflight.model.toml import read_toml
from preflight.show.env_file import render_env
from preflight.show.json_document import render_json
from preflight.stuck.node_files import write_node
from tests.command import OWN_PATH, Command
from tests.conftest import PROJECT
from tests.fleet.test_known_good import documents
from tests.reports import report_of
from tests.stuck.evidence import node

pytestmark = pytest.mark.heavy(6)

NO_COMMANDS = {  # what stands there indented is no command
    "docs/dev/architecture.md": "the tree of processes, the way of data",
    "docs/dev/nccl-facts.md": "formulas",
}
PAGES = [
    name
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        *sorted(str(page.relative_to(PROJECT)) for page in (PROJECT / "docs").rglob("*.md")),
    )
    if name not in NO_COMMANDS
]
NOT_RUN = {  # a beginning, and why
    "uvx ": "the package index: test_wheel.py runs the script of that name",
    "tar -xzf wheelhouse": "it takes `make wheelhouse`: test_packages.py runs it",
    "pip install ": "the package index; what it names is held against pyproject.toml, the rest is test_packages.py's",
    "podman build ": "it takes a builder: test_images.py builds both with buildah",
    "sbatch ": "it takes a Slurm: tests/scripts/test_slurm_cluster.py submits that script",
    "SLURM_GPUS_PER_NODE=8 ": "it takes a Slurm that drains: tests/scripts/test_slurm_cluster.py runs that script",
    "python -m tests.simcuda.sandbox ": "it takes 2 GB of NCCL and torch: tests/simcuda/test_check.py runs that module",
    "ip ": "it takes two boxes and root: tests/simcuda/test_two_boxes.py types them in two namespaces",
    "ping ": "the same",
    "ls /sys/class/infiniband": "it takes an RDMA device",
    "from preflight import pg_timeout": "Python: tests/api runs docs/python.md, which has the same two lines",
    'dist.init_process_group("nccl", timeout=pg_timeout())': "its second line",
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^    (\S(?:.*\\\n)?.*)$", re.MULTILINE)
IN_TEXT = re.compile(r"`(preflight (?!node rejected)[a-z]+(?: [^`]+)?)`")  # that is how a drain reason begins
OPTION = re.compile(r"(?<!\S)--?[a-z][a-z-]*")
SEED = PROJECT / "tests" / "explain" / "seeds" / "3b_xtuner_oom.log"
MACHINES = PROJECT / "tests" / "machines"
ANSWERS = (0, 1, 3)
MOST_LINES = 24
PLAYED = {
    "preflight": f'PYTHONPATH="{OWN_PATH}" exec {sys.executable} -m preflight "$@"',
    "python": f'PYTHONPATH="{OWN_PATH}" exec {sys.executable} "$@"',
    "salloc": "export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1; while :; do case $1 in -p) shift 2 ;; -*) shift ;; "
    '*) exec "$@" ;; esac; done',
    "srun": 'while :; do case $1 in --jobid) shift 2 ;; -*) shift ;; *) exec "$@" ;; esac; done',
    "mpirun": 'shift 2; exec env OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "$@"',
    "apptainer": 'while :; do case $1 in --bind) shift 2 ;; *.sif) shift; exec "$@" ;; *) shift ;; esac; done',
    "torchrun": 'echo "torchrun: $*"',
    "vllm": 'echo "vllm: $*"',
    "accelerate": 'echo "accelerate: $*"',
    "kubectl": "cat slurm-4711.out",
    "scontrol": "true",
}
SETTINGS = {
    "PREFLIGHT_CHECK_DEADLINE": "20",
    "PREFLIGHT_RUN_BACKEND": "gloo",
    "PREFLIGHT_STUCK_WATCH": "1",
    "PREFLIGHT_VERBOSE": "",
    "SLURM_NNODES": "1",
    "SLURM_NODEID": "0",
}
CHOSEN = {
    "PREFLIGHT_CHECK_MACHINE": "machine.json",
    "PREFLIGHT_CHECK_BACKEND": "simnccl@simnccl",
}  # of a simulated node
# What is not here: the other node, the file server, and for `run`, which plays no machine, the GPUs.
ELSEWHERE = {
    "node0:": "localhost:",
    "192.168.100.1:": "localhost:",
    "/mnt/ckpt": "ckpt",
    "/var/lib/preflight": "DIR",
    "run --reuse 1h --gpus 0-3": "run --reuse 1h",
}
STARTS_RANKS = re.compile(r"preflight (?:check|run) |slurm_epilog")


def examples() -> dict[str, str]:
    """Return every line of the pages that is typed, without its comment, with the first page that shows it."""
    first: dict[str, str] = {}
    for page in PAGES:
        text = FENCED.sub("", (PROJECT / page).read_text(encoding="utf-8"))
        for line in LINE.findall(text):
            words = line.partition("  ")[0] if line.startswith("make") else re.split(r"\s{2,}#", line)[0]
            first.setdefault(words.replace("\\\n", "").strip(), page)
    return first


SHOWN = examples()
RUN = [
    line for line in SHOWN if not line.startswith((*NOT_RUN, "make ", "export ")) and "--install-completion" not in line
]


def prepare(folder: Path) -> None:
    """Make what the lines name: programs, logs, reports, settings, a machine, a topology, a policy, a baseline."""
    for name in ("logs", "reports", "ckpt", "DIR", "bin"):
        (folder / name).mkdir()
    for name, text in PLAYED.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    for name in ("scripts", "tests"):
        (folder / name).symlink_to(PROJECT / name)
    text = SEED.read_text(encoding="utf-8")
    for name in ("slurm-4711.out", "server.log", "logs/rank_0.log", "nccl_trace_rank_0"):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "logs/rank_1.log.gz").write_bytes(gzip.compress(text.encode()))
    for name, form in (("job-logs", "gztar"), ("pods", "zip")):
        shutil.make_archive(str(folder / name), form, folder, "logs")
    report = render_json(report_of())
    for name in ("preflight-report.json", "good.json"):
        (folder / name).write_text(report, encoding="utf-8")
    (folder / "preflight.env").write_text(render_env(report_of()), encoding="utf-8")
    for place in range(6):
        made = report.replace('"host": "n1"', f'"host": "n{place}"')
        (folder / "reports" / f"{place}.json").write_text(made, encoding="utf-8")
    shutil.copytree(folder / "reports", folder / "preflight-reports")  # what `check --on` leaves
    (folder / "golden.json").write_text(render_json(learn_from(documents()).baseline), encoding="utf-8")
    (folder / "site.toml").write_text('[floors]\n"all_reduce 1 GiB" = 380\n', encoding="utf-8")
    (folder / "machine.json").write_text((MACHINES / "l20x10.json").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "topo.txt").write_text((MACHINES / "ten_gpus.txt").read_text(encoding="utf-8"), encoding="utf-8")
    write_node(str(folder / "DIR"), node())


def typed(line: str, command: Command) -> subprocess.CompletedProcess[str]:
    """Type the line in a shell, in a folder that has what it names."""
    prepare(command.cwd)
    for there, here in ELSEWHERE.items():
        line = line.replace(there, here)
    line += " --help" if line.startswith("python -m tests.simcuda.run") else ""  # the real NCCL is 2 GB: it is parsed
    programs = command.cwd / "bin"
    own = SETTINGS | (CHOSEN if line.startswith("preflight check --gpus") else {})
    if "stuck" in line and "--merge" not in line:
        own["PREFLIGHT_STUCK_JOB"] = "nobody's"  # other tests start jobs meanwhile
    env = command.environ(own | {"PREFLIGHT_DIR": str(command.cwd), "PREFLIGHT_PATH": str(programs)})
    env["PATH"] = f"{programs}:{env['PATH']}"
    return subprocess.run(
        ["bash", "-c", line], env=env, cwd=command.cwd, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_pages_show_commands_of_every_kind() -> None:
    shown = {line.split()[1] for line in SHOWN if line.startswith("preflight ")}
    kinds = {"check", "run", "explain", "stuck", "probe", "capture", "timeout", "render", "fleet", "baseline"}
    assert shown >= kinds
    assert [line for line in SHOWN if line.startswith(("srun", "pip", "make", "source", "export", "kubectl"))]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in SHOWN)] == []


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=[pytest.mark.integration] if STARTS_RANKS.search(f"{line} ") else []) for line in RUN],
)
def test_a_line_of_the_pages_is_typed_and_answers(line: str, command: Command) -> None:
    ran = typed(line, command)
    assert ran.returncode in ANSWERS, f"{SHOWN[line]}: {ran.stderr}"
    assert "see preflight" not in ran.stderr, "nothing of it was understood in another way than it was meant"
    assert ran.stdout or any(each in line for each in ("-o ", "slurm_epilog", "--reason", "--apply")), (
        "a sound node has none"
    )
    is_page = not re.search(r"capture|--json -|^python -m", line)
    assert len(ran.stdout.splitlines()) <= MOST_LINES or not is_page


@pytest.mark.parametrize("line", [line for line in SHOWN if line.startswith("make ")])
def test_what_make_is_asked_for_is_there(line: str) -> None:
    ran = subprocess.run(
        ["make", "-n", *shlex.split(line)[1:]], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


@pytest.mark.parametrize("line", [line for line in SHOWN if line.startswith("export ")])
def test_a_variable_of_the_pages_is_an_option(line: str, command: Command) -> None:
    for setting in shlex.split(line)[1:]:
        name, _, option = setting.partition("=")[0].removeprefix("PREFLIGHT_").lower().partition("_")
        assert f"--{option.replace('_', '-')}" in command.run(name, "--help-all").stdout


def test_what_pip_installs_is_this_project() -> None:
    settings = read_toml((PROJECT / "pyproject.toml").read_text(encoding="utf-8"), "pyproject.toml")
    lines = [line for line in SHOWN if line.startswith("pip install ") and "--no-index" not in line]
    names = {shlex.split(line)[2] for line in lines}
    project = settings["project"]["name"]
    extras = set(settings["project"]["optional-dependencies"])
    assert f"{project}[all]" in names
    assert names - {project} <= {f"{project}[{extra}]" for extra in extras}


def test_an_option_that_a_sentence_names_is_one_of_its_command() -> None:
    sections = (PROJECT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8").split("\n## preflight ")
    known = {part.split(None, 1)[0]: {*OPTION.findall(part.replace(",", " "))} for part in sections[1:]}
    named = [line for page in PAGES for line in IN_TEXT.findall((PROJECT / page).read_text(encoding="utf-8"))]
    assert len(named) > 30
    for line in named:
        _, command, *_ = line.split()
        assert command in COMMANDS, line
        assert {*OPTION.findall(line.partition(" -- ")[0])} <= known[command], line


def test_completion_is_installed_where_home_is(command: Command) -> None:
    env = {"HOME": str(command.cwd), "SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = command.run("--install-completion", "bash", env=env)
    assert ran.code == 0, ran.stderr
    assert list(command.cwd.rglob("*preflight*"))
