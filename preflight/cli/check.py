"""`preflight check`: everything, for the job or for the node."""

from __future__ import annotations

from preflight.cli.options import (
    Accept,
    Backend,
    Deadline,
    Endpoint,
    EnvOut,
    Gpus,
    JsonPath,
    Keep,
    Nnodes,
    NodeRank,
    Nproc,
    ProfileOption,
    ReportOut,
    RunId,
    StageLimit,
    Strict,
    SysrootOption,
    check_seconds,
)
from preflight.cli.output import STDOUT, check_outputs, retire_env, write_and_print
from preflight.cli.program import app
from preflight.cli.running import run
from preflight.model.run import Profile


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
    strict: Strict = False,
    accept: Accept = False,
    stage_limit: StageLimit = None,
    keep: Keep = False,
    sysroot: SysrootOption = None,
    nnodes: Nnodes = None,
    node_rank: NodeRank = None,
    rdzv_endpoint: Endpoint = None,
    rdzv_id: RunId = None,
) -> None:
    """Probe this node, try real collectives, and write the settings that the job needs.

    Exit codes: 0 ready, 1 not ready, 2 usage, 3 preflight could not look.
    """
    from preflight import app as application  # noqa: PLC0415  `--help` must not pay for it
    from preflight.launch.placement import Asked  # noqa: PLC0415

    check_seconds("--deadline", deadline)
    check_seconds("--stage-limit", stage_limit)
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        strict=strict, accept=accept, keep=keep, is_other_machine=sysroot is not None,
        asked=Asked(nnodes, node_rank, rdzv_endpoint, rdzv_id),
    )  # fmt: skip
    check_outputs(env_out, report, *([json] if json not in (None, STDOUT) else []))
    try:
        checked = run(request, sysroot)
    except Exception as error:
        if getattr(error, "exit_code", 3) == 3:  # unknown: nobody may source what an earlier run found
            retire_env(env_out)
        raise
    write_and_print(checked, json, env_out, report)
