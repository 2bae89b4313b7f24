"""Determine the result of a test run from how all ranks' child processes ended."""
# A comparison of two configurations gives samples called turns, in which both sides run the same collective one after
# the other.

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from preflight.model.codec import decode
from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.hca import PortErrors
from preflight.model.run_spec import Assignment, DuelTurn, Measure, RankSamples
from preflight.model.samples import aggregate, is_spread, slowest_rank_us, unpack_samples, wrong_elements
from preflight.model.transport import carriers_from
from preflight.model.trial import (
    FAILED,
    IN_START,
    NOT_REGISTERED,
    Candidate,
    CollectiveResult,
    Outcome,
    RankEnd,
    TrialResult,
    stage_words,
)
from preflight.model.units import ranks_text
from preflight.trial.rank.children import CONSEQUENCES
from preflight.trial.rank.packed_aggregate import aggregate_many

MANY = 256  # ranks; below, plain Python is as fast
RankAnswer = dict[str, Any]  # {"end", "events", "started_by"} as step.py publishes it
PORT_ERRORS = "port_errors"  # in the answers of a node's first rank, if its RDMA ports counted any: see port_errors.py

LOST_CONNECTION = re.compile(r"NCCL WARN (.{0,100}(?:[Cc]onnection (?:closed|reset) by (?:remote )?peer|Broken pipe))")

# How a rank's child ended, strongest cause first: a rank that died took the others' connections with it.
CAUSES = ("unkillable", "signal", "error", "fork", NOT_REGISTERED)


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """The outcome of a test run, its description and the ranks at fault."""

    outcome: Outcome
    problem: str
    culprits: tuple[int, ...]


def trial_result(
    candidate: Candidate, assignment: Assignment, answers: Sequence[RankAnswer], why: str, duration_s: float
) -> TrialResult:
    """Return the result of the test run of `candidate`, from the answers of all ranks.

    `why` is the reason why the test run was killed, or "".
    """
    # `assignment` is the assignment of rank 0.
    ends = _ends(answers)
    verdict = _verdict(ends, answers, why)
    result = TrialResult(
        candidate=candidate.name,
        reason=candidate.reason,
        env=candidate.env,
        trial_env=assignment.set_env,
        unset=assignment.unset_env,
        scope=candidate.scope,
        outcome=verdict.outcome,
        problem=verdict.problem,
        culprits=verdict.culprits,
        stages=tuple((end.rank, end.stage) for end in ends),
        ranks=ends,
        world_size_reported=tuple(_world_sizes(answers)),
        transport=carriers_from(text for answer in answers for text in _last(answer, "transport", [])),
        results=tuple(_results(answers)),
        started_by="exec" if any(answer["started_by"] == "exec" for answer in answers) else "fork",
        duration_s=duration_s,
        connect_us=slowest_connect_us(answers),
        nccl=next((version for answer in answers if (version := _last(answer, "nccl", ""))), ""),
        port_errors=tuple(
            decode(PortErrors, {"rank": rank, **port})
            for rank, answer in enumerate(answers)
            for port in answer.get(PORT_ERRORS, ())
        ),
    )
    if result.outcome not in FAILED:
        return result
    at = measures_that_failed(result, assignment.measures)
    return replace(result, failed_in=at[0].collective.value if at else IN_START)


def _results(answers: Sequence[RankAnswer]) -> Iterator[CollectiveResult]:
    if len(answers) < MANY:
        yield from (aggregate(*step) for step in steps_of(answers))
        return
    yield from (aggregate_many(*step) for step in _packed_steps(answers))


def steps_of(answers: Sequence[RankAnswer]) -> Iterator[tuple[Collective, int, list[RankSamples], float]]:
    """Yield (collective, size in bytes, samples of every rank, seconds of rank 0) for each complete step."""
    # A step is complete if all ranks in `answers` finished the step.
    for collective, size_bytes, packed, took_s in _packed_steps(answers):
        yield collective, size_bytes, [unpack_samples(each) for each in packed], took_s


def _packed_steps(answers: Sequence[RankAnswer]) -> Iterator[tuple[Collective, int, list[Any], float]]:
    for step in zip(*(_measured(answer) for answer in answers), strict=False):
        measured = step[0]["measured"]
        packed = [event["samples"] for event in step]
        yield Collective(measured["collective"]), measured["size_bytes"], packed, measured["took_s"]


def skipped_trial(candidate: Candidate, problem: str) -> TrialResult:
    """Return the result of a test run of `candidate` that was skipped because of `problem`."""
    return TrialResult(
        candidate=candidate.name, reason=candidate.reason, env=candidate.env, scope=candidate.scope, problem=problem,
        outcome=Outcome.SKIPPED, trial_env=(), unset=(), culprits=(), stages=(), ranks=(), world_size_reported=(),
        transport=(), results=(), started_by="fork", duration_s=0.0,
    )  # fmt: skip


