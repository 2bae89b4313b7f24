"""Every command that README and the pages of docs/ show is run, beside files of the kind that it names."""

from __future__ import annotations

import glob
import gzip
import re
import shlex
from pathlib import Path

import pytest

from preflight.fleet.known_good import learn_from
from preflight.render.json_document import render_json
from preflight.stuck.node_files import write_node
from tests.command import Command
from tests.conftest import PROJECT
from tests.fleet.test_known_good import documents
from tests.reports import report_of
from tests.stuck.evidence import node

PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (PROJECT / "docs").glob("*.md")))
# Not the tree of processes, and no job: tests/jobrun starts those.
SHOWN = re.compile(r"^    (preflight (?!check   |run )[^#\n]*?) *(?:#.*)?$", re.MULTILINE)
SEED = PROJECT / "tests" / "explain" / "seeds" / "3b_xtuner_oom.log"
MACHINES = PROJECT / "tests" / "machines"
MEETS_OTHERS = "--rdzv-endpoint"
ANSWERS = (0, 1, 3)
SIMULATED = ["--machine", "machine.json", "--backend", "simnccl@simnccl"]
SHORT = {"PREFLIGHT_CHECK_DEADLINE": "6", "PREFLIGHT_STUCK_WATCH": "1"}


def examples() -> list[tuple[str, str]]:
    """Return every command of the pages, each once, after the first page that shows it."""
    first: dict[str, str] = {}
    for page in PAGES:
        for line in SHOWN.findall((PROJECT / page).read_text(encoding="utf-8")):
            first.setdefault(line, page)
    return [(page, line) for line, page in first.items()]


def prepare(folder: Path) -> None:
    """Make what the commands name: logs, reports, a machine, a topology, a policy, a baseline, evidence."""
    for name in ("logs", "reports", "ckpt", "DIR"):
        (folder / name).mkdir()
    text = SEED.read_text(encoding="utf-8")
    for name in ("slurm-4711.out", "logs/rank_0.log", "nccl_trace_rank_0"):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "logs/rank_1.log.gz").write_bytes(gzip.compress(text.encode()))
    report = render_json(report_of())
    (folder / "preflight-report.json").write_text(report, encoding="utf-8")
    for place in range(6):
        made = report.replace('"host": "n1"', f'"host": "n{place}"')
        (folder / "reports" / f"{place}.json").write_text(made, encoding="utf-8")
    (folder / "golden.json").write_text(render_json(learn_from(documents()).baseline), encoding="utf-8")
    (folder / "site.toml").write_text('[floors]\n"all_reduce 1 GiB" = 380\n', encoding="utf-8")
    (folder / "machine.json").write_text((MACHINES / "l20x10.json").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "topo.txt").write_text((MACHINES / "ten_gpus.txt").read_text(encoding="utf-8"), encoding="utf-8")
    write_node(str(folder / "DIR"), node())


def arguments(line: str, folder: Path) -> list[str]:
    """Return the words as a shell hands them on, in a folder; GPUs that are chosen are those of a simulated machine."""
    words = shlex.split(line.replace("/mnt/ckpt", "ckpt"))[1:]
    words += SIMULATED if line.startswith("preflight check --gpus") else []
    return [name for word in words for name in (sorted(glob.glob(word, root_dir=folder)) or [word])]


def test_the_pages_show_commands_of_every_kind() -> None:
    shown = {line.split()[1] for _, line in examples()}
    assert shown >= {"check", "explain", "stuck", "probe", "capture", "timeout", "render", "fleet", "baseline"}


@pytest.mark.parametrize(
    ("page", "line"),
    [
        pytest.param(page, line, marks=[pytest.mark.integration] if line.startswith("preflight check") else [], id=line)
        for page, line in examples()
        if MEETS_OTHERS not in line and "--install-completion" not in line
    ],
)
def test_a_command_of_the_pages_is_run_and_answers(page: str, line: str, command: Command) -> None:
    prepare(command.cwd)
    ran = command.run(*arguments(line, command.cwd), env={**SHORT, "PREFLIGHT_VERBOSE": ""})
    assert ran.code in ANSWERS, f"{page}: {line}: {ran.stderr}"
    assert ran.stdout or "-o " in line
    assert len(ran.stdout.splitlines()) <= 24 or line.split()[1] == "capture"


def test_completion_is_installed_where_home_is(command: Command) -> None:
    env = {"HOME": str(command.cwd), "SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = command.run("--install-completion", "bash", env=env)
    assert ran.code == 0, ran.stderr
    assert list(command.cwd.rglob("*preflight*"))


def test_the_command_for_several_nodes_is_understood(command: Command) -> None:
    ((_, line),) = [each for each in examples() if MEETS_OTHERS in each[1]]
    ran = command.run(*arguments(line.replace("node0", "localhost"), command.cwd), env=SHORT)
    assert ran.code == 3, "nobody else came, and the deadline did"
