"""The functions of the API answer what their commands answer, from any process, and `import preflight` stays small."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import preflight
from preflight import api
from preflight.model.explanation import ExplainVerdict, Explanation
from preflight.model.gap import Gap
from preflight.model.job import Dtype, Optimizer, Save, Strategy
from preflight.model.profile import Profile
from preflight.model.report import Verdict
from preflight.model.timeout import Source
from preflight.show.env_file import render_env
from preflight.stuck.judge.answer import answer
from tests.command import OWN_PATH
from tests.reports import advice_of, report_of, timed, trial_result
from tests.stuck.evidence import node, process, rank

pytestmark = pytest.mark.heavy(3)


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


def test_a_wrong_request_is_a_usage_error_in_one_line() -> None:
    with pytest.raises(preflight.UsageError, match="there is no module nowhere"):
        preflight.check(backend="x@nowhere", nproc=1)
    with pytest.raises(preflight.UsageError, match="profile"):
        preflight.check(profile="hasty")  # type: ignore[arg-type]
    with pytest.raises(preflight.UsageError, match="'zero9'"):
        preflight.safe_timeout("7B", strategy="zero9")  # type: ignore[arg-type]


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


SHOWN = {
    "Report": report_of(),
    "Explanation": Explanation(1, ExplainVerdict.HEALTHY, 0, "Nothing failed.", (), (), (), (), (), ()),
    "StuckReport": answer([node(*(rank(i, process(100 + i, None)) for i in range(2)))]),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_an_answer_prints_its_page_and_a_repl_shows_one_line(kind: str) -> None:
    shown: Any = SHOWN[kind]
    page = str(shown)
    assert repr(shown).startswith(f"<{kind}: ") and "\n" not in repr(shown)
    assert len(page.splitlines()) > 1 and max(map(len, page.splitlines())) <= 80
    assert json.loads(shown.to_json())["exit_code"] == shown.exit_code
    assert str(shown._repr_html_()).startswith("<iframe " if kind == "Report" else "<pre>")


def test_the_page_of_a_report_names_no_file_that_check_did_not_write() -> None:
    for verdict in (Verdict.READY, Verdict.READY_WITH_ENV):
        assert "preflight.env" not in str(report_of(verdict=verdict))


def test_a_probe_prints_its_page_and_its_json_is_that_of_the_command() -> None:
    probed = preflight.probe()
    assert repr(probed).startswith(f"<Probed: {probed.node.host}, ")
    assert "passed" in str(probed)
    assert json.loads(probed.to_json())["nodes"][0]["host"] == probed.node.host


def test_where_the_packages_of_html_are_missing_a_notebook_shows_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preflight.api.module_exists", lambda _: False)
    assert str(report_of()._repr_html_()).startswith("<pre>CPU path")


def test_a_hanging_job_is_asked_by_its_process(tmp_path: Path) -> None:
    names = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    with subprocess.Popen(["sleep", "60"], env=os.environ | names) as job:
        try:
            report = preflight.stuck(job.pid, watch_s=1)
        finally:
            job.kill()
    assert [place.pid for place in report.places] == [job.pid]
    assert report.verdict in ("stuck", "not_stuck", "unknown")
    with pytest.raises(preflight.UsageError, match="a process has a number") as refused:
        preflight.stuck(-1)
    assert "--" not in str(refused.value)


def test_the_words_that_a_type_checker_knows_are_those_that_there_are() -> None:
    for words, kind in (
        (api.ProfileName, Profile), (api.StrategyName, Strategy), (api.SaveName, Save), (api.DtypeName, Dtype),
        (api.OptimizerName, Optimizer),
    ):  # fmt: skip
        assert typing.get_args(words) == tuple(each.value for each in kind)


def test_what_is_missing_is_false_and_says_why_it_can_not_be_used() -> None:
    missing: Any = Gap("NVML does not answer")
    assert not missing
    for use in (list, len, lambda gap: gap[0]):
        with pytest.raises(preflight.PreflightError, match="NVML does not answer"):
            use(missing)


def test_the_size_of_a_model_is_a_number_or_a_text() -> None:
    sizes = ("7B", 7e9, 7_000_000_000)
    assert len({preflight.safe_timeout(size).pg_timeout_s for size in sizes}) == 1
    with pytest.raises(preflight.UsageError, match="params 7: not a model size"):
        preflight.safe_timeout(7)


@pytest.mark.parametrize("call", [
    lambda: preflight.check(gpus="99"), lambda: preflight.check(deadline_s=-1), lambda: preflight.check(tests="pars"),
    lambda: preflight.check(nnodes=2), lambda: preflight.probe(gpus="x"), lambda: preflight.probe(deadline_s=0),
    lambda: preflight.safe_timeout("7Q"), lambda: preflight.explain([]), lambda: preflight.explain("/nope"),
])  # fmt: skip
def test_an_error_speaks_of_arguments_and_of_no_option(call: Callable[[], object]) -> None:
    with pytest.raises(preflight.UsageError) as refused:
        call()
    assert "--help" not in str(refused.value) and not re.search(r"(?<!`preflight check )--[a-z]", str(refused.value))
