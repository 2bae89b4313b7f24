"""The coordinator (conductor), which is rank 0's agent. It chooses each step, and collects and reports the results."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace

from preflight.errors import HarnessError
from preflight.model.codec import encode
from preflight.model.nccl_diagnostics import may_run
from preflight.model.run_spec import Assignment, Duel, DuelTurn, Measure
from preflight.model.transport import texts_of
from preflight.model.trial import AGAIN, DEFAULT, FAILED, UNDER_LOAD, Candidate, Control, Outcome, Rerun, TrialResult
from preflight.search.settings import search, steps
from preflight.search.settings.environment import ALGORITHMS, DIAGNOSIS, inherited_settings
from preflight.trial.rank.diagnosis_log import read_diagnosis
from preflight.trial.rank.gpu_release import GpuKeeper
from preflight.trial.rank.gpu_test_step import GpuTestRounds
from preflight.trial.rank.group_step import GroupConductor
from preflight.trial.rank.outcome import (
    RankAnswer,
    classify,
    could_not_connect,
    duel_turns,
    measures_that_failed,
    skipped_trial,
    trial_result,
)  # fmt: skip
from preflight.trial.rank.rail_trials import rail_measures, try_rails
from preflight.trial.rank.step import PAUSED_S, FirstLimit, Rank, Step, Steps, assign, take_step
from preflight.trial.rank.store import serve_store

PAUSES_FORGIVEN = 2  # steps in which everything stood still say nothing: each is taken again, so often
LEAST_TIME_FOR_A_TRIAL_S = 1.0


def conduct(rank: Rank) -> None:
    """Run the steps of the plan as rank 0's agent, until the plan or the time ends.

    Each result is reported at once.
    """
    Conductor(rank).run()


class Conductor:
    """The coordinator's state: the settings tried so far, and the time that the runs took."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._spec = rank.spec
        self._plan = rank.spec.trials
        self._steps = Steps(rank)
        self._gpu_tests = GpuTestRounds(self._steps)
        self._known = steps.Known(seed=random.SystemRandom().getrandbits(32), node_sizes=rank.spec.place.node_sizes)
        self._first_limit = FirstLimit(rank.spec.trials.limits, rank.spec.place.nodes)
        self._longest_s = LEAST_TIME_FOR_A_TRIAL_S
        self._keeper: GpuKeeper | None = None

    def run(self) -> None:
        spec = self._spec
        for rank in range(spec.place.local_size):  # ranks of other nodes were ready before the nodes joined
            if not self._rank.channel.wait(f"ready/{rank}", spec.deadline_monotonic_s):
                raise HarnessError(f"preflight's process of rank {rank} had not imported torch when the deadline came")
        self._steps.report({"event": "ready"})
        self._keeper = GpuKeeper(spec.gpus.uuids) if spec.gpus.uuids else None
        self._gpu_tests.take_first()
        self._free_gpus()
        if spec.place.nodes > 1:
            self._rank.channel.put("store/0", {"port": serve_store(spec.place.store_host)})
        while True:
            match self._next():
                case steps.Try() as step:
                    self._try(step.candidate, self._measures(step))
                case steps.Repeat() as step:
                    self._rerun(step)
                case steps.Compare(candidate=name, pairs=pairs):
                    self._compare(self._plan.named(name), pairs)
                case steps.Again() as step:
                    self._repeat(step)
                case steps.Stop(chosen=chosen):
                    self._report_control(chosen)
                    break
        self._try_rails()
        self._ask_nccl()
        if not self._known.unkillable:  # who is at fault, where nodes fail together or one slows all down
            GroupConductor(self._steps).run(self._known.results)
        self._burn()
        self._steps.stop()
        if self._keeper:
            self._keeper.close()
        self._steps.report({"event": "solo" if spec.goes_on else "done"})

    def _next(self) -> steps.Next:
        plan, dialect = self._plan, self._spec.backend.dialect
        known = replace(self._known, left_s=self._spec.deadline_monotonic_s - time.monotonic())
        inherited = inherited_settings(self._spec.inherited, dialect)
        last = ALGORITHMS if dialect == "nccl" else None
        return search.next_step(
            plan.candidates, plan.screen_all, plan.duel_measures, known, plan.settings, inherited, last,
            plan.baseline, plan.cure_measures, plan.control_runs, plan.on_gpus,
        )  # fmt: skip

    def _measures(self, step: steps.Try) -> tuple[Measure, ...]:
        plan = self._plan
        if step.to_failure:
            return search.to_failure(plan.cure_measures, self._known.failed_at)
        return plan.cure_measures if step.is_for_cure else plan.measures

    def _burn(self) -> None:
        """Repeat the GPU tests for the planned time, which puts the GPUs under load.

        After each repetition, repeat the trial with the default settings, if these settings work and time is left.
        """
        devices, turn = self._spec.devices, 0
        until = min(self._spec.deadline_monotonic_s, time.monotonic() + devices.burn_s)
        while devices.burn_rounds and time.monotonic() < until and not self._known.unkillable:
            turn += 1
            self._gpu_tests.take(devices.burn_rounds, until, turn)
            is_tried = self._default_works and time.monotonic() < until and not self._why_no_time()
            if is_tried or self._gpu_tests.unkillable:
                self._free_gpus()
            if is_tried:
                self._try_again(f"{UNDER_LOAD}{turn}", "the default again, under load")
        self._free_gpus()

    def _free_gpus(self) -> None:
        """End the processes of the GPU tests.

        A trial then finds GPUs without any context, as a job does.
        """
        were_there = self._gpu_tests.end_processes()
        self._known = replace(
            self._known,
            broken_pairs=tuple(sorted(self._gpu_tests.broken_pairs)),
            unkillable=self._known.unkillable or self._gpu_tests.unkillable,
        )
        if were_there and self._keeper and not self._known.unkillable:
            self._keeper.wait_until_released()

    def _repeat(self, step: steps.Again) -> None:
        """Repeat the trial with the default settings for the reason in `step`.

        If there is no time for the repetition, report a skipped trial.
        """
        name, reason = f"{AGAIN}{step.turn}", f"the default again: {step.why}"
        skip = self._why_no_time()
        if skip:
            result = skipped_trial(replace(self._plan.named(DEFAULT), name=name, reason=reason), skip)
            self._steps.report({"event": "trial", "result": encode(result)})
        else:
            result = self._try_again(name, reason)
        self._known = replace(self._known, repeats=(*self._known.repeats, result))

    def _try_rails(self) -> None:
        """Test the RDMA ports one at a time.

        Do nothing if the default settings fail, because every port's test would then fail too.
        """
        if self._default_works and not self._known.unkillable:
            for rail in try_rails(self._spec.rails, self._try_rail, self._why_no_more):
                self._steps.report({"event": "rail", "rail": encode(rail)})

    def _try_rail(self, candidate: Candidate) -> TrialResult:
        return self._after_release(self._try_apart(candidate, candidate, rail_measures(self._plan.cure_measures)))

    def _ask_nccl(self) -> None:
        """Have NCCL run its own diagnostics on its paths, as a second opinion.

        The diagnostics need NCCL 2.31 or later, and run only on a single node.
        """
        results, place = self._known.results, self._spec.place
        nccl = next((each.nccl for each in results if each.nccl), "")
        is_due = self._plan.screen_all or any(each.outcome in FAILED for each in results)
        if not is_due or place.nodes > 1 or place.world_size < 2 or not may_run(nccl) or self._why_no_more():
            return
        started_at = time.monotonic()
        assignment, answers, why = self._take(DIAGNOSIS.name, (DIAGNOSIS,))
        took_s = time.monotonic() - started_at
        result = self._after_release(
            trial_result(DIAGNOSIS, assignment, [answer[0] for answer in answers], why, took_s)
        )
        if self._known.unkillable:  # the trial took the GPU: that is the answer
            self._steps.report({"event": "trial", "result": encode(result)})
        log = os.path.join(self._spec.run_dir, "logs", f"{assignment.label}.rank0.log")
        found = read_diagnosis(log, nccl, result, took_s)
        self._steps.report({"event": "diagnosed", "diagnosis": encode(found)})

    def _why_no_more(self) -> str:
        return "a process can't be killed and keeps its GPU" if self._known.unkillable else self._why_no_time()

    def _rerun(self, step: steps.Repeat) -> None:
        """Run the configuration in `step` again in new processes.

        The rerun ends with the measurement at which earlier trials failed. The reruns are reported apart from the
        trials.
        """
        candidate, skip = step.candidate, self._why_no_time()
        if skip:
            result = skipped_trial(candidate, skip)
        else:
            measures = search.to_failure(self._plan.cure_measures or self._plan.measures, self._known.failed_at)
            result = self._after_release(self._try_apart(candidate, candidate, measures))
        self._note_rerun(step.ended(result))

    def _note_rerun(self, rerun: Rerun) -> None:
        self._known = replace(self._known, reruns=(*self._known.reruns, rerun))
        self._report_control(None)

    def _report_control(self, chosen: Candidate | None) -> None:
        """Report the reruns so far, with the name of the workaround under test (`chosen`).

        If the default settings fail, the reruns are the A/B confirmation of the last workaround.
        """
        known = self._known
        under_control = {each.control for each in known.reruns[-1:] if not self._default_works}
        named = [(each.candidate, each.env) for each in known.results if each.candidate in under_control]
        name, env = (chosen.name, chosen.env) if chosen else named[-1] if named else ("", ())
        control = Control(known.seed, self._plan.control_runs, name, env, known.reruns)
        self._steps.report({"event": "control", "control": encode(control)})

    def _try_apart(self, candidate: Candidate, named: Candidate, measures: tuple[Measure, ...]) -> TrialResult:
        """Run a trial that is not part of the search and does not influence it, and return its result."""
        started_at = time.monotonic()
        assignment, answers, why = self._take(named.name, (candidate,), measures)
        took_s = time.monotonic() - started_at
        return trial_result(named, assignment, [answer[0] for answer in answers], why, took_s)

    @property
    def _default_works(self) -> bool:
        return any(r.candidate == DEFAULT and r.outcome is Outcome.OK for r in self._known.results)

    def _try_again(self, name: str, reason: str) -> TrialResult:
        """Repeat the trial with the default settings, and report it under another name."""
        default = self._plan.named(DEFAULT)
        result = self._try_apart(default, replace(default, name=name, reason=reason), self._plan.measures)
        self._steps.report({"event": "trial", "result": encode(result)})
        return result

    def _try(self, candidate: Candidate, measures: tuple[Measure, ...], is_second: bool = False) -> None:
        started_at = time.monotonic()
        skip = self._why_no_time()
        if skip:
            result = skipped_trial(candidate, skip)
        else:
            assignment, answers, why = self._take(candidate.name, (candidate,), measures)
            if any(answer[0]["end"]["ended"] == "fork" for answer in answers) and not self._steps.by_exec:
                self._steps.by_exec = True  # CUDA was touched before the fork, or does not survive it
                assignment, answers, why = self._take(candidate.name, (candidate,), measures)
            took_s = time.monotonic() - started_at
            result = trial_result(candidate, assignment, [answer[0] for answer in answers], why, took_s)
            if not is_second and self._may_have_met_another_program(result) and not self._why_no_time():
                again = replace(candidate, reason=f"{candidate.reason} (second attempt; the first: {result.problem})")
                self._try(again, measures, is_second=True)
                return
            result = self._after_release(result)
            self._first_limit.note(result, [answer[0] for answer in answers])
            failed_at = (*self._known.failed_at, *measures_that_failed(result, measures))
            self._known = replace(self._known, failed_at=tuple(dict.fromkeys(failed_at)))
            if result.outcome is Outcome.OK:  # what fails takes its stage's limit, and ends with the deadline
                self._longest_s = max(self._longest_s, took_s)
            result = self._note_no_effect(result)
            if candidate == ALGORITHMS:
                self._note_rerun(steps.Repeat(self._plan.named(DEFAULT)).ended(result, 0.0))
                result = replace(result, env=(), results=())
            if any(event.get("simulated") for answer in answers for event in answer[0]["events"]):
                self._steps.report({"event": "simulated"})
        self._known = replace(self._known, results=(*self._known.results, result))
        self._steps.report({"event": "trial", "result": encode(result)})

    def _after_release(self, result: TrialResult) -> TrialResult:
        """If a trial failed, wait until its GPU memory is free, and return the result of the trial.

        Memory that stays in use is added to the problem in the result.
        """
        held = self._keeper.wait_until_released() if self._keeper and result.outcome is not Outcome.OK else ""
        return replace(result, problem=f"{result.problem}; {held}") if held else result

    def _may_have_met_another_program(self, result: TrialResult) -> bool:
        """Return whether a gloo group that never formed is worth one more attempt.

        Gloo's ports authenticate no caller. A program that connects milliseconds before the peer takes the peer's
        place.
        """
        unmet = result.outcome is Outcome.HANG and not (result.culprits or result.results)
        unmet = unmet and not could_not_connect(result.ranks)
        return self._spec.backend.name == "gloo" and unmet

    def _note_no_effect(self, result: TrialResult) -> TrialResult:
        """Return `result`, with the outcome NO_EFFECT if the trial used the transport of the default settings.

        Such a trial proves nothing, and its configuration is never recommended.
        """
        default = next((r for r in self._known.results if r.candidate == DEFAULT and r.outcome is Outcome.OK), None)
        same = default is not None and result.env and result.transport and result.transport == default.transport
        if default is None or not same or result.outcome is not Outcome.OK:
            return result
        carriers = ", ".join(texts_of(result.transport))
        return replace(result, outcome=Outcome.NO_EFFECT, problem=f"went over {carriers}, as the default did")

    def _compare(self, candidate: Candidate, pairs: int) -> None:
        """Compare the configuration `candidate` with the default settings in `pairs` pairs of process groups.

        If `pairs` is 1, the comparison is a screening and is not reported.
        """
        name, default = candidate.name, self._plan.named(DEFAULT)
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
                for tried, end in zip((default, candidate), verdicts, strict=True):
                    made = skipped_trial(tried, end.problem)
                    made = replace(made, outcome=end.outcome, culprits=end.culprits)
                    self._note_rerun(steps.Repeat(tried).ended(made))
                break
            turns.extend(duel_turns(pair, *sides))
        duel = Duel(name, tuple(turns), problem)
        if pairs == 1:
            self._known = replace(self._known, heated=(*self._known.heated, duel))
        else:
            self._known = replace(self._known, compared=(*self._known.compared, duel))
            self._steps.report({"event": "duel", "duel": encode(duel)})

    def _take(
        self, label: str, candidates: tuple[Candidate, ...], measures: tuple[Measure, ...] = ()
    ) -> tuple[Assignment, list[list[RankAnswer]], str]:
        """Have all ranks run one step, which is a trial or a comparison of two sides.

        Return (assignment, answers, reason). The assignment is that of rank 0. The answers are the answers of each
        rank, by side. The reason says why the ranks were killed, or is "".
        """
        is_known_broken = bool(self._known.broken_pairs) and measures == self._plan.measures
        first_s = self._first_limit.limit_s(is_known_broken=is_known_broken)
        step = Step(label, candidates, self._steps.by_exec, measures, first_s)
        for _ in range(1 + PAUSES_FORGIVEN):
            index = self._steps.index
            answers = self._steps.take({"kind": "run"} | encode(step), label, take_step)
            paused_s = max(child[PAUSED_S] for answer in answers for child in answer)
            if not paused_s:
                break
            self._steps.report({"event": "paused", "seconds": paused_s})
            if self._why_no_time():
                break
        if any(child["end"]["ended"] == "unkillable" for answer in answers for child in answer):
            self._known = replace(self._known, unkillable=True)
        return assign(self._rank, index, step), answers, self._rank.why_killed(index)

    def _why_no_time(self) -> str:
        left_s = self._spec.deadline_monotonic_s - time.monotonic()
        return "" if left_s > self._longest_s else f"{max(0.0, left_s):.0f} s were left before the deadline"
