"""The Python API: the functions `check`, `probe`, `explain`, `stuck` and `timeout`.

The functions return records, which docs/python.md describes.
"""
# `check`, `probe` and `stuck` fork, so they run in a separate process. A process that has threads or a CUDA context
# must not fork.

from __future__ import annotations

import html
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from preflight.check.request import Request
from preflight.errors import HarnessError, UsageError
from preflight.explain.explain_files import explain_paths
from preflight.judge.check import CheckResults, probe_exit_code
from preflight.model.codec import decode
from preflight.model.explanation import Explanation
from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, RanCheck, SkippedCheck
from preflight.model.gap import Gap
from preflight.model.input_limits import REPORT, parse_json
from preflight.model.installation import HTML_MODULES
from preflight.model.job import Dtype, Job, Optimizer, Save, Strategy
from preflight.model.profile import Profile
from preflight.model.report import Report
from preflight.model.saved_report import load_report
from preflight.model.shown import WRITERS, Printable, Renderers
from preflight.model.stuck import StuckReport
from preflight.model.timeout import SafeTimeout
from preflight.model.units import counted
from preflight.model.word import Word
from preflight.show.check_page import Written, check_page
from preflight.show.explain import explain_page
from preflight.show.formats import Format
from preflight.show.json_document import render_json
from preflight.show.probe_json import render_probe_json
from preflight.show.probe_page import probe_page
from preflight.show.render import render_as
from preflight.show.screen import Page
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from preflight.system.inputs import read_input
from preflight.system.installed import installed_versions, module_exists
from preflight.system.own_command import last_line, run_own
from preflight.timeout.frameworks import DISTRIBUTIONS
from preflight.timeout.job_text import parse_params
from preflight.timeout.safe_timeout import safe_timeout as sum_up
from preflight.timeout.timings import nccl_settings, timings

Path = str | os.PathLike[str]
ProfileName = Literal["quick", "standard", "burn"]
StrategyName = Literal["ddp", "fsdp", "zero1", "zero2", "zero3"]
SaveName = Literal["full", "sharded", "async"]
DtypeName = Literal["fp32", "bf16", "fp16"]
OptimizerName = Literal["adamw", "adamw8bit", "adafactor", "sgd", "momentum"]
Chosen = TypeVar("Chosen", bound=Word)
UNASKED = Request()
# An option in the words of a command, with where to read about it; and those whose argument has another name.
OPTION, SEE = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])"), re.compile(r" \(see preflight [a-z ]*--help\)$")
ARGUMENTS = {"deadline": "deadline_s", "watch": "watch_s", "current": "current_s"}


@dataclass(frozen=True, slots=True, repr=False)
class Probed(Printable):
    """The result of `probe`: the values read from one node, the problems found, and the outcome of each check."""

    nodes: tuple[NodeFacts, ...]
    findings: tuple[Finding, ...]
    skipped_checks: tuple[SkippedCheck, ...]
    checks: tuple[RanCheck, ...]

    @property
    def node(self) -> NodeFacts:
        """Return the values that were read from the node."""
        return self.nodes[0]

    @property
    def in_short(self) -> str:
        """Return the name of the node and the number of problems found, as text."""
        return f"{self.node.host}, {counted(len(self.findings), 'finding')}"


