"""The functions of the API answer what their commands answer, from any process, and `import preflight` stays small."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import preflight
from preflight.model.report import Verdict
from preflight.model.timeout import Source
from preflight.show.env_file import render_env
from tests.command import OWN_PATH
from tests.reports import advice_of, report_of, timed, trial_result


def python(code: str, folder: Path) -> str:
    """Return what a fresh Python prints that stands in an empty folder."""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=os.environ | {"PYTHONPATH": OWN_PATH}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout


def test_check_answers_with_the_report_and_writes_no_file(tmp_path: Path) -> None:
    code = (
        "import preflight; report = preflight.check(\n"
        "    backend='gloo', nproc=1, collectives=['broadcast'], sizes='1K', skip=['pids', 'nofile'], tests=[])\n"
        "report.raise_unless_ready(); print(report.verdict.value, report.world_size, report.exit_code)\n"
        "print([result.collective.value for result in report.trials[0].results])\n"
        "print([each.check for each in report.checks if each.reason == 'skipped by --skip'])"
    )
    assert python(code, tmp_path) == "ready 1 0\n['broadcast']\n['nofile', 'pids']\n"
    assert list(tmp_path.iterdir()) == []


def test_probe_is_a_smoke_test_of_one_line(tmp_path: Path) -> None:
    code = "import preflight; print(preflight.probe().node.host == __import__('os').uname().nodename)"
    assert python(code, tmp_path) == "True\n"


def test_it_answers_beside_other_threads_and_a_folder_of_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "preflight").mkdir()
    (tmp_path / "preflight" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert preflight.probe(deadline_s=60).nodes
    finally:
        os.chdir(before)
        over.set()
        other.join()


def test_a_wrong_request_is_a_usage_error_in_the_command_s_words() -> None:
    with pytest.raises(preflight.UsageError, match="there is no module nowhere"):
        preflight.check(backend="x@nowhere", nproc=1)
    with pytest.raises(preflight.UsageError, match="profile"):
        preflight.check(profile="hasty")
    with pytest.raises(preflight.UsageError, match="'zero9'"):
        preflight.safe_timeout("7B", strategy="zero9")


def test_a_report_that_is_not_ready_raises_its_headline_and_exit_code() -> None:
    report = report_of(verdict=Verdict.NOT_READY, exit_code=1, headline="GPU 3 is lost")
    with pytest.raises(preflight.NotReady, match="GPU 3 is lost") as caught:
        report.raise_unless_ready(allow_unknown=True)
    assert caught.value.exit_code == 1


def test_unknown_is_let_pass_only_where_that_was_said() -> None:
    report = report_of(verdict=Verdict.UNKNOWN, exit_code=3, headline="inconclusive")
    report.raise_unless_ready(allow_unknown=True)
    with pytest.raises(preflight.NotReady, match="inconclusive"):
        report.raise_unless_ready()


@pytest.mark.parametrize("nodes", [{}, {"SLURM_NNODES": "1"}, {"PET_NNODES": "2"}, {"SLURM_NNODES": "", "NNODES": "2"}])
def test_the_advice_makes_of_an_environment_what_sourcing_the_env_makes_of_it(nodes: dict[str, str]) -> None:
    advice = advice_of(
        env=(("NCCL_P2P_DISABLE", "1"), ("NCCL_SOCKET_IFNAME", "=it's"), ("NCCL_DEBUG", "WARN")),
        unset=("NCCL_ALGO", "NCCL_IB_HCA", "NCCL_DEBUG"), one_node_only=("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"),
        gpu_env=(("CUDA_VISIBLE_DEVICES", "2,3"),), timeout_env=(("PREFLIGHT_PG_TIMEOUT_S", "660"),),
    )  # fmt: skip
    environ = {"NCCL_ALGO": "Tree", "NCCL_IB_HCA": "mlx5_1", "NCCL_DEBUG": "INFO", "HOME": "/h", **nodes}
    text = render_env(report_of(advice=advice))
    ran = subprocess.run(["sh", "-c", f"{text}\nenv -0"], env=environ, capture_output=True, text=True, check=True)
    sourced = dict(line.split("=", 1) for line in ran.stdout.split("\0") if line)
    assert advice.applied_to(environ) == {name: sourced[name] for name in sourced if name not in ("PWD", "_", "SHLVL")}


def test_the_functions_stay_where_folders_have_their_names(tmp_path: Path) -> None:
    code = (
        "import preflight, preflight.explain.explain_files as loaded\n"
        "import preflight.facts.run\n"
        "open('log', 'w').write('torch.OutOfMemoryError: CUDA out of memory.\\n')\n"
        "print(preflight.explain('log').verdict.value, callable(preflight.probe), loaded.__name__)"
    )
    assert python(code, tmp_path) == "cause_named True preflight.explain.explain_files\n"


def test_a_timeout_takes_what_a_report_measured() -> None:
    trial = trial_result(results=(replace(timed(), p99_us=900.0),))
    assumed, measured = preflight.safe_timeout("7B"), preflight.safe_timeout("7B", report=report_of(trials=(trial,)))
    assert assumed.pg_timeout_s >= 600
    assert [term.name for term in measured.terms if term.source is Source.MEASURED]
    assert not [term.name for term in assumed.terms if term.source is Source.MEASURED]


def test_the_package_is_pickled_by_its_name_like_any_other() -> None:
    explain = importlib.import_module("preflight.explain")
    assert pickle.loads(pickle.dumps(preflight)) is preflight
    assert pickle.loads(pickle.dumps(explain)) is explain


def test_importing_it_loads_one_module_of_its_own(tmp_path: Path) -> None:
    code = "import preflight, sys; print(sorted(name for name in sys.modules if name.startswith('preflight')))"
    assert python(code, tmp_path) == "['preflight', 'preflight.errors']\n"
