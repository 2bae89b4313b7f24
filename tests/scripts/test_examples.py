"""The examples in scripts/ do what they say, with a `preflight` that answers as told; the real one is run too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import PROJECT
from tests.scripts.conftest import ANSWERS, SCRIPTS, StandIn

WHERE = Path(sys.executable).parent


@pytest.mark.parametrize(("code", "leaves", "word"), [
    (0, 0, "accept"), (1, 1, "reject"), (2, 2, "unknown"), (3, 3, "unknown"), (130, 130, "unknown"),
    (127, 127, "unknown"),
])  # fmt: skip
def test_the_gate_answers_only_with_0_and_1(stand_in: StandIn, code: int, leaves: int, word: str) -> None:
    stand_in.answers(code)
    stand_in.out.mkdir()
    (stand_in.out / "answer").write_text("accept\n")  # yesterday's
    ran = stand_in.run(str(SCRIPTS / "gate.sh"), str(stand_in.out), "--deadline", "60")
    assert (ran.returncode, (stand_in.out / "answer").read_text()) == (leaves, f"{word}\n"), ran.stderr
    if code == 1:
        assert "gate: rejected: preflight node rejected: node1 GPU 1" in ran.stderr
    if code != 127:
        assert (stand_in.folder / "log").read_text().startswith("check --accept ")
        assert (stand_in.folder / "log").read_text().endswith("--deadline 60\n")


def test_the_gate_without_a_preflight_says_nothing_of_the_node(stand_in: StandIn) -> None:
    (stand_in.bin / "preflight").unlink()
    ran = stand_in.run(str(SCRIPTS / "gate.sh"), str(stand_in.out))
    assert ran.returncode == 127
    assert (stand_in.out / "answer").read_text() == "unknown\n"


def test_the_gate_runs_the_real_preflight(tmp_path: Path, has_no_gpu: None) -> None:
    """On the CPU path --accept can't answer for a node, so the gate must not either."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "preflight").write_text(f'#!/bin/sh\nexec {sys.executable} -m preflight "$@"\n')
    (own / "preflight").chmod(0o755)
    env = os.environ | {"PATH": f"{own}:{os.environ['PATH']}", "PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path)}
    gate = (SCRIPTS / "gate.sh", tmp_path / "out", "--nproc", "1")
    ran = subprocess.run(gate, env=env, capture_output=True, text=True, check=False, timeout=110)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert (tmp_path / "out" / "answer").read_text() == "unknown\n"
    assert json.loads((tmp_path / "out" / "preflight-report.json").read_text())["node_verdict"] == "unknown"
    assert (tmp_path / "out" / "junit.xml").read_text().startswith("<?xml")


@pytest.fixture
def has_no_gpu(need: Callable[[str, bool, str], None]) -> None:
    need("cpu-path", not list(Path("/dev").glob("nvidia*")), "there is a GPU here")


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("*.sh")))
@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_the_scripts_are_plain_shell(script: str, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", SCRIPTS / script], check=True)


@pytest.mark.integration
@pytest.mark.parametrize(("code", "fails", "told"), [
    (0, False, ""), (1, True, "rejected: preflight node rejected: node1 GPU 1"),
    (3, True, "unknown (exit code 3): preflight node unknown"),
])  # fmt: skip
def test_the_playbook_runs_and_tells_a_rejection_from_what_is_not_known(
    stand_in: StandIn, code: int, fails: bool, told: str
) -> None:
    stand_in.answers(code)
    extra = {
        "preflight_hosts": "localhost", "preflight_bin": str(stand_in.bin / "preflight"), "preflight_retries": 0,
        "preflight_dir": str(stand_in.out), "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    ran = stand_in.run(
        str(WHERE / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(SCRIPTS / "ansible_accept.yml"),
        "-e", json.dumps(extra), ANSIBLE_NOCOLOR="1", LC_ALL="C.UTF-8", ANSIBLE_LOCALHOST_WARNING="False",
    )  # fmt: skip
    assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
    assert told in ran.stdout
    assert "check --accept" in (stand_in.folder / "log").read_text()


def test_the_pod_fits_kubernetes_own_schema_and_its_job_sources_the_env() -> None:
    pod: dict[str, Any] = yaml.safe_load((SCRIPTS / "kubernetes_init.yml").read_text())
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    (init,), (job,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert init["resources"] == job["resources"] and init["volumeMounts"] == job["volumeMounts"]
    assert ". /preflight/preflight.env && exec torchrun" in job["args"][0]


@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_pod_s_command_hands_its_exit_code_on(stand_in: StandIn, code: int) -> None:
    stand_in.answers(code)
    stand_in.out.mkdir()
    pod = yaml.safe_load((SCRIPTS / "kubernetes_init.yml").read_text())
    (init,) = pod["spec"]["initContainers"]
    ran = stand_in.run(*init["command"], init["args"][0].replace("/preflight", str(stand_in.out)))
    assert ran.returncode == code, ran.stderr
    assert (stand_in.out / "condition.yaml").exists()


def test_the_workflow_fits_github_s_schema() -> None:
    ran = subprocess.run(
        [WHERE / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", SCRIPTS / "ci_workflow.yml"],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_workflow_s_steps_run(stand_in: StandIn) -> None:
    stand_in.answers(1)
    steps = yaml.safe_load((SCRIPTS / "ci_workflow.yml").read_text())["jobs"]["preflight"]["steps"]
    environ = {"PATH": f"{stand_in.bin}:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": str(stand_in.folder / "summary")}
    codes = [
        subprocess.run(["bash", "-e", "-c", step["run"]], cwd=stand_in.folder, env=environ, check=False).returncode
        for step in steps if "run" in step
    ]  # fmt: skip
    assert codes == [1, 0]
    assert (stand_in.folder / "summary").read_text() == "markdown"


@pytest.mark.parametrize("script", [
    "gate.sh", "slurm_prolog.sh", "slurm_epilog.sh", "kubernetes_init.yml", "kubernetes_accept.yaml", "ci_workflow.yml",
    "ansible_accept.yml",
])  # fmt: skip
def test_every_option_in_the_examples_exists(script: str) -> None:
    text = (SCRIPTS / script).read_text()
    shown = ""
    for command in {"check", *re.findall(r"preflight (probe)\b", text)}:
        argv = (sys.executable, "-m", "preflight", command, "--help-all")
        shown += subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", text)) - {"--nproc-per-node"}
    assert options
    assert {option for option in options if option not in shown} == set()


@pytest.mark.parametrize("code", [0, 1])
def test_an_exit_code_without_this_run_s_reason_is_no_answer(stand_in: StandIn, code: int) -> None:
    """Python exits with 1 too, where it can't even start."""
    stand_in.says((code, "", "the page"))
    stand_in.out.mkdir()
    (stand_in.out / "drain.txt").write_text(ANSWERS[1])  # yesterday's
    ran = stand_in.run(str(SCRIPTS / "gate.sh"), str(stand_in.out))
    assert (ran.returncode, (stand_in.out / "answer").read_text()) == (3, "unknown\n")
    (stand_in.out / "drain.txt").write_text(ANSWERS[1])
    env = {"PREFLIGHT_PATH": str(stand_in.bin), "PREFLIGHT_DIR": str(stand_in.out), "SLURMD_NODENAME": "n7"}
    assert stand_in.run(str(SCRIPTS / "slurm_epilog.sh"), **env).returncode == 0
    assert stand_in.told == []