def check(
    gpus: str | Sequence[int] | None = None,
    profile: Profile | ProfileName = "quick",
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
    """Run `preflight check` and return its report, without writing output files.

    `gpus` are NVML indices or text such as "0-3". Raise UsageError if an option is invalid, and HarnessError if the
    check returned no report.
    """
    # The parameters are the options of the command. `Report.raise_unless_ready` raises NotReady if the job may not
    # start.
    thorough = _chosen(Profile, "profile", profile)
    with _arguments_named(), tempfile.TemporaryDirectory(prefix="preflight-api-") as folder:
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
    """Return the values that were read from this node, and the problems found in these values.

    The call takes at most `deadline_s` seconds. Raise UsageError if a GPU in `gpus` does not exist, and HarnessError if
    the probe returned nothing.
    """
    # The call usually takes less than a second. The call starts no rank and needs no torch.
    with _arguments_named():
        ran = run_own(["probe", "--json", "-", *_options(gpus=_listed(gpus), deadline=deadline_s)])
    if not ran.stdout:
        raise HarnessError(f"preflight probe printed nothing: {last_line(ran)}")
    return decode(Probed, parse_json(ran.stdout.decode(), REPORT, "what preflight probe printed"))


def explain(paths: Path | Sequence[Path]) -> Explanation:
    """Return why a training run ended, as shown by its logs or flight recorder dumps in `paths` (files or folders).

    Raise UsageError if no path is given, or if a path does not exist or can't be read.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not listed:
        raise UsageError("explain: no path was given")
    return explain_paths([os.fspath(path) for path in listed])


def stuck(pid: int | None = None, *, job: str | None = None, watch_s: float | None = None) -> StuckReport:
    """Return where each rank of a hung job on this node waits, and why, without disturbing the ranks.

    The call takes up to `watch_s` seconds, and the verdict is unknown if no job is found. Raise UsageError if several
    jobs run here and no job was named, and HarnessError if there is no report.
    """
    # `pid` is the pid of a rank or of the job's launcher. `pid` and `job` are not needed if only one job runs here.
    with _arguments_named():
        ran = run_own(["stuck", "--json", "-", *_options(pid=pid, job=job, watch=watch_s)])
    if not ran.stdout:
        raise HarnessError(f"preflight stuck printed nothing: {last_line(ran)}")
    return decode(StuckReport, parse_json(ran.stdout.decode(), REPORT, "what preflight stuck printed"))


def safe_timeout(
    params: str | float | None = None,
    *,
    strategy: Strategy | StrategyName = "ddp",
    save: Save | SaveName = "full",
    dtype: Dtype | DtypeName = "bf16",
    optimizer: Optimizer | OptimizerName = "adamw",
    world_size: int | None = None,
    save_s: float = 0.0,
    preprocess_s: float = 0.0,
    eval_s: float = 0.0,
    compile_s: float = 0.0,
    current_s: float | None = None,
    report: Report | None = None,
) -> SafeTimeout:
    """Return how long a collective of this job may wait, in seconds, and how the time was computed.

    `report` is a report with measured speeds. Raise UsageError if a value is invalid.
    """
    # An example is `timedelta(seconds=safe_timeout("7B").pg_timeout_s)`. `world_size` defaults to the world size of the
    # report, or to 1 without a report.
    ranks = world_size or (report.world_size if report else 0) or 1
    if ranks < 1 or min(save_s, preprocess_s, eval_s, compile_s) < 0:
        raise UsageError("safe_timeout: ranks and times are not negative")
    # A number as it is: 7e9 is written as 7000000000.
    size = str(params) if params is None or isinstance(params, str) else f"{params:.0f}"
    with _arguments_named():
        job = Job(
            params=None if params is None else parse_params(size), dtype=_chosen(Dtype, "dtype", dtype),
            optimizer=_chosen(Optimizer, "optimizer", optimizer), strategy=_chosen(Strategy, "strategy", strategy),
            save=_chosen(Save, "save", save), world_size=ranks,
            save_s=save_s, preprocess_s=preprocess_s, eval_s=eval_s, compile_s=compile_s,
        )  # fmt: skip
    settings = nccl_settings(report.nodes[0]) if report and report.nodes else dict(os.environ)
    storage = None if report is None or isinstance(report.storage, Gap) else report.storage
    measured = timings(report.trials if report else None, report.world_size if report else 0, storage, settings)
    return sum_up(job, measured, current_s, installed_versions(DISTRIBUTIONS))


def _listed(values: str | Sequence[int] | Sequence[str] | None) -> str | None:
    return values if values is None or isinstance(values, str) else ",".join(map(str, values))


def _options(**values: str | float | os.PathLike[str] | None) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]


def _chosen(kind: type[Chosen], argument: str, word: str) -> Chosen:
    """Return the enum member with the value `word`.

    Raise UsageError if no member has this value. The error message lists all values.
    """
    try:
        return kind(word)
    except ValueError:
        raise UsageError(f"{argument}={word!r}: there are {', '.join(each.value for each in kind)}") from None


@contextmanager
def _arguments_named() -> Iterator[None]:
    """Reword a UsageError that the block raises: name Python's arguments instead of the command's options."""
    try:
        yield
    except UsageError as error:
        text = SEE.sub("", str(error))
        named = OPTION.sub(lambda found: ARGUMENTS.get(found[1], found[1].replace("-", "_")), text)
        raise type(error)(named) from None


def _framed(page: str) -> str:
    """Return a page of HTML in a frame, so that its style does not reach the notebook."""
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 40em; border: 0"></iframe>'


def _as_text(page: str) -> str:
    return f"<pre>{html.escape(page)}</pre>"


def _screen(page: Page) -> str:
    return page.shown(Detail.SCREEN, Style()).rstrip("\n")


def _report_html(report: Report) -> str:
    """Return the HTML page of a report, or the report's text if the packages of the extra [html] are missing."""
    can = all(map(module_exists, HTML_MODULES))
    return _framed(render_as(Format.HTML, report)) if can else _as_text(str(report))


def _probed_page(probed: Probed) -> Page:
    checked = CheckResults(probed.findings, probed.skipped_checks, probed.checks)
    return probe_page(probed.node, *checked, probe_exit_code(checked, strict=False))


def _text_only(page: Callable[[Any], Page], json: Callable[[Any], str] = render_json) -> Renderers:
    return Renderers(lambda answer: _screen(page(answer)), lambda answer: _as_text(_screen(page(answer))), json)


WRITERS[Report] = _text_only(lambda report: check_page(report, Written(env="")))._replace(html=_report_html)
WRITERS[Explanation] = _text_only(explain_page)
WRITERS[StuckReport] = _text_only(stuck_page)
WRITERS[Probed] = _text_only(
    _probed_page, lambda probed: render_probe_json(probed.node, probed.findings, probed.skipped_checks, probed.checks)
)
