"""The first screen of `preflight check`: the answer, why, what to do next, what was written, in 24 lines."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.facts import Gap
from preflight.model.report import PAUSED, NodeVerdict, Report, Verdict
from preflight.show.checks_and_findings import counts_text
from preflight.show.console_writer import finish
from preflight.show.document import Block, Text
from preflight.show.screen import AGAIN, ALL, TOLD, fitted, foot_of, short
from preflight.show.settings import evidence_of, export, quoted_path
from preflight.show.text import Style, line
from preflight.show.verdict import by_weight, deciding, phase_text, unfinished, verdict_section

WITHOUT = "Without it: "
STOPPED = "run the same command again: this run was stopped"
UNSEEN = "repair what kept preflight from looking, then run the same command again"
SIGNALLED = 128  # and the signal's number: the exit code of a run that a signal ended
FOR_THE_NODE = {
    NodeVerdict.ACCEPT: "put the node into service",
    NodeVerdict.REJECT: "drain the node, repair it, check it again; the reason to give: "
    "`preflight render {report} --format drain`",
    NodeVerdict.UNKNOWN: "leave the node as it is; repair what kept preflight from looking, then run it again",
}


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a run that its page names; "" where one was not written."""

    env: str
    report: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobToStart:
    """What `preflight run` starts after the check; no name where the check was asked for by itself."""

    name: str = ""
    starts_if_unknown: bool = False


NO_JOB = JobToStart()


def render_check_screen(report: Report, style: Style, written: Written, job: JobToStart = NO_JOB) -> str:
    """Return what fits on one screen, the most important first; the rest is counted, and `-v` shows it."""
    head: list[Block] = [*verdict_section(report, most_lines=3), *_paused(report), *_not_finished(report)]
    checks = ("Checks", f"{counts_text(report.checks, report.findings)} ({ALL})")
    next_step = STOPPED if report.exit_code > SIGNALLED else _then(report, written, job) or _next(report, written)
    rows = [("Next", next_step), *_timeouts(report), checks, _files(written)]
    findings = [short(each, report.headline) for each in by_weight(report)]
    groups = [*_settings(report), *_problems(report), *findings]
    return fitted(head, groups, foot_of(rows), style)


def render_verdict(report: Report, style: Style) -> str:
    """Return the verdict and its sentence on one line, for `-q`."""
    (text,) = (each for each in verdict_section(report) if isinstance(each, Text) and each.label_tone)
    simulated = "SIMULATED  " if report.simulated else ""
    return finish([f"{simulated}{text.label}{line(text.text)}"], style)


def _paused(report: Report) -> list[Block]:
    """Return that the run stood still, if it did: what was measured around a pause is worth a second look."""
    seconds = dict(report.durations_s).get(PAUSED, 0.0)
    text = (
        f"for {seconds:.0f} s the whole run stood still (a freezer, SIGSTOP, a VM that was moved); no limit counted it"
    )
    return [Text(text, 2, 4, label="Paused: ", most_lines=2)] if seconds else []


def _not_finished(report: Report) -> list[Block]:
    cut = unfinished(report)
    return (
        [Text("; ".join(f"{each.name} {phase_text(each)}" for each in cut), 2, 4, label="Not finished: ", most_lines=2)]
        if cut
        else []
    )


def _settings(report: Report) -> list[list[Block]]:
    """Return each setting with what happened without it, unless the headline has said all that is known of it."""
    advice = report.advice
    named = [(export(name, value), name, f"{name}={value}") for name, value in advice.env]
    named += [(f"unset {name}", name, f"unset {name}") for name in advice.unset]
    groups: list[list[Block]] = []
    for command, name, short_form in named:
        evidence = [text.splitlines()[0] for text in evidence_of(advice, name) if text]
        without = [text.removeprefix(WITHOUT) for text in evidence if text.startswith(WITHOUT)]
        why: list[Block] = [Text(without[0], 4, 6, label="without it: ", most_lines=2)] if without else []
        if why or short_form not in report.headline:
            groups.append([Text(command, 2), *why])
    return groups


def _problems(report: Report) -> list[list[Block]]:
    """Return what preflight itself could not do, unless the headline says it."""
    more = [each for each in report.problems if each not in report.headline]
    return [[Text(each, 0, 6, label="ERROR ", label_tone="yellow", most_lines=3)] for each in more]


def _next(report: Report, written: Written) -> str:
    """Return what to do next, with the command."""
    if isinstance(report.node_verdict, NodeVerdict):
        return FOR_THE_NODE[report.node_verdict].format(report=quoted_path(written.report))
    match report.verdict:
        case Verdict.READY:
            return "start the job; nothing has to be set"
        case Verdict.READY_WITH_ENV:
            return f"source {quoted_path(written.env)}, then start the job from that shell"
        case Verdict.NOT_READY if any(each.fix for each in deciding(report)):
            return AGAIN
        case Verdict.NOT_READY:
            return "`preflight check -v --keep` shows every trial, and keeps its logs for `preflight explain`"
        case Verdict.UNKNOWN:
            return TOLD if any(each.fix for each in deciding(report)) else UNSEEN


def _then(report: Report, written: Written, job: JobToStart) -> str:
    """Return what `preflight run` does next by itself; "" where the user has to do something."""
    name = line(job.name)
    match report.verdict:
        case Verdict.READY if name:
            return f"{name} starts now; nothing has to be set"
        case Verdict.READY_WITH_ENV if name:
            return f"{name} starts now, with the settings of {quoted_path(written.env)}"
        case Verdict.UNKNOWN if name and job.starts_if_unknown:
            return f"let {name} run; before the next run repair what kept preflight from looking"
    return ""


def _timeouts(report: Report) -> list[tuple[str, str]]:
    advice = report.advice
    if report.exit_code != 0 or isinstance(advice.pg_timeout_s, Gap) or isinstance(advice.init_timeout_s, Gap):
        return []
    both = f"{advice.pg_timeout_s} s for collectives, {advice.init_timeout_s} s for the start"
    return [("Timeout", f"{both}; `preflight timeout` knows saves and models")]


def _files(written: Written) -> tuple[str, str]:
    return "Written", ", ".join(filter(None, (written.env, written.report, *written.others))) or "nothing"
