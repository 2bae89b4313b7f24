"""A command line that makes no sense ends at once with exit code 2, one line on stderr and nothing else."""

from __future__ import annotations

import pytest

from tests.command import Command

WRONG = [
    ("nope", "No such command 'nope'"),
    ("check --nope", "No such option: --nope"),
    ("check --nproc", "--nproc"),
    ("check --nproc x", "'--nproc': give an integer (see preflight check --help)"),
    ("run --on-unknown x -- true", "Invalid value for '--on-unknown': 'x' is not one of 'start', 'stop'."),
    ("check --nproc 0 --backend gloo", "--nproc 0"),
    ("check --nproc 100000 --backend gloo", "--nproc 100000"),
    ("check --backend foo", "--backend foo"),
    ("check --backend=", "--backend"),
    ("check --backend gloo --gpus 0", "--gpus"),
    ("check --profile nope", "--profile"),
    ("check --deadline 0", "--deadline"),
    ("check --deadline -5", "--deadline"),
    ("check --deadline nan", "--deadline"),
    ("check --deadline abc", "--deadline"),
    ("check --sysroot /nonexistent", "/nonexistent"),
    ("check --env-out /nonexistent/x", "/nonexistent/x"),
    ("check --json /", "directory"),
    ("check --report -", "--report -: give a path; stdout is for the page"),
    ("check --env-out -", "--env-out -"),
    ("run --report - -- true", "--report -"),
    ("explain --env-out - log", "--env-out -"),
    ("fleet --out - reports", "--out -"),
    ("stuck --out -", "--out -"),
    ("probe --json /nonexistent/x", "/nonexistent/x"),
    ("probe --sysroot /etc/passwd", "not a directory"),
]
WITHOUT_GPUS = [
    ("check --gpus 0", "--gpus 0"),
    ("check --gpus=", "--gpus"),
    ("check --backend nccl", "--backend nccl"),
]


@pytest.mark.parametrize(("line", "named"), WRONG, ids=[line for line, _ in WRONG])
def test_a_usage_error_is_one_line_that_names_what_is_wrong(command: Command, line: str, named: str) -> None:
    check_usage_error(command, line, named)


@pytest.mark.usefixtures("cpu_path")
@pytest.mark.parametrize(("line", "named"), WITHOUT_GPUS, ids=[line for line, _ in WITHOUT_GPUS])
def test_asking_for_gpus_where_there_are_none_is_a_usage_error(command: Command, line: str, named: str) -> None:
    check_usage_error(command, line, named)


def check_usage_error(command: Command, line: str, named: str) -> None:
    ran = command.run(*line.split())
    assert ran.code == 2, ran.stdout + ran.stderr
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert ran.stderr.startswith("preflight: ")
    assert named in ran.stderr
    assert list(command.cwd.iterdir()) == []


def test_control_characters_in_an_argument_do_not_reach_the_terminal(command: Command) -> None:
    ran = command.run("check", "--backend", "a\x1b[31m\rb\nc")
    assert ran.code == 2
    assert len(ran.stderr.splitlines()) == 1
    assert "\x1b" not in ran.stderr
    assert "\r" not in ran.stderr
