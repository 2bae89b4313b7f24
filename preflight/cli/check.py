"""`preflight check`: everything, for the job or for the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.cli.also import parse_also
from preflight.cli.options import (
    Accept,
    Also,
    Backend,
    BaselineFile,
    Deadline,
    Endpoint,
    EnvOut,
    Gpus,
    JsonPath,
    Keep,
    Minutes,
    Nnodes,
    NodeRank,
    Nproc,
    PlayedMachine,
    PolicyFile,
    ProfileOption,
    ReportOut,
    RunId,
    SharedDirectory,
    StageLimit,
    Strict,
    SysrootOption,
    burn_seconds,
    check_seconds,
)
from preflight.cli.output import STDOUT, Outputs, check_outputs, retire_env, save, write_and_print
from preflight.cli.program import app
from preflight.cli.running import run
from preflight.model.profile import Profile

if TYPE_CHECKING:
    from preflight.model.baseline import Baseline
    from preflight.model.policy import Policy


@app.command()
def check(
    gpus: Gpus = None,
    nproc: Nproc = None,
    backend: Backend = None,
    profile: ProfileOption = Profile.QUICK,
    deadline: Deadline = None,
    json: JsonPath = None,
    env_out: EnvOut = "preflight.env",
    report: ReportOut = "preflight-report.json",
    also: Also = [],  # noqa: B006  typer copies it
    strict: Strict = False,
    accept: Accept = False,
    stage_limit: StageLimit = None,
    keep: Keep = False,
    policy: PolicyFile = None,
    baseline: BaselineFile = None,
    minutes: Minutes = None,
    sysroot: SysrootOption = None,
    machine: PlayedMachine = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: Endpoint = None,
    rdzv_id: RunId = None,
    checkpoint_dir: SharedDirectory = None,
) -> None:
    """Probe this node, try real collectives, and write the settings that the job needs.

    Exit codes: 0 ready, 1 not ready, 2 usage, 3 preflight could not look.
    """
    from preflight import app as application  # noqa: PLC0415  `--help` must not pay for it
    from preflight.launch.placement import Asked  # noqa: PLC0415

    check_seconds("--deadline", deadline)
    check_seconds("--stage-limit", stage_limit)
    burn_s = burn_seconds(minutes, profile)
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        strict=strict, accept=accept, keep=keep, is_other_machine=sysroot is not None or machine is not None,
        is_played=machine is not None, policy=None if policy is None else _policy(policy), burn_s=burn_s,
        baseline=None if baseline is None else _baseline(baseline), baseline_source=baseline or "",
        asked=Asked(nnodes, node_rank, rdzv_endpoint, rdzv_id), checkpoint_dir=checkpoint_dir,
    )  # fmt: skip
    outputs = Outputs(json, env_out, report, parse_also(also, (env_out, report, *([json] if json else []))))
    check_outputs(env_out, report, *([json] if json not in (None, STDOUT) else []), *(path for _, path in outputs.also))
    try:
        checked = run(request, sysroot, machine, lambda interim: save(interim, outputs))
    except Exception as error:
        if getattr(error, "exit_code", 3) == 3:  # unknown: nobody may source what an earlier run found
            retire_env(env_out)
        raise
    write_and_print(checked, outputs)


def _policy(path: str) -> Policy:
    from datetime import date  # noqa: PLC0415

    from preflight.judge.check import all_checks  # noqa: PLC0415
    from preflight.judge.run.policy import parse_policy  # noqa: PLC0415
    from preflight.system.files import read_input  # noqa: PLC0415

    names = {check.name for check in all_checks()}
    return parse_policy(read_input(path), path, names, date.today().isoformat())


def _baseline(path: str) -> Baseline:
    from preflight.model.saved import load_baseline  # noqa: PLC0415
    from preflight.system.files import read_input  # noqa: PLC0415

    return load_baseline(read_input(path), path)
