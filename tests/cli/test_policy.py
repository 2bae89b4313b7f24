"""`check --policy`: a site's own rules decide; a wrong file is a usage error before anything starts."""

from __future__ import annotations

from pathlib import Path

from tests.command import Command


def test_a_floor_that_this_machine_misses_makes_it_not_ready(command: Command, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[floors]\n"all_reduce 1 MiB" = 5000\n')
    ran = command.run("check", "--policy", str(tmp_path / "site.toml"))
    assert ran.code == 1
    assert "policy-floor" in {finding["check"] for finding in ran.report["findings"]}


def test_an_unknown_check_is_one_line_and_exit_code_2(command: Command, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[checks]\nmemlok = "fatal"\n')
    ran = command.run("check", "--policy", str(tmp_path / "site.toml"))
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1 and "there is no check 'memlok'" in ran.stderr
