from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_hosts, ranks_text
from preflight.judge.workarounds import ONE_NODE, must_have_trials
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.trial import Outcome, TrialResult
from preflight.search.nodes.differences import Must, differences

FINISHED = frozenset({Outcome.OK, Outcome.WRONG_DATA, Outcome.NO_EFFECT})


@run_check("world-size", blame=Blame.HARNESS, unseen=Unseen.NOTHING, reads=("trials", "world_size"))
def world_size(case: Case) -> Findings:
    """Every rank reports the requested world size, and all ranks are present.

    Yields a FAIL for each test run in which a rank had another world size, or which finished without all its ranks.

    Can't see: what the job's own launcher will do.
    """
    # N launches of one rank each look like N successful ranks, unless every rank is asked for its world size.
    for trial in must_have_trials(case):
        problem = _problem(trial, case.world_size)
        if problem:
            yield world_size.finding(
                Severity.FAIL,
                f"trial {trial.candidate}",
                problem,
                "check that the launcher starts one group (WORLD_SIZE, RANK, SLURM_NTASKS, extra `mpirun` or `srun` "
                "wrappers), then run `preflight check --nproc N` alone",
                Evidence("world size asked for", str(case.world_size), "preflight check"),
                Evidence(
                    "world size on rank",
                    ", ".join(f"{rank}: {size}" for rank, size in trial.world_size_reported) or "no rank answered",
                    f"torch.distributed.get_world_size(), trial {trial.candidate}",
                ),
            )


def _problem(trial: TrialResult, asked: int) -> str:
    wrong = {rank: size for rank, size in trial.world_size_reported if size != asked}
    if wrong:
        sizes = ", ".join(map(str, sorted(set(wrong.values()))))
        return (
            f"{ranks_text(wrong)} had a world size of {sizes} instead of {asked}, so the ranks did not form one group"
        )
    present = [rank for rank, _ in trial.world_size_reported]
    missing = set(range(asked)) - set(present)
    if trial.outcome in FINISHED and missing:
        return f"{ranks_text(missing)} of {asked} did not join"
    if len(present) != len(set(present)):
        return "two processes have the same rank number"
    return ""


@run_check(
    "nodes-differ",
    blame=Blame.CONFIGURATION,
    unseen=Unseen.NOTHING,
    reads=("software", "driver", "gpus", "system", "environment", "netifs", "nics", "limits", "shm"),
)
def nodes_differ(case: Case) -> Findings:
    """Facts that must be equal on all nodes are equal: versions, GPUs, interfaces, limits, settings.

    Yields a FAIL for each different value that must be equal, and a WARN for each different value that should be equal.

    Can't see: facts that no node read, and files of the job.
    """
    # If one rank has another NCCL version, driver or number of GPUs, the job hangs.
    if len(case.nodes) < 2:
        raise NotApplicable(ONE_NODE)
    for difference in differences(case.nodes, case.between.clocks if case.between else (), case.backend):
        if difference.must is Must.NOT:
            continue
        yield nodes_differ.finding(
            Severity.FAIL if difference.must is Must.EQUAL else Severity.WARN,
            f"{difference.what} on {first_hosts(host for _, hosts in difference.values[1:] for host in hosts)}",
            f"this value differs between the nodes: {difference.why}",
            difference.fix,
            *(
                Evidence(difference.what, f"{value} on {first_hosts(hosts)}", "each node's own facts")
                for value, hosts in difference.values[:6]
            ),
        )
