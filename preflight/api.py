"""The Python API: the answers of `preflight check`, `probe`, `explain` and `timeout` as records. See docs/python.md.

`check` and `probe` run in a separate process: they fork, which a process with threads or a CUDA context must not do.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.check.request import Request
from preflight.errors import HarnessError, UsageError
from preflight.explain.explain_files import explain_paths
from preflight.model.codec import decode
from preflight.model.explanation import Explanation
from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, RanCheck, SkippedCheck
from preflight.model.gap import Gap
from preflight.model.input_limits import REPORT, parse_json
from preflight.model.job import Dtype, Job, Optimizer, Save, Strategy
from preflight.model.profile import Profile
from preflight.model.report import Report
from preflight.model.saved_report import load_report
from preflight.model.timeout import SafeTimeout
from preflight.system.inputs import read_input
from preflight.system.installed import installed_versions
from preflight.system.own_command import last_line, run_own
from preflight.timeout.frameworks import DISTRIBUTIONS
from preflight.timeout.job_text import parse_params
from preflight.timeout.safe_timeout import safe_timeout as sum_up
from preflight.timeout.timings import nccl_settings, timings

Path = str | os.PathLike[str]
UNASKED = Request()


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of `probe`: one node's facts, the findings that follow from them alone, and each check's outcome."""

    nodes: tuple[NodeFacts, ...]
    findings: tuple[Finding, ...]
    skipped_checks: tuple[SkippedCheck, ...]
    checks: tuple[RanCheck, ...]

    @property
    def node(self) -> NodeFacts:
        """Return the facts of the node."""
        return self.nodes[0]


def check(
    gpus: str | Sequence[int] | None = None,
    profile: Profile | str = UNASKED.profile,
    *,
    backend: str | None = None,
    nproc: int | None = None,
    nnodes: int | None = None,
    deadline_s: float | None = None,
    strict: bool = False,
    policy: Path | None = None,
    checkpoint_dir: Path | None = None,
    tests: str | Sequence[str] | None = None,
    collectives: str | Sequence[str] | None = None,
    sizes: str | None = None,
    skip: str | Sequence[str] | None = None,
) -> Report:
    """Run `preflight check` and return its report. The options are those of the command. No file is written.

    `gpus` are NVML indices or text such as "0-3". `Report.raise_unless_ready` shows whether the job may start.
    UsageError: the options make no sense here. HarnessError: there is no report.
    """
    try:
        thorough = Profile(profile)
    except ValueError:
        raise UsageError(f"profile {profile!r}: there are {', '.join(each.value for each in Profile)}") from None
    with tempfile.TemporaryDirectory(prefix="preflight-api-") as folder:
        report = os.path.join(folder, "report.json")
        listed = _listed(skip)
        request = Request(
            gpus=_listed(gpus), nproc=nproc, backend=backend, profile=thorough, deadline=deadline_s, nnodes=nnodes,
            strict=strict, policy=None if policy is None else os.fspath(policy), tests=_listed(tests),
            checkpoint_dir=None if checkpoint_dir is None else os.fspath(checkpoint_dir), sizes=sizes,
            collectives=_listed(collectives), skip=None if listed is None else [listed], report=report,
            env_out=os.path.join(folder, "env"), quiet=True,
        )  # fmt: skip
        ran = run_own(["check", *request.arguments()], folder)  # the report is all that is left
        if not os.path.exists(report):
            raise HarnessError(f"preflight check left no report: {last_line(ran)}")
        return load_report(read_input(report, REPORT), report)


def probe(gpus: str | Sequence[int] | None = None, *, deadline_s: float | None = None) -> Probed:
    """Return this node's facts and their findings, in under a second or until the deadline.

    It starts no rank and needs no torch. UsageError: no such GPUs. HarnessError: there is no answer.
    """
    ran = run_own(["probe", "--json", "-", *_options(gpus=_listed(gpus), deadline=deadline_s)])
    if not ran.stdout:
        raise HarnessError(f"preflight probe printed nothing: {last_line(ran)}")
    return decode(Probed, parse_json(ran.stdout.decode(), REPORT, "what preflight probe printed"))


def explain(paths: Path | Sequence[Path]) -> Explanation:
    """Return what ended a run, from its logs, folders of logs, or flight recorder dumps.

    UsageError: a path does not exist or can't be read.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return explain_paths([os.fspath(path) for path in listed])


def safe_timeout(
    params: str | int | None = None,
    *,
    strategy: Strategy | str = Strategy.DDP,
    save: Save | str = Save.FULL,
    dtype: Dtype | str = Dtype.BF16,
    optimizer: Optimizer | str = Optimizer.ADAMW,
    world_size: int | None = None,
    preprocess_s: float = 0.0,
    eval_s: float = 0.0,
    compile_s: float = 0.0,
    current_s: float | None = None,
    report: Report | None = None,
) -> SafeTimeout:
    """Return how long a collective of this job may wait, with the reasoning; `report` has the measurements.

    The fields of the answer are in seconds: `timedelta(seconds=safe_timeout("7B").pg_timeout_s)`. `world_size` defaults
    to the report's, else 1. UsageError: a value makes no sense.
    """
    ranks = world_size or (report.world_size if report else 0) or 1
    if ranks < 1 or min(preprocess_s, eval_s, compile_s) < 0:
        raise UsageError("safe_timeout: ranks and times are not negative")
    try:
        job = Job(
            params=None if params is None else parse_params(str(params)), dtype=Dtype(dtype),
            optimizer=Optimizer(optimizer), strategy=Strategy(strategy), save=Save(save), world_size=ranks,
            preprocess_s=preprocess_s, eval_s=eval_s, compile_s=compile_s,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(f"safe_timeout: {error}") from None
    settings = nccl_settings(report.nodes[0]) if report and report.nodes else dict(os.environ)
    storage = None if report is None or isinstance(report.storage, Gap) else report.storage
    measured = timings(report.trials if report else None, report.world_size if report else 0, storage, settings)
    return sum_up(job, measured, current_s, installed_versions(DISTRIBUTIONS))


def _listed(values: str | Sequence[int] | Sequence[str] | None) -> str | None:
    return values if values is None or isinstance(values, str) else ",".join(map(str, values))


def _options(**values: str | float | os.PathLike[str] | None) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]
