"""The page of `preflight check`: the verdict first, then the next step, then the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from preflight.model.codec import GAPS, encode
from preflight.model.engine_options import SETTINGS, Engine, EngineOption, Fault, options_for
from preflight.model.finding import Severity
from preflight.model.gap import NO_ANSWER, Gap
from preflight.model.nccl_variables import assignment
from preflight.model.report import PAUSED, NodeVerdict, Report, RunPhase, Verdict
from preflight.model.units import counted
from preflight.show.changes import since_good
from preflight.show.checks_and_findings import (
    could_not_look,
    counts_line,
    counts_text,
    findings_section,
    silent_sections,
)
from preflight.show.document import BLANK, Block, Items, Text, grouped, item, note, section
from preflight.show.gpu_tests import hardware_section
from preflight.show.isolation import isolation_section
from preflight.show.network_survey import between_sections
from preflight.show.screen import AGAIN, ALL, TOLD, Page, short
from preflight.show.settings import evidence_of, export, quoted_path, recommendation_section
from preflight.show.speeds import rails_section, speeds_section
from preflight.show.text import Detail, Style, line, rfc3339
from preflight.show.transport import transport_section
from preflight.show.trials import comparisons_section, left_out_section, search_section, trials_section
from preflight.show.verdict import (
    SIMULATED,
    by_weight,
    covers,
    deciding,
    end_text,
    is_good,
    unfinished,
    unfinished_section,
    verdict_section,
)

GAPS_SHOWN = 3
DEFAULT_ENV = "preflight.env"
WITHOUT = "Without it: "
STOPPED = "rerun the same command, because this run was stopped"
UNSEEN = "fix the problem above, then rerun the same command"
FAILED_ITSELF = "run the same command again. If the problem above recurs, fix it before you trust a verdict"
CPU_ONLY = "do not drain this node. Rerun on a GPU node, because no GPU was tested"
SIGNALLED = 128  # and the signal's number: the exit code of a run that a signal ended
FOR_THE_NODE = {
    NodeVerdict.ACCEPT: "put the node into service",
    NodeVerdict.REJECT: "drain the node for repair (`preflight render {report} --format drain` prints the drain "
    "reason)",
    NodeVerdict.UNKNOWN: "do not drain the node. Fix the problem above, then rerun the same command",
}


@dataclass(frozen=True, slots=True)
class Written:
    """The names of the files that a run wrote. A name is "" if the file was not written."""

    env: str = DEFAULT_ENV
    report: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobToStart:
    """The job that `preflight run` starts after the check. `name` is "" if there is no job."""

    name: str = ""
    starts_if_unknown: bool = False
    engine: Engine | None = None  # whose options are named, too


NO_FILES, NO_JOB = Written(), JobToStart()


def check_page(report: Report, written: Written = NO_FILES, job: JobToStart = NO_JOB) -> Page:
    """Return the page of `preflight check`: the verdict, the problems found, the settings and the next step.

    `written` has the names of the files that were written, and `job` is the job that starts after the check.
    """
    (verdict,) = (each for each in verdict_section(report) if isinstance(each, Text) and each.label_tone)
    simulated = f"{SIMULATED}  " if report.simulated else ""
    next_step = STOPPED if report.exit_code > SIGNALLED else _then(report, written, job) or _next(report, written)
    checks = ("Checks", f"{counts_text(report.checks, report.findings)} ({ALL})")
    files = ", ".join(filter(None, (written.env, written.report, *written.others))) or "nothing"
    return Page(
        replace(verdict, label=simulated + verdict.label),
        [*verdict_section(report, most_lines=3), *_paused(report), *_not_finished(report)],
        [
            *_settings(report),
            *_engine(report, job.engine),
            *_problems(report),
            *(short(each, report.headline) for each in by_weight(report)),
        ],
        [("Next", next_step), *_changed(report), *_covers(report), *_timeouts(report), checks, ("Written", files)],
        lambda: [*_whole(report, written.env or DEFAULT_ENV), *_engine_section(report, job.engine)],
        is_one_line=_lacks_only_torch(report),
    )


def _lacks_only_torch(report: Report) -> bool:
    """Return whether no rank was started because torch is missing, and nothing else failed."""
    failed = {each.check for each in report.findings if each.severity is Severity.FAIL}
    return report.verdict is Verdict.UNKNOWN and failed == {"torch-version"}


def render_check(report: Report, style: Style) -> str:
    """Return the page of a check in full, as `render --format console` prints it."""
    return check_page(report).shown(Detail.ALL, style)


def _whole(report: Report, env_path: str) -> list[Block]:
    launch = Items([(each.what, f"{each.value} ({each.source})") for each in report.launch])
    return [
        *verdict_section(report),
        *section("Several nodes", launch),
        *section("Preflight itself", *map(item, report.problems)),
        *unfinished_section(report),
        *findings_section(report.findings),
        *hardware_section(report),
        *between_sections(report),
        *trials_section(report),
        *speeds_section(report),
        *rails_section(report),
        *isolation_section(report),
        *search_section(report),
        *transport_section(report),
        *comparisons_section(report),
        *left_out_section(report),
        *recommendation_section(report, env_path),
        *_could_not_look(report),
        *silent_sections(report.checks),
        *counts_line(report.checks, report.findings),
        *section("Changed since the node was good", *(Text(each, 2, 4) for each in since_good(report))),
        *(Text(text, hang=len("Covers: "), label="Covers: ") for _, text in _covers(report)),
        *_durations(report),
    ]


def _could_not_look(report: Report) -> list[Block]:
    """Return the inconclusive checks with their reasons, and the few missing facts that matter most."""
    items = [
        (names[0], reason if len(names) == 1 else f"{reason} (and so {', '.join(names[1:])})")
        for reason, names in could_not_look(report.skipped_checks).items()
    ]
    gaps = [(gap["fact"], gap["reason"]) for node in report.nodes for gap in encode(node)[GAPS]]
    unusual = dict.fromkeys(gap for gap in gaps if not _is_ordinary(gap[0], report.backend))
    telling = sorted(unusual, key=lambda gap: not gap[1].startswith(NO_ANSWER))[:GAPS_SHOWN]  # first what stalled
    more = f"{len(gaps) - len(telling)} {'more ' if telling else ''}values could not be read"
    notes = [note(f"{more}; `preflight probe` lists them")] if len(gaps) > len(telling) else []
    return section("Inconclusive", Items([*items, *telling]), *notes)


def _is_ordinary(fact: str, backend: str) -> bool:
    """Return whether healthy machines may also lack the fact `fact`.

    Virtual interfaces, for example, have no speed.
    """
    about_gpus = fact.startswith(("driver", "gpu", "device_nodes", "nvidia_pci", "software.torch.", "rdma.", "xid"))
    return (about_gpus and backend == "gloo") or fact.startswith(
        ("netifs[", "gpus[", "pci[", "nics[", "hca_ports[", "other_devices", "system.product", "system.bios")
    )


def _durations(report: Report) -> list[Block]:
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.durations_s)
    return [BLANK, Text(parts, hang=len("Took: "), label="Took: ", tone="dim")] if parts else []


def _paused(report: Report) -> list[Block]:
    """Return a block that says how long the run was paused, or [] if there was no pause.

    Measurements around a pause may be wrong.
    """
    seconds = dict(report.durations_s).get(PAUSED, 0.0)
    text = (
        f"the whole run was paused for {seconds:.0f} s (a freezer, SIGSTOP, a moved VM); no time limit counts this time"
    )
    return [Text(text, 2, 4, label="Paused: ", most_lines=2)] if seconds else []


def _not_finished(report: Report) -> list[Block]:
    cut = unfinished(report)
    return [Text("; ".join(_by_detail(cut)), 2, 4, label="Not finished: ", most_lines=2)] if cut else []


def _by_detail(phases: Sequence[RunPhase]) -> list[str]:
    """Return lines such as `start of the ranks (partial), trials (not reached): REASON`.

    Each reason occurs once.
    """
    alike = grouped((each.detail, f"{each.name} ({end_text(each)})") for each in phases)
    return [f"{', '.join(names)}: {detail}" for detail, names in alike.items()]


def _settings(report: Report) -> list[list[Block]]:
    """Return each recommended setting with the result of the trial without this setting.

    If there is no result and the headline already names the setting, the setting is omitted.
    """
    advice = report.advice
    named = [(export(name, value), name, assignment(name, value)) for name, value in advice.env]
    named += [(f"unset {name}", name, f"unset {name}") for name in advice.unset]
    groups: list[list[Block]] = []
    for command, name, short_form in named:
        evidence = [text.splitlines()[0] for text in evidence_of(advice, name) if text]
        without = [text.removeprefix(WITHOUT) for text in evidence if text.startswith(WITHOUT)]
        why: list[Block] = [Text(without[0], 4, 6, label="without it: ", most_lines=2)] if without else []
        if why or short_form not in report.headline:
            groups.append([Text(command, 2), *why])
    return groups


def _engine_options(report: Report, engine: Engine | None) -> tuple[EngineOption, ...]:
    """Return the options of a serving engine that work around faults.

    The faults are broken GPU pairs, and faults that the recommended settings avoid.
    """
    faults = {SETTINGS[name] for name, _ in report.advice.env if name in SETTINGS}
    pairs = () if isinstance(report.p2p, Gap) else report.p2p
    if any(pair.problem for pair in pairs):
        faults.add(Fault.P2P)
    return options_for(engine, faults) if engine is not None else ()


def _engine(report: Report, engine: Engine | None) -> list[list[Block]]:
    rows = _engine_options(report, engine)
    return [[Text(each.option, 2), Text(_why(each), 4, 6, label=f"{each.engine.value}: ")] for each in rows]


def _engine_section(report: Report, engine: Engine | None) -> list[Block]:
    rows = [(each.option, f"{_why(each)} [{each.source}]") for each in _engine_options(report, engine)]
    return section(f"Options of {engine.value}", Items(rows)) if engine is not None and rows else []


def _why(row: EngineOption) -> str:
    return f"{row.why} (not tried; read in {row.versions})"


def _problems(report: Report) -> list[list[Block]]:
    """Return the steps at which preflight itself failed, without steps that the headline already names."""
    more = [each for each in report.problems if each not in report.headline]
    return [[Text(each, 0, 6, label="ERROR ", label_tone="yellow", most_lines=3)] for each in more]


def _next(report: Report, written: Written) -> str:
    """Return the next step for the user, with the command if there is one."""
    if isinstance(report.node_verdict, NodeVerdict):
        return _for_the_node(report, report.node_verdict, written)
    match report.verdict:
        case Verdict.READY:
            return "start the job; no settings needed"
        case Verdict.READY_WITH_ENV:
            source = f"source {quoted_path(written.env)}, then start the job from that shell"
            return source if written.env else "start the job with these settings"
        case Verdict.NOT_READY if any(each.fix for each in deciding(report)):
            return AGAIN
        case Verdict.NOT_READY:
            return "run `preflight check -v --keep` to see every trial and keep the logs for `preflight explain`"
        case Verdict.UNKNOWN:
            unseen = FAILED_ITSELF if report.problems else UNSEEN
            return TOLD if any(each.fix for each in deciding(report)) else unseen


def _for_the_node(report: Report, verdict: NodeVerdict, written: Written) -> str:
    is_unknown = verdict is NodeVerdict.UNKNOWN
    if is_unknown and report.problems and not any(each.fix for each in deciding(report)):
        return f"do not drain the node. Instead, {FAILED_ITSELF}"
    if is_unknown and report.backend == "gloo" and not report.problems:
        return CPU_ONLY
    return FOR_THE_NODE[verdict].format(report=quoted_path(written.report))


def _then(report: Report, written: Written, job: JobToStart) -> str:
    """Return what `preflight run` does next, or "" if the user has to act first."""
    name = line(job.name)
    match report.verdict:
        case Verdict.READY if name:
            return f"{name} starts now; no settings needed"
        case Verdict.READY_WITH_ENV if name:
            return f"{name} starts now, with the settings of {quoted_path(written.env)}"
        case Verdict.UNKNOWN if name and job.starts_if_unknown:
            return f"let {name} run, and fix the problem above before the next run"
    return ""


def _timeouts(report: Report) -> list[tuple[str, str]]:
    advice = report.advice
    if report.exit_code != 0 or isinstance(advice.pg_timeout_s, Gap) or isinstance(advice.init_timeout_s, Gap):
        return []
    both = f"{advice.pg_timeout_s} s for collectives, {advice.init_timeout_s} s for the start"
    return [("Timeout", f"{both} (see `preflight timeout`)")]


def _changed(report: Report) -> list[tuple[str, str]]:
    """Return the changes since the node was last good.

    If no earlier report says that the node was good, return [].
    """
    if not report.good_at:
        return []
    first, *others = since_good(report)
    more = f"; {counted(len(others), 'other change')} ({ALL})" if others else ""
    return [("Changed", f"since {rfc3339(report.good_at)}, when it was good: {first}{more}")]


def _covers(report: Report) -> list[tuple[str, str]]:
    """Return a text on what was tried.

    Return [] if the verdict is not good, or if --accept was given. With --accept, the text stands next to the verdict
    on the job.
    """
    covered = covers(report) if is_good(report) and isinstance(report.node_verdict, Gap) else ""
    return [("Covers", covered)] if covered else []
