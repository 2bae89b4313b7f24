"""A command line that makes no sense ends at once with exit code 2, one line on stderr and nothing else."""

from __future__ import annotations

import os

import pytest

from tests.command import Command

pytestmark = pytest.mark.heavy(6)

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
# What a user types who does not know preflight, and what is answered besides the error.
MEANT = [
    ("chekc", "Did you mean 'check'"),
    ("job.log", "did you mean `preflight explain job.log`?"),
    ("torchrun train.py", "did you mean `preflight run -- torchrun train.py`?"),
    ("train.py --epochs 3", "did you mean `preflight run -- python train.py --epochs 3`?"),
    ("--gpus 0 check", "put options after the command: `preflight check --gpus 0`"),
    ("-v check --accept", "put options after the command: `preflight check -v --accept`"),
    ("--json - probe", "put options after the command: `preflight probe --json -`"),
    ("--gpus 0", "--gpus is an option of check, run, timeout, probe, bench"),
    ("check 0,1", "did you mean --gpus 0,1?"),
    ("probe 0-3", "did you mean --gpus 0-3?"),
    ("bench 0", "did you mean --gpus 0?"),
    ("check burn", "did you mean --profile burn?"),
    ("check train.py", "did you mean `preflight run -- python train.py`?"),
    ("check torchrun train.py", "did you mean `preflight run -- torchrun train.py`?"),
    ("check -gpus 0", "did you mean --gpus?"),
    ("check --gpu 0", "--gpus"),
    ("check --verbos", "--verbose"),
    ("check --proflie burn", "--profile"),
    ("check --profile fast", "'quick', 'standard', 'burn'"),
    ("check --tests pars", "did you mean pairs?"),
    ("check --skip memlok", "did you mean memlock?"),
    ("check --also pdf=x", "one of console, junit"),
    ("check --minutes 5", "only --profile burn"),
    ("check --json", "requires an argument. (see preflight check --help)"),
    ("check --node-rank 1", "--nnodes N"),
    ("check --framework torch", "--framework is an option of timeout"),
    ("explain", "such as `preflight explain slurm-4711.out`"),
    ("explain nope.log", "nope.log: can't be read"),
    ("explain --gpus 0 job.log", "--gpus is an option of check"),
    ("stuck --watch", "requires an argument. (see preflight stuck --help)"),
    ("stuck train.py", "give an integer"),
    ("stuck 0", "from 1 to"),
    ("run", "such as `preflight run -- torchrun ... train.py`"),
    ("run --gpus 0 --", "such as `preflight run -- torchrun ... train.py`"),
    ("run --nope -- true", "--nope"),
    ("timeout 7B", "did you mean --params 7B?"),
    ("timeout --params 7Q", "write 7B"),
    ("timeout --strategy fdsp", "'fsdp'"),
    ("timeout --framework lightening", "did you mean lightning?"),
    ("timeout --framework jax", "there are torch, torchrun"),
    ("timeout --preprocess 5x", "write 90s, 30m"),
    ("timeout preflight-report.json", "did you mean --report preflight-report.json?"),
    ("bench --collectives allreduc", "did you mean all_reduce?"),
    ("bench --sizes 1G:1K", "the smaller one first"),
    ("render", "such as `preflight render report.json -o page.html`"),
    ("render job.log", "job.log: not JSON"),
    ("render nope.json --format pdf", "'html'"),
    ("fleet", "such as `preflight fleet reports/`"),
    ("fleet /nope", "/nope: there is no such file or directory"),
    ("baseline good", "such as `preflight baseline good/ -o baseline.json`"),
    ("checks memlok", "did you mean memlock?"),
    ("schema chekc", "'report', 'stuck'"),
    ("capture --json x", "--json is an option of explain"),
    ("help nope", "No such command 'nope'"),
    ("version check", "No such command 'version'"),
    ("check --nnodes 2", "`preflight check --nnodes 2 --node-rank 0 --rdzv-endpoint HOST:29400`"),
]
WITHOUT_GPUS = [
    ("check --gpus 0", "--gpus 0"),
    ("check --gpus=", "--gpus"),
    ("check --backend nccl", "--backend nccl"),
]


@pytest.mark.parametrize(("line", "named"), WRONG, ids=[line for line, _ in WRONG])
def test_a_usage_error_is_one_line_that_names_what_is_wrong(command: Command, line: str, named: str) -> None:
    check_usage_error(command, line, named)


@pytest.mark.parametrize(("line", "meant"), MEANT, ids=[line for line, _ in MEANT])
def test_a_wrong_line_is_answered_with_what_was_probably_meant(command: Command, line: str, meant: str) -> None:
    (command.cwd / "job.log").write_text("step 1\n")
    ran = command.run(*line.split())
    assert (ran.code, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1), ran.stdout + ran.stderr
    assert meant in ran.stderr
    assert os.listdir(command.cwd) == ["job.log"]


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


def test_what_is_proposed_can_be_pasted(command: Command) -> None:
    (command.cwd / "my job.log").write_text("step 1\n")
    assert "`preflight explain 'my job.log'`" in command.run("my job.log").stderr
    assert "`preflight check --also 'junit=my file'`" in command.run("--also", "junit=my file", "check").stderr


def test_what_follows_the_job_is_the_jobs(command: Command) -> None:
    ran = command.run("run", "--", "no-such-job", "--help-all", "--gpus")
    assert (ran.code, ran.stdout) == (127, "")
    assert "no-such-job: not found" in ran.stderr
