"""The `.env` really sourced: the exact value arrives, nothing is executed, in every shell that there is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.model.report import NodeEnv
from preflight.show.env_file import render_env
from preflight.show.settings import shell_quote
from tests.reports import advice_of, report_of
from tests.show.golden_reports import REPORTS, healthy

SHELLS = ("sh", "bash", "zsh", "dash")
NASTY = (
    "`id>y`",
    "$(touch${IFS}x)",
    "'",
    "''",
    "a'b'c",
    '"$HOME"',
    "\\",
    "!!",
    "~",
    "#",
    "a\nb",
    "\té漢 ",
    "-n",
    "",
    "*",
)
VALUES = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES, reason=VALUES)
def test_the_exact_value_arrives_and_nothing_is_executed(tmp_path: Path, shell: str, value: str, reason: str) -> None:
    advice = advice_of(env=(("NCCL_X", value),), evidence=(("NCCL_X", reason),), reason=reason)
    got = _source(shell, tmp_path, render_env(report_of(advice=advice)), 'printf "%s" "$NCCL_X"')
    assert got == value.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["preflight.env"]


@pytest.mark.parametrize("shell", SHELLS)
def test_many_nasty_values_arrive_at_once(tmp_path: Path, shell: str) -> None:
    advice = advice_of(env=tuple((f"V{i}", value) for i, value in enumerate(NASTY)))
    shown = "; ".join(f'printf "%s|" "$V{i}"' for i in range(len(NASTY)))
    got = _source(shell, tmp_path, render_env(report_of(advice=advice)), shown)
    assert got == "".join(f"{value}|" for value in NASTY).encode()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("variable", "nodes", "acts"), [
    ("SLURM_NNODES", "1", True), ("SLURM_NNODES", "2", False), ("PET_NNODES", "4", False), ("NNODES", "1", True),
    ("UNRELATED", "9", True),
])  # fmt: skip
def test_network_settings_act_on_one_node_only(
    tmp_path: Path, shell: str, variable: str, nodes: str, acts: bool
) -> None:
    text = render_env(REPORTS["one_interface_works"]())
    got = _source(shell, tmp_path, text, 'printf "%s" "${GLOO_SOCKET_IFNAME-unset}"', {variable: nodes})
    assert got == (b"eth0" if acts else b"unset")


@pytest.mark.parametrize("shell", SHELLS)
def test_an_inherited_variable_that_lost_is_removed(tmp_path: Path, shell: str) -> None:
    text = render_env(report_of(advice=advice_of(unset=("NCCL_BAD", "NCCL_ABSENT"))))
    assert _source(shell, tmp_path, text, 'printf "%s" "${NCCL_BAD-gone}"', {"NCCL_BAD": "1"}) == b"gone"


def test_a_name_that_no_shell_can_unset_stays_a_comment(tmp_path: Path) -> None:
    advice = advice_of(unset=("NCCL_$(touch x)", "A\nB"), one_node_only=("A\nB",))
    text = render_env(report_of(advice=advice))
    assert all(line.startswith("#") or not line for line in text.splitlines())


def test_where_nothing_need_be_set_no_setting_of_nccl_or_gloo_is_only_the_timeouts_are() -> None:
    """The timeouts change nothing by themselves; DeepSpeed's is never shorter than its own default."""
    lines = [line for line in render_env(healthy()).splitlines() if line and not line.startswith("#")]
    assert lines == [
        "export PREFLIGHT_PG_TIMEOUT_S='600'",
        "export PREFLIGHT_INIT_TIMEOUT_S='600'",
        "export DEEPSPEED_TIMEOUT='30'",
    ]


def test_every_timeout_says_who_reads_it_and_why_it_is_as_long() -> None:
    text = render_env(healthy())
    assert "# The safe timeout: the time budget is" in text
    assert "# Minutes, read by DeepSpeed; never shorter than DeepSpeed's own default." in text


def test_without_a_computed_timeout_there_are_comments_only() -> None:
    assert all(line.startswith("#") for line in render_env(report_of()).splitlines())


def test_a_simulated_run_says_so_in_the_first_line() -> None:
    assert render_env(REPORTS["simulated"]()).startswith("# SIMULATED: ")


def test_no_line_end_of_any_kind_gets_out_of_a_comment() -> None:
    text = render_env(report_of(advice=advice_of(reason="a\r\nb\x0bc\x85d\u2028e\x1bf")))
    assert "a\\x0d\\x0ab\\x0bc\\x85d\\u2028e\\x1bf" in text


def test_quoting_leaves_only_single_quotes_special() -> None:
    assert shell_quote("a'b") == "'a'\\''b'"


def _source(shell: str, folder: Path, text: str, then: str, environ: dict[str, str] | None = None) -> bytes:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "preflight.env").write_bytes(text.encode("utf-8", "surrogateescape"))
    command = [shell, "-c", f"set -eu\n. ./preflight.env\n{then}"]
    clean = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", **(environ or {})}
    return subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True).stdout


def test_evidence_of_several_lines_is_several_comments_where_each_node_takes_its_own() -> None:
    nodes = tuple(NodeEnv(f"n{i}", i, (("NCCL_SOCKET_IFNAME", f"=eth{i}"),)) for i in range(2))
    evidence = (("NCCL_SOCKET_IFNAME", "the default hung\nwith it: 1.1 GB/s"),)
    text = render_env(report_of(advice=advice_of(env=nodes[0].env, evidence=evidence, nodes=nodes)))
    lines = text.splitlines()
    at = lines.index("# the default hung")
    assert lines[at + 1] == "# with it: 1.1 GB/s" and "x0a" not in text
