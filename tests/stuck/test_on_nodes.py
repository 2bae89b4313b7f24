"""`stuck --on`: which job of Slurm is entered, and what each node is asked."""

from __future__ import annotations

import pytest

from preflight.cli.commands import StuckOptions
from preflight.cli.stuck import answered
from preflight.cli.stuck_on_nodes import around, stuck, there
from preflight.errors import UsageError
from tests.stuck.evidence import node, process, rank, thread

OWN = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}


def test_each_node_is_asked_for_the_same_job_in_the_same_way() -> None:
    asked = StuckOptions(job="7", user="ada", watch=2.0, native=True, ras=False, on="ssh:n1", json="x", verbose=True)
    assert there(asked) == ["stuck", "--on=-", "--job=7", "--user=ada", "--watch=2.0", "--native", "--no-ras"]
    assert there(StuckOptions(on="ssh:n1")) == ["stuck", "--on=-"]


def test_the_job_of_slurm_is_the_named_one_or_the_one_around() -> None:
    assert around(StuckOptions(on="slurm:2"), OWN) == OWN
    assert around(StuckOptions(on="slurm:2", job="7"), OWN) == OWN
    assert around(StuckOptions(on="ssh:n1", job="4711"), {}) == {}
    other = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n[3-4]"}
    assert around(StuckOptions(on="slurm:n[3-4]", job="8"), OWN) == other
    with pytest.raises(UsageError, match="in which job"):
        around(StuckOptions(on="slurm:n1"), {})
    with pytest.raises(UsageError, match="squeue -j 8 -o %N"):
        around(StuckOptions(on="slurm:2", job="8"), OWN)


@pytest.mark.parametrize("other", [{"of": 3}, {"pid": 3}, {"all_jobs": True}, {"out": "x"}, {"merge": "x"}])
def test_what_concerns_one_node_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="stuck --on: name the job"):
        stuck(StuckOptions(on="ssh:n1", **other))  # type: ignore[arg-type]


def test_a_job_of_which_a_node_was_not_seen_is_not_called_not_stuck(capfd: pytest.CaptureFixture[str]) -> None:
    moves = node(*(rank(i, process(100 + i, main=thread(100 + i, asleep_s=0.3))) for i in range(4)))
    assert answered(StuckOptions(on="ssh:n[0-1]"), (moves,), []) == 0
    assert capfd.readouterr().out.startswith("NOT STUCK")
    assert answered(StuckOptions(on="ssh:n[0-1]"), (moves,), [], ["n1: unreachable"]) == 3
    page = " ".join(capfd.readouterr().out.split())
    assert page.startswith("COULD NOT TELL some nodes were not checked; of the others: The job goes on")
    assert "not seen: n1: unreachable" in page
