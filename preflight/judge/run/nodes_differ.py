"""Nodes that must be alike and are not: one rank with another NCCL, driver or number of GPUs, and the job hangs."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.run.ways import first_hosts
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.plan.differences import Difference, Must, differences

SEVERITY = {Must.EQUAL: Severity.FAIL, Must.BETTER: Severity.WARN, Must.NOT: Severity.INFO}


def judge(case: Case) -> Iterator[Finding]:
    """Yield a finding per fact that should be equal and differs; what may differ is only in the table."""
    for difference in differences(case.nodes, case.between.clocks if case.between else (), case.backend):
        if difference.must is not Must.NOT:
            yield _finding(difference)


def _finding(difference: Difference) -> Finding:
    odd = [host for _, hosts in difference.values[1:] for host in hosts]
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=SEVERITY[difference.must],
        subject=f"{difference.what} on {first_hosts(odd)}",
        problem=f"differs between the nodes: {difference.why}",
        fix=difference.fix,
        evidence=tuple(
            Evidence(difference.what, f"{value} on {first_hosts(hosts)}", "each node's own facts")
            for value, hosts in difference.values[:6]
        ),
    )


CHECK = RunCheck(
    name="nodes-differ",
    promise="what must be equal on all nodes is: versions, GPUs, interfaces, limits, settings",
    blame=Blame.CONFIGURATION,
    reads=("software", "driver", "gpus", "system", "environment", "netifs", "nics", "limits", "shm"),
    blind_to="what was read on no node; files of the job",
    judge=judge,
)