def measures_that_failed(result: TrialResult, measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Return the measurement in `measures` at which a test run failed, in a tuple.

    The tuple is empty if the test run worked, or failed before the measurements.
    """
    if result.outcome not in FAILED:
        return ()
    wrong = [place for place, each in enumerate(result.results) if not each.verified]
    at = [int(stage.split()[1].partition("/")[0]) - 1 for _, stage in result.stages if stage.startswith("timed ")]
    places = wrong or at
    return (measures[min(places)],) if places and min(places) < len(measures) else ()


def duel_turns(pair: int, default: Sequence[RankAnswer], candidate: Sequence[RankAnswer]) -> tuple[DuelTurn, ...]:
    """Return one sample (a "turn") for each step that both configurations have finished.

    `default` and `candidate` have the ranks' answers for the two configurations. `pair` is the number of the pair of
    process groups in which the configurations ran.
    """
    turns_of: dict[tuple[object, int], int] = {}
    turns = []
    for (collective, size_bytes, ours, _), (_, _, theirs, _) in zip(
        steps_of(default), steps_of(candidate), strict=False
    ):
        turn = turns_of[collective, size_bytes] = turns_of.get((collective, size_bytes), -1) + 1
        turns.append(
            DuelTurn(
                pair=pair,
                turn=turn,
                collective=collective,
                size_bytes=size_bytes,
                default_median_us=statistics.median(slowest_rank_us(ours)),
                candidate_median_us=statistics.median(slowest_rank_us(theirs)),
                verified=not any(rank.wrong_elements for rank in (*ours, *theirs)),
            )
        )
    return tuple(turns)


def classify(answers: Sequence[RankAnswer], why: str) -> TrialVerdict:
    """Return the verdict on a test run: the outcome, a description, and the ranks at fault.

    `why` is the reason why the test run was killed, or "".
    """
    # Ranks that died are at fault first, then ranks with an error of their own, then stuck ranks, and last ranks that
    # waited or lost a peer.
    return _verdict(_ends(answers), answers, why)


def _verdict(ends: Sequence[RankEnd], answers: Sequence[RankAnswer], why: str) -> TrialVerdict:
    for cause in CAUSES:
        culprits = tuple(end.rank for end in ends if end.ended == cause)
        if culprits:
            return _failed(ends, culprits)
    if why == "deadline":
        data = _data_verdict(answers)  # data that were wrong count as wrong, however little time there was
        if data.outcome is Outcome.WRONG_DATA:
            return data
        return TrialVerdict(Outcome.SKIPPED, f"the deadline came while {_where(ends)}", ())
    if why == "hang":
        return _hung(ends)
    return _data_verdict(answers)


def _failed(ends: Sequence[RankEnd], ranks: tuple[int, ...]) -> TrialVerdict:
    end = next(each for each in ends if each.rank == ranks[0])
    outcome = Outcome.CRASH if end.ended in ("signal", "unkillable") or _is_past_init(end) else Outcome.INIT_ERROR
    return TrialVerdict(
        outcome, f"{_ranks(ranks)} failed at {stage_words(end.stage)}: {_first_line(end.detail)}", ranks
    )


def _first_line(detail: str) -> str:
    """Return the rank's own message, which is the first line of `detail`.

    The other lines of `detail` are from the rank's NCCL log.
    """
    return detail.partition("\n")[0]


def _is_past_init(end: RankEnd) -> bool:
    return end.stage.split()[0] in ("first", "timed", "verified")


def _hung(ends: Sequence[RankEnd]) -> TrialVerdict:
    """Return the verdict on a hang.

    If some ranks stayed silent and others timed out, the silent ranks are at fault.
    """
    stopped = tuple(end.rank for end in ends if end.ended == "stopped")
    if stopped:
        where = _stage_of(ends, stopped[0])
        return TrialVerdict(
            Outcome.HANG, f"{_ranks(stopped)} stopped (process state T) at {where}; the others waited", stopped
        )
    waited = tuple(end.rank for end in ends if end.ended in CONSEQUENCES)
    # A rank that entered its stage late had no time to raise; it is named only if no rank was silent for long.
    silent = tuple(end.rank for end in ends if end.ended == "stuck")
    silent = silent or tuple(end.rank for end in ends if end.ended == "killed")
    if waited and silent and not could_not_connect(ends):
        return TrialVerdict(
            Outcome.HANG,
            f"{_ranks(silent)} hung at {_stage_of(ends, silent[0])}; {_ranks(waited)} timed out waiting",
            silent,
        )
    how = "timed out waiting" if waited else "hung"
    if len(waited) in (0, len(ends)):
        stages = {end.stage for end in ends}
        where = f"at {stage_words(stages.pop())}" if len(stages) == 1 else f": {_where(ends)}"
        who = "both ranks" if len(ends) == 2 else f"all {len(ends)} ranks"
        how = f"{how} {where}".replace(" :", ":")
    else:
        who, how = _ranks(waited), f"{how}: {_where(ends)}"
    why = f"no single rank is identifiable as the cause{_lost_connections(ends)}"
    return TrialVerdict(Outcome.HANG, f"{who} {how}; {why}", ())


def _lost_connections(ends: Sequence[RankEnd]) -> str:
    """Return a clause on the connections that broke according to NCCL's own logs, or "".

    Both ends of a connection report the break, and neither end is the cause. NCCL 2.26 and 2.27 raise no error for a
    broken connection, so that the ranks wait (facts 4.1).
    """
    said = {end.rank: match[1] for end in ends for line in end.log if (match := LOST_CONNECTION.search(line.text))}
    if not said:
        return ""
    return f": {_ranks(tuple(said))} lost connections to others ({next(iter(said.values()))})"


def could_not_connect(ends: Sequence[RankEnd]) -> bool:
    """Return whether a rank could not connect to its peer, according to the errors in `ends`.

    With gloo, the peer then waits silently, but is not stuck.
    """
    signs = ("connection refused", "timed out connecting", "no route to host", "network is unreachable")
    return any(end.ended in CONSEQUENCES and any(sign in end.detail.lower() for sign in signs) for end in ends)


def _data_verdict(answers: Sequence[RankAnswer]) -> TrialVerdict:
    first = tuple(rank for rank, answer in enumerate(answers) if _last(answer, "first_wrong", 0))
    if first:
        return TrialVerdict(Outcome.WRONG_DATA, f"{_ranks(first)} got a wrong sum in the first collective", first)
    for step, by_rank in enumerate(zip(*(_measured(answer) for answer in answers), strict=False)):
        counts = [wrong_elements(event["samples"]) for event in by_rank]
        own = [0 if is_spread(event["samples"]) else each for event, each in zip(by_rank, counts, strict=True)]
        counts = own if any(own) else counts
        if any(counts):
            wrong = tuple(event["samples"]["rank"] for event, each in zip(by_rank, counts, strict=True) if each)
            count, measured = sum(counts), by_rank[0]["measured"]
            elements = "1 wrong element" if count == 1 else f"{count} wrong elements"
            of = f"{measured['collective']} of {measured['size_bytes']} bytes"
            where = f"{of} (step {step + 1}/{len(_measured(answers[0]))})"
            return TrialVerdict(Outcome.WRONG_DATA, f"{_ranks(wrong)} got {elements} in {where}", wrong)
    return TrialVerdict(Outcome.OK, "", ())


def _ends(answers: Sequence[RankAnswer]) -> tuple[RankEnd, ...]:
    return tuple(decode(RankEnd, answer["end"]) for answer in answers)


def _measured(answer: RankAnswer) -> list[dict[str, Any]]:
    return [event for event in answer["events"] if "measured" in event]


def _last(answer: RankAnswer, key: str, default: Any) -> Any:
    return next((event[key] for event in reversed(answer["events"]) if key in event), default)


def _world_sizes(answers: Sequence[RankAnswer]) -> Iterator[tuple[int, int]]:
    """Yield (rank, world size) for each rank that joined a group."""
    for rank, answer in enumerate(answers):
        size = _last(answer, "world_size", None)
        if size is not None:
            yield rank, size


def slowest_connect_us(answers: Sequence[RankAnswer]) -> float | Gap:
    """Return the longest time in microseconds that a rank took to connect, or a Gap.

    To connect, a rank creates the group and runs the first collective of the group.
    """
    times_us = [_last(answer, "connect_us", None) for answer in answers]
    if not times_us or None in times_us:
        return Gap("not every rank came through its first collective")
    return float(max(times_us))


def _where(ends: Sequence[RankEnd]) -> str:
    stages = sorted({end.stage for end in ends})
    at = {stage: _ranks(tuple(end.rank for end in ends if end.stage == stage)) for stage in stages}
    return ", ".join(f"{ranks} at {stage_words(stage)}" for stage, ranks in at.items())


def _stage_of(ends: Sequence[RankEnd], rank: int) -> str:
    return stage_words(next(end.stage for end in ends if end.rank == rank))


def _ranks(ranks: tuple[int, ...]) -> str:
    """Return a text such as `rank 3` or `ranks 0-2, 5`. A long list is cut."""
    text = ranks_text(ranks)
    return text if len(text) <= 80 else f"{text[:80].rpartition(',')[0]}, ..."
