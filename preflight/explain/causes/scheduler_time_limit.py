"""The scheduler ended the job because its time was up."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="Nothing broke: the time that was asked for ran out. If nothing was printed for long before "
    "that, a hang used it up.",
    signs=(
        Sign("limit.slurm", Authority.KILLED, "the scheduler ended the job at its time limit",
             r"DUE TO TIME ?LIMIT|State ?[=:] ?TIMEOUT|reached its time limit|TIME LIMIT \*\*\*"),
        Sign("limit.other", Authority.KILLED, "the scheduler ended the job at its time limit",
             r"TERM_RUNLIMIT|walltime \d{1,9} exceeded limit|job killed: walltime|"
             r'exceeded (?:its )?(?:hard )?wall ?(?:clock|time)|exceeds job hard limit \"h_rt|'
             r"was active (?:on the node )?longer than (?:the )?specified deadline"),
    ),
    judge=by_signs("The scheduler ended the job because its time limit was reached."),
    remedy=fixed(
        "Compare the last line of progress with the time of the cancellation: if progress stopped long "
        "before, a hang used the time up; look for that.",
        "Otherwise ask for more time (sbatch --time=...), or save checkpoints and resume (sbatch "
        "--signal=B:USR1@120 warns two minutes ahead).",
    ),
    needs="state TIMEOUT in the scheduler's accounting",
    confirm_with="sacct -j JOBID --format=JobID,State,Elapsed,Timelimit",
)  # fmt: skip
