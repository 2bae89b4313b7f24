"""The sections on the test runs, on the search for needed settings, and on comparisons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from preflight.model.collective import Collective
from preflight.model.facts import Gap, known_or
from preflight.model.nccl_variables import assignment
from preflight.model.report import Report
from preflight.model.trial import DEFAULT, FAILED, CollectiveResult, Outcome, TrialResult
from preflight.model.units import counted, percent_text, size_text, three_digits, time_text
from preflight.search.profiles import stage_limits
from preflight.search.settings.control import Proof, has_failed, intermittent, is_cure, proof_of, proof_text
from preflight.search.settings.duel import SMALLEST_THAT_DECIDES_BYTES, decision_results, is_sound
from preflight.search.settings.infiniband import GIVES_UP_S, losing_trial_s, lost_packets
from preflight.search.settings.minimise import CORNER
from preflight.search.settings.search import FEWEST, RECOMMENDED
from preflight.show.document import Block, Column, Heading, Items, Text, grouped, note, right, section, table
from preflight.show.text import UNKNOWN

SHOWN = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
FIXED_COLUMNS = 65  # what the other columns of the table take at most
HEADERS: tuple[str | Column, ...] = (
    Column("settings", limit=lambda width: max(9, width - FIXED_COLUMNS)),
    "outcome",
    right("size"),
    *(header for each in SHOWN for header in (right("GB/s"), right("time", over=each.value))),
    "data",
)
GIVEN_UP = re.compile(r"(?:is|are) (.{1,2000}?) needed\? ")  # the reason of a trial that does without settings
OTHER_STEPS = re.compile(rf"{CORNER}|{FEWEST}|only |hca .* for ")


def is_step(trial: TrialResult) -> bool:
    """Return whether a test run was only a step in the search for the needed settings."""
    return bool(GIVEN_UP.match(trial.reason) or OTHER_STEPS.match(trial.candidate))


def deciding_results(trial: TrialResult, report: Report) -> tuple[CollectiveResult, ...]:
    """Return the results of a test run at the message sizes that are used to compare configurations."""
    return decision_results(trial.results, cpu_path=report.backend == "gloo")


def trials_section(report: Report) -> list[Block]:
    """Return the table of test runs and the reasons for failures, or [] if no test ran."""
    if not report.trials:
        return []
    shown = _shown(report)
    blocks: list[Block] = [table(HEADERS, [row for trial in shown for row in _rows(trial, report)])]
    failed = [each for each in shown if each.problem and each.outcome is not Outcome.OK]
    names = grouped((each.problem, each.candidate) for each in failed)
    blocks += [Text(problem, 2, 4, names=tuple(candidates)) for problem, candidates in names.items()]
    if any(map(_has_small_sizes_only, shown)):
        blocks.append(note("GB/s is the busbw, which says little at these sizes."))
    verified = verified_calls_text(report.trials)
    blocks += [note(verified)] if verified else []
    blocks += [note(text) for text in _on_real_adapters(report)]
    return [Heading("Trials"), *blocks]


def _on_real_adapters(report: Report) -> Iterator[str]:
    """Yield a sentence that says how long this search would take with real adapters that lose packets.

    Yield nothing if the packets were lost on real adapters, or if no packet was lost.
    """
    lost = [trial for trial in report.trials if lost_packets(trial)]
    if not lost or min(trial.duration_s for trial in lost) >= GIVES_UP_S[0]:
        return
    set_here = {each.name for node in report.nodes for each in known_or(node.environment, ())}
    set_here |= {each.name for node in report.nodes for each in known_or(node.nccl_conf, ())}
    if set_here & {"NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"}:  # NCCL gives up when the site wants it to
        return
    each_s = losing_trial_s(stage_limits(report.backend, None, len(report.nodes)).first_s)
    again = [rerun for rerun in report.control.reruns if rerun.candidate == DEFAULT and rerun.outcome in FAILED]
    all_s, lost_s = (
        sum(trial.duration_s for trial in trials) + sum(rerun.duration_s for rerun in reruns)
        for trials, reruns in ((report.trials, report.control.reruns), (lost, again))
    )
    least_s, most_s = (all_s - lost_s + (len(lost) + len(again)) * seconds for seconds in each_s)
    yield (
        f"On real adapters, NCCL gives a lost packet up after {GIVES_UP_S[0]:.0f} to {GIVES_UP_S[1]:.0f} s. There, the "
        f"{counted(len(lost) + len(again), 'trial')} that lost packets would take {each_s[0]:.0f} to {each_s[1]:.0f} s "
        f"each, and all trials {least_s / 60:.0f} to {most_s / 60:.0f} min (computed)."
    )


def verified_calls_text(trials: Sequence[TrialResult]) -> str:
    """Return a sentence that says how many timed calls with default settings were verified.

    Return "" if this number is unknown.
    """
    results = next((trial.results for trial in trials if trial.candidate == DEFAULT), ())
    counts = [each.verified_calls for each in results if not isinstance(each.verified_calls, Gap)]
    if not counts:
        return ""
    timed = sum(each.repetitions for each in results)
    return (
        f"With default settings, every rank checked its data before and after timing, and in {sum(counts)} of {timed} "
        f"timed calls, chosen at random."
    )


def _shown(report: Report) -> tuple[TrialResult, ...]:
    """Return the trials that are not steps of a search, and the step that led to the recommended settings."""
    last = next((t for t in reversed(report.trials) if is_step(t) and is_sound(t) and t.env == report.advice.env), None)
    chosen = (replace(last, candidate=RECOMMENDED),) if last is not None else ()
    return (*(trial for trial in report.trials if not is_step(trial)), *chosen)


def _rows(trial: TrialResult, report: Report) -> Iterator[list[str]]:
    deciding = deciding_results(trial, report)
    chosen = [[each for each in deciding if each.collective is collective] for collective in SHOWN]
    start = [trial.candidate, trial.outcome.value]
    for cells in zip_longest(*chosen):
        there = [cell for cell in cells if cell is not None]
        data = "verified" if all(cell.verified for cell in there) else "WRONG"
        speeds = [word for cell in cells for word in _speed(cell)]
        yield [*start, size_text(there[0].size_bytes), *speeds, data]
        start = ["", ""]
    if not any(chosen):
        yield [*start, *[""] * (len(HEADERS) - 2)]


def _speed(cell: CollectiveResult | None) -> tuple[str, str]:
    if cell is None:
        return "", ""
    if isinstance(cell.shown_gb_s, Gap) or isinstance(cell.median_us, Gap):
        return UNKNOWN, UNKNOWN  # another process used the GPUs: the finding gpu-busy names it
    return three_digits(cell.shown_gb_s), time_text(cell.median_us)


def _has_small_sizes_only(trial: TrialResult) -> bool:
    return bool(trial.results) and all(each.size_bytes < SMALLEST_THAT_DECIDES_BYTES for each in trial.results)


def left_out_section(report: Report) -> list[Block]:
    """Return the configurations that were not tested, with the reasons."""
    return section("Settings not tried", Items([(each.candidate, each.reason) for each in report.left_out]))


def comparisons_section(report: Report) -> list[Block]:
    """Return the section that compares configurations with the default settings."""
    items = []
    for each in report.comparisons:
        bound = f"99% lower bound {percent_text(each.lower_bound)}, worst size {percent_text(each.worst_gain)}"
        verdict = "clearly faster" if each.wins else "not clearly faster"
        gain = f"{verdict}: {percent_text(each.mean_gain)} ({bound}, {each.rounds} rounds)"
        was_measured = each.mean_gain or each.lower_bound
        items.append((each.candidate, gain if was_measured else "not measured to the end"))
    return section("Compared with the default settings", Items(items))


def search_section(report: Report) -> list[Block]:
    """Return the section on which settings are needed, or [] if there was no search."""
    steps = [trial for trial in report.trials if is_step(trial)]
    items = [*_corners(steps), *_given_up(steps), *_others(steps), *_control(report)]
    return section("Which settings are needed", Items(items))


def _control(report: Report) -> Iterator[tuple[str, str]]:
    """Yield (title, text) for the A/B confirmation, or for how often the same settings worked and failed."""
    control, default = report.control, next((each for each in report.trials if each.candidate == DEFAULT), None)
    differing = () if is_cure(control, report.trials) else intermittent(report.trials, control.reruns)
    for tally in differing:
        yield "comes and goes", f"{tally.text()} with the same settings"
    if not differing and control.chosen and default is not None:
        is_open = proof_of(control, report.trials) is Proof.OPEN
        yield "control", "no time to repeat the default settings" if is_open else proof_text(control, default)


def _corners(steps: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    for trial in steps:
        if trial.candidate.startswith(CORNER):
            names = ", ".join(assignment(*each) for each in trial.env)
            yield "all workarounds", f"{_ending(trial)}: {names}"


def _given_up(steps: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    tried = [(match[1], trial) for trial in steps if (match := GIVEN_UP.match(trial.reason))]
    spared = [name for subject, trial in tried if is_sound(trial) for name in subject.split(", ")]
    if spared:
        yield (
            "not needed",
            f"{', '.join(spared)}: the collectives work without {'them' if spared[1:] else 'it'}",
        )
    yield from (("not tried", subject) for subject, trial in tried if trial.outcome is Outcome.SKIPPED)
    failures: dict[str, TrialResult] = {}
    for subject, trial in tried:  # several were given up at once: it is the one that the rest does not do without
        left = [name for name in subject.split(", ") if name not in spared]
        if has_failed(trial) and len(left) == 1:
            failures[left[0]] = trial
    yield from (("needed", f"{name}: without it, {_ending(trial)}") for name, trial in failures.items())


def _others(steps: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    for trial in steps:
        if not (GIVEN_UP.match(trial.reason) or trial.candidate.startswith(CORNER) or trial.candidate == FEWEST):
            yield trial.candidate, _ending(trial)


def _ending(trial: TrialResult) -> str:
    if is_sound(trial):
        return "works"
    return trial.problem or trial.outcome.value.replace("_", " ")
