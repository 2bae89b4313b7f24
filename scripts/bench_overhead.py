"""Time `preflight check` beside a bare torchrun that makes one group and does one all_reduce, in pairs.

The two take turns at going first, so that what else the machine does falls on both. Then one launch of many trials
shows what one more costs: fork, group, 8 B all_reduce, data verified. Exits 1 where a promise is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from preflight.model.collective import Collective
from preflight.model.run_spec import Backend, Measure, NodePlace, RunSpec, TrialPlan
from preflight.model.trial import Candidate, Outcome, Scope
from preflight.search.profiles import stage_limits
from preflight.trial.agent_process import started_agent
from preflight.trial.launch_result import Launch, LaunchResult
from preflight.trial.launcher import launch
from preflight.trial.run_dir import make_run_dir, remove_run_dir
from scripts.bare_torchrun import environment, timed_s, write_script

PAIRS = 7
RANKS = 2
TRIALS = 15
MOST_RATIO = 1.5
MOST_TRIAL_S = 0.15
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The seconds that both took, one right after the other."""

    check_s: float
    torchrun_s: float

    @property
    def ratio(self) -> float:
        """How many times as long preflight took."""
        return self.check_s / self.torchrun_s


def ratio_of_medians(pairs: Sequence[Pair]) -> float:
    """Return the median of preflight over the median of the bare torchrun."""
    return median_s(pairs, lambda pair: pair.check_s) / median_s(pairs, lambda pair: pair.torchrun_s)


def median_s(pairs: Sequence[Pair], side: Callable[[Pair], float]) -> float:
    """Return one side's median."""
    return statistics.median(side(pair) for pair in pairs)


def trial_costs_s(arrivals_s: Sequence[float]) -> list[float]:
    """Return what each trial but the first cost: the time from the result before it to its own.

    The first also pays for what all share: pages that are first touched after a fork, modules first used.
    """
    return [later - earlier for earlier, later in itertools.pairwise(arrivals_s)]


def describe(pairs: Sequence[Pair], trials_s: Sequence[float]) -> str:
    """Return the page."""
    torchrun_s = median_s(pairs, lambda pair: pair.torchrun_s)
    trial_s = statistics.median(trials_s)
    return (
        f"overhead: {len(pairs)} pairs, {RANKS} ranks, gloo\n"
        f"  preflight check --profile quick {median_s(pairs, lambda pair: pair.check_s):7.3f} s (median)\n"
        f"  bare torchrun, one all_reduce   {torchrun_s:7.3f} s (median)\n"
        f"  ratio of medians {ratio_of_medians(pairs):.2f} (at most {MOST_RATIO}); "
        f"pair by pair {' '.join(f'{pair.ratio:.2f}' for pair in pairs)}\n"
        f"  one more trial (8 B, verified)  {trial_s:7.3f} s (median of {len(trials_s)}, {min(trials_s):.3f} to "
        f"{max(trials_s):.3f}; at most {MOST_TRIAL_S})\n"
        f"  a fresh torchrun for the same   {torchrun_s:7.3f} s, {torchrun_s / trial_s:.0f} times as much\n"
    )


def keeps_promise(pairs: Sequence[Pair], trials_s: Sequence[float]) -> bool:
    """Tell whether both figures are within what preflight promises."""
    return ratio_of_medians(pairs) <= MOST_RATIO and statistics.median(trials_s) <= MOST_TRIAL_S


def run_pairs(count: int, folder: str) -> list[Pair]:
    """Run both once to warm caches, then `count` pairs, in turns beginning with either."""
    script = write_script(folder)
    environ = environment(os.environ, folder)
    check = [sys.executable, "-m", "preflight", "check", "--nproc", str(RANKS), "--profile", "quick"]

    def check_s() -> float:
        return timed_s(check, environ, folder)

    def torchrun_s() -> float:
        return timed_s(_torchrun(script), environ, folder)

    check_s()
    torchrun_s()
    pairs = []
    for number in range(count):
        if number % 2:
            took_s = torchrun_s()
            pairs.append(Pair(check_s(), took_s))
        else:
            pairs.append(Pair(check_s(), torchrun_s()))
    return pairs


def _torchrun(script: str) -> list[str]:
    """Return the plain command, on a port that is free now: 29500 may be another job's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--nproc-per-node", str(RANKS), "--master-port", str(port)]
    return [sys.executable, "-m", "torch.distributed.run", *options, script]


def run_trials(count: int) -> list[float]:
    """Return what each further trial of one launch cost."""
    run_dir = make_run_dir()
    launched = Launch()
    arrivals_s: list[float] = []

    def watch(result: LaunchResult) -> None:
        arrivals_s.extend([time.monotonic()] * (len(result.trials) - len(arrivals_s)))

    try:
        with started_agent(environment(os.environ, run_dir)) as agent:
            launch(trial_spec(run_dir, count), agent, launched, watch, kill_at=time.monotonic() + LIMIT_S)
    finally:
        remove_run_dir(run_dir)
    failed = [trial.problem for trial in launched.result.trials if trial.outcome is not Outcome.OK]
    if launched.result.problem or failed or len(arrivals_s) != count:
        raise SystemExit(f"the launch of {count} trials failed: {launched.result.problem or failed or len(arrivals_s)}")
    return trial_costs_s(arrivals_s)


def trial_spec(run_dir: str, count: int) -> RunSpec:
    """Return a run that tries `count` candidates, none of which sets anything, with one 8 B all_reduce each."""
    once = Measure(Collective.ALL_REDUCE, 8, budget_s=0.0, min_repetitions=1, max_repetitions=1)
    candidates = tuple(Candidate(f"trial {i}", (), "", Scope.ANYWHERE) for i in range(count))
    return RunSpec(
        run_dir=run_dir,
        backend=Backend("gloo", "", "gloo"),
        place=NodePlace(RANKS),
        trials=TrialPlan(candidates, stage_limits("gloo", None), screen_all=True, measures=(once,)),
        deadline_monotonic_s=time.monotonic() + LIMIT_S,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    asked = parser.parse_args()
    if asked.pairs < 1 or asked.trials < 2:
        parser.error("give at least 1 pair and 2 trials")
    with tempfile.TemporaryDirectory(prefix="preflight-bench-") as folder:
        pairs = run_pairs(asked.pairs, folder)
    trials_s = run_trials(asked.trials)
    sys.stdout.write(describe(pairs, trials_s))
    return 0 if keeps_promise(pairs, trials_s) else 1


if __name__ == "__main__":
    sys.exit(main())
