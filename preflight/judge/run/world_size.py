from __future__ import annotations

from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import ranks_text
from preflight.judge.workarounds import must_have_trials
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import Outcome, TrialResult

FINISHED = frozenset({Outcome.OK, Outcome.WRONG_DATA, Outcome.NO_EFFECT})


@run_check("world-size", blame=Blame.HARNESS, unseen=Unseen.NOTHING, reads=("trials", "world_size"))
def world_size(case: Case) -> Findings:
    """Every rank sees the world size that was asked for, and all ranks are there.

    N launches of one rank each look like a pass of N ranks unless every rank is asked how many it sees. Yields a FAIL
    per trial in which a rank saw another world size, or that finished without all its ranks.

    Can't see: what the job's own launcher will do.
    """
    for trial in must_have_trials(case):
        problem = _problem(trial, case.world_size)
        if problem:
            yield world_size.finding(
                Severity.FAIL,
                f"trial {trial.candidate}",
                problem,
                "see whether the launcher starts one group: look at WORLD_SIZE, RANK, SLURM_NTASKS and stray "
                "`mpirun`/`srun` wrappers, then run `preflight check --nproc N` by itself",
                Evidence("world size asked for", str(case.world_size), "preflight check"),
                Evidence(
                    "world size seen by rank",
                    ", ".join(f"{rank}: {size}" for rank, size in trial.world_size_reported) or "no rank answered",
                    f"torch.distributed.get_world_size(), trial {trial.candidate}",
                ),
            )


def _problem(trial: TrialResult, asked: int) -> str:
    wrong = {rank: size for rank, size in trial.world_size_reported if size != asked}
    if wrong:
        sizes = ", ".join(map(str, sorted(set(wrong.values()))))
        return (
            f"{ranks_text(wrong)} saw a world of {sizes}, not the {asked} asked for: the ranks did not form one group"
        )
    present = [rank for rank, _ in trial.world_size_reported]
    missing = set(range(asked)) - set(present)
    if trial.outcome in FINISHED and missing:
        return f"{ranks_text(missing)} of {asked} took no part"
    if len(present) != len(set(present)):
        return "one rank number was given to two processes"
    return ""
