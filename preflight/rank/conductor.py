"""The conductor: rank 0's supervisor decides the next step, collects every rank's outcome and tells the launcher."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any

from preflight.errors import HarnessError
from preflight.model.codec import encode
from preflight.model.device_job import Round
from preflight.model.run import Assignment, Duel, DuelTurn, RunSpec
from preflight.model.trial import DEFAULT, Candidate, Outcome, TrialResult, again_trial_name, burn_trial_name
from preflight.plan import search
from preflight.plan.environment import ALGORITHMS, inherited_settings
from preflight.rank.answers import collect
from preflight.rank.children import Child
from preflight.rank.device_step import Tested, conduct_rounds
from preflight.rank.duel import duel_turns
from preflight.rank.gpu_release import GpuKeeper
from preflight.rank.group_step import GroupConductor
from preflight.rank.outcome import RankAnswer, classify, could_not_connect, trial_result
from preflight.rank.rail_step import try_rails
from preflight.rank.store import serve_store
from preflight.rank.supervisor import ANSWER_S, Rank, Step, assign, candidate_named, take_step

LEAST_TIME_FOR_A_TRIAL_S = 1.0


def conduct(rank: Rank) -> None:
    """Try what the plan says until it says stop or time is up; every result goes to the launcher at once."""
    Conductor(rank).run()


class Conductor:
    """State of the search: what was tried, what it took, and the number of the next step."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._spec: RunSpec = rank.spec
        self._events = os.open(os.environ["PREFLIGHT_EVENTS"], os.O_WRONLY)
        self._index = 0
        self._by_exec = False
        self._told_stage = ""
        self._known = search.Known()
        self._longest_s = LEAST_TIME_FOR_A_TRIAL_S
        self._keeper: GpuKeeper | None = None

    def run(self) -> None:
        for rank in range(self._spec.local_size):  # those of other nodes were ready before the nodes met
            if not self._rank.channel.wait(f"ready/{rank}", self._spec.deadline_monotonic_s):
                raise HarnessError(f"the supervisor of rank {rank} had not imported torch when the deadline came")
        self._tell({"event": "ready"})
        self._keeper = GpuKeeper(self._spec.gpu_uuids) if self._spec.gpu_uuids else None
        self._test_devices()
        if self._spec.nodes > 1:
            self._rank.channel.put("store/0", {"port": serve_store(self._spec.store_host)})
        while True:
            match self._next():
                case search.Try(candidate=candidate, is_for_cure=is_for_cure):
                    self._try(candidate, is_for_cure)
                case search.Compare(candidate=name, pairs=pairs):
                    self._compare(candidate_named(self._spec, name), pairs)
                case search.Again(turn=turn):
                    self._repeat(turn)
                case search.Stop():
                    break
        self._try_rails()
        self._find_node_at_fault()
        self._burn()
        self._rank.channel.put(f"step/{self._index}", {"kind": "stop"})
        if self._keeper:
            self._keeper.close()
        self._tell({"event": "alone" if self._spec.goes_on else "done"})

    def _next(self) -> search.Next:
        spec = self._spec
        inherited = inherited_settings(spec.inherited, spec.dialect)
        last = ALGORITHMS if spec.dialect == "nccl" else None
        return search.next_step(
            spec.candidates, spec.screen_all, spec.duel_measures, self._known, spec.settings, inherited, last,
            spec.baseline,
        )  # fmt: skip

    def _test_devices(self) -> None:
        """Test the GPUs before NCCL gets them: what it does is read in the light of whether copies arrive."""
        devices, now = self._spec.devices, time.monotonic()
        until = now + devices.share_of_time * (self._spec.deadline_monotonic_s - now)
        self._take_rounds(devices.rounds, until, repetition=0)

    def _burn(self) -> None:
        """Repeat the tests of the GPUs and the default's trial under load for as long as the plan says."""
        devices, turn = self._spec.devices, 0
        until = min(self._spec.deadline_monotonic_s, time.monotonic() + devices.burn_s)
        while devices.burn_rounds and time.monotonic() < until and not self._known.unkillable:
            turn += 1
            self._take_rounds(devices.burn_rounds, until, turn)
            if self._default_works and time.monotonic() < until and not self._why_no_time():
                self._try_again(burn_trial_name(turn), "the default again, under load")

    def _repeat(self, turn: int) -> None:
        """Repeat a default that looks slow beside the baseline; without time for it, say so in its place."""
        name, reason = again_trial_name(turn), "the default again: it looked slow beside the baseline"
        skip = self._why_no_time()
        if skip:
            result = _skipped(replace(candidate_named(self._spec, DEFAULT), name=name, reason=reason), skip)
            self._tell({"event": "trial", "result": encode(result)})
        else:
            result = self._try_again(name, reason)
        self._known = replace(self._known, repeats=(*self._known.repeats, result))

    def _try_rails(self) -> None:
        """Try the RDMA ports one at a time, where the default works: elsewhere they would only tell the same."""
        if self._default_works and not self._known.unkillable:
            for rail in try_rails(self._spec.rails, self._try_apart, self._why_no_time):
                self._tell({"event": "rail", "rail": encode(rail)})

    def _try_apart(self, candidate: Candidate) -> TrialResult:
        """Return the result of a trial that is no part of the search."""
        started_at = time.monotonic()
        assignment, answers, why = self._take(candidate.name, (candidate,), is_for_cure=True)
        took_s = time.monotonic() - started_at
        return self._after_release(trial_result(candidate, assignment, [answer[0] for answer in answers], why, took_s))

    @property
    def _default_works(self) -> bool:
        return any(r.candidate == DEFAULT and r.outcome is Outcome.OK for r in self._known.results)

    def _find_node_at_fault(self) -> None:
        """Try the nodes in small groups where they fail together, or one slows all down."""
        if not self._known.unkillable:
            groups = GroupConductor(self._rank, self._tell, self._index, self._by_exec, self._tell_stage)
            groups.run(self._known.results)
            self._index = groups.index

    def _try_again(self, name: str, reason: str) -> TrialResult:
        """Repeat the default's trial; it is told under a name of its own and teaches the search nothing."""
        default = candidate_named(self._spec, DEFAULT)
        started_at = time.monotonic()
        assignment, answers, why = self._take(name, (default,))
        took_s = time.monotonic() - started_at
        named = replace(default, name=name, reason=reason)
        result = trial_result(named, assignment, [answer[0] for answer in answers], why, took_s)
        self._tell({"event": "trial", "result": encode(result)})
        return result

    def _take_rounds(self, rounds: tuple[Round, ...], until: float, repetition: int) -> None:
        gathered = Tested(self._index, self._by_exec)
        conduct_rounds(self._rank, self._tell, gathered, rounds, until, repetition)
        self._index, self._by_exec = gathered.index, gathered.by_exec
        broken = (*self._known.broken_pairs, *gathered.broken_pairs(self._spec.devices.gpus))
        self._known = replace(
            self._known,
            broken_pairs=tuple(sorted(set(broken))),
            unkillable=self._known.unkillable or gathered.unkillable,
        )

    def _try(self, candidate: Candidate, is_for_cure: bool, is_second: bool = False) -> None:
        started_at = time.monotonic()
        skip = self._why_no_time()
        if skip:
            result = _skipped(candidate, skip)
        else:
            assignment, answers, why = self._take(candidate.name, (candidate,), is_for_cure)
            if any(answer[0]["end"]["ended"] == "fork" for answer in answers) and not self._by_exec:
                self._by_exec = True  # CUDA was touched before the fork, or does not survive it
                assignment, answers, why = self._take(candidate.name, (candidate,), is_for_cure)
            took_s = time.monotonic() - started_at
            result = trial_result(candidate, assignment, [answer[0] for answer in answers], why, took_s)
            if not is_second and self._may_be_a_stranger(result) and not self._why_no_time():
                again = replace(candidate, reason=f"{candidate.reason} (second attempt; the first: {result.problem})")
                self._try(again, is_for_cure, is_second=True)
                return
            result = self._after_release(result)
            if result.outcome is Outcome.OK:  # what fails takes its stage's limit, and ends with the deadline
                self._longest_s = max(self._longest_s, took_s)
            result = self._note_no_effect(result)
            if candidate == ALGORITHMS:
                result = replace(result, env=(), results=())
            if any(event.get("simulated") for answer in answers for event in answer[0]["events"]):
                self._tell({"event": "simulated"})
        self._known = replace(self._known, results=(*self._known.results, result))
        self._tell({"event": "trial", "result": encode(result)})

    def _after_release(self, result: TrialResult) -> TrialResult:
        """Wait until what a failed trial had on the GPUs is given back: the next one would find them full."""
        held = self._keeper.wait_until_released() if self._keeper and result.outcome is not Outcome.OK else ""
        return replace(result, problem=f"{result.problem}; {held}") if held else result

    def _may_be_a_stranger(self, result: TrialResult) -> bool:
        """Tell whether a gloo group that never met is worth one more attempt.

        Gloo's ports authenticate nobody: whoever connects in the milliseconds before the peer does takes its place.
        """
        unmet = result.outcome is Outcome.HANG and not (result.culprits or result.results)
        unmet = unmet and not could_not_connect(result.ranks)
        return self._spec.backend == "gloo" and unmet

    def _note_no_effect(self, result: TrialResult) -> TrialResult:
        """Mark a candidate that chose nothing else than the default: it proves nothing and is never recommended."""
        default = next((r for r in self._known.results if r.candidate == DEFAULT and r.outcome is Outcome.OK), None)
        same = default is not None and result.env and result.transport and result.transport == default.transport
        if default is None or not same or result.outcome is not Outcome.OK:
            return result
        seen = ", ".join(result.transport)
        return replace(result, outcome=Outcome.NO_EFFECT, problem=f"went over {seen}, as the default did")

    def _compare(self, candidate: Candidate, pairs: int) -> None:
        """Measure a candidate against the default; a single pair only chooses who is compared, and is not told."""
        name, default = candidate.name, candidate_named(self._spec, DEFAULT)
        turns: list[DuelTurn] = []
        problem = ""
        for pair in range(pairs):
            problem = self._why_no_time()
            if problem:
                break
            _, answers, why = self._take(
                f"{name} against the default, pair {pair + 1} of {pairs}", (default, candidate)
            )
            sides = [[answer[side] for answer in answers] for side in (0, 1)]
            verdicts = [classify(side, why) for side in sides]
            problem = next((verdict.problem for verdict in verdicts if verdict.outcome is not Outcome.OK), "")
            if problem:
                break
            turns.extend(duel_turns(pair, *sides))
        duel = Duel(name, tuple(turns), problem)
        if pairs == 1:
            self._known = replace(self._known, heated=(*self._known.heated, duel))
        else:
            self._known = replace(self._known, compared=(*self._known.compared, duel))
            self._tell({"event": "duel", "duel": encode(duel)})

    def _take(
        self, label: str, candidates: tuple[Candidate, ...], is_for_cure: bool = False
    ) -> tuple[Assignment, list[list[RankAnswer]], str]:
        """Have all ranks take a step; return rank 0's assignment, all answers per side, and why it was killed or ""."""
        step = Step(self._index, label, candidates, self._by_exec, is_for_cure)
        self._index += 1
        channel = self._rank.channel
        channel.put(f"step/{step.index}", {"kind": "run"} | encode(step))
        self._tell({"event": "step", "label": label})
        take_step(self._rank, step, self._tell_stage)
        spec = self._spec
        answers = collect(channel, step.index, spec.world_size, spec.node_sizes, lambda: time.monotonic() + ANSWER_S)
        if any(child["end"]["ended"] == "unkillable" for answer in answers for child in answer):
            self._known = replace(self._known, unkillable=True)
        kill_key = f"kill/{step.index}"
        return assign(self._rank, step, 0), answers, str(channel.get(kill_key)["why"]) if channel.has(kill_key) else ""

    def _why_no_time(self) -> str:
        left_s = self._spec.deadline_monotonic_s - time.monotonic()
        return "" if left_s > self._longest_s else f"{max(0.0, left_s):.0f} s were left before the deadline"

    def _tell_stage(self, child: Child) -> None:
        stage = f"{child.assignment.label}: {child.stage}"
        if stage != self._told_stage:
            self._told_stage = stage
            self._tell({"event": "stage", "stage": child.stage})

    def _tell(self, event: dict[str, Any]) -> None:
        data = memoryview(json.dumps(event).encode() + b"\n")
        while data:
            data = data[os.write(self._events, data) :]


def _skipped(candidate: Candidate, problem: str) -> TrialResult:
    return TrialResult(
        candidate=candidate.name, reason=candidate.reason, env=candidate.env, scope=candidate.scope, problem=problem,
        outcome=Outcome.SKIPPED, trial_env=(), unset=(), culprits=(), stages=(), ranks=(), world_size_seen=(),
        transport=(), results=(), started_by="fork", duration_s=0.0,
    )  # fmt: skip
