from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.finding_text import first_hosts
from preflight.judge.workarounds import ONE_NODE
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.plan.nodes.differences import Must, differences


@run_check(
    "nodes-differ",
    blame=Blame.CONFIGURATION,
    unseen=Unseen.NOTHING,
    reads=("software", "driver", "gpus", "system", "environment", "netifs", "nics", "limits", "shm"),
)
def nodes_differ(case: Case) -> Findings:
    """What must be equal on all nodes is: versions, GPUs, interfaces, limits, settings.

    One rank with another NCCL, driver or number of GPUs, and the job hangs. Yields a finding per fact that should be
    equal and differs; what may differ is only in the table.

    Can't see: what was read on no node; files of the job.
    """
    if len(case.nodes) < 2:
        raise NotApplicable(ONE_NODE)
    for difference in differences(case.nodes, case.between.clocks if case.between else (), case.backend):
        if difference.must is Must.NOT:
            continue
        yield nodes_differ.finding(
            Severity.FAIL if difference.must is Must.EQUAL else Severity.WARN,
            f"{difference.what} on {first_hosts(host for _, hosts in difference.values[1:] for host in hosts)}",
            f"differs between the nodes: {difference.why}",
            difference.fix,
            *(
                Evidence(difference.what, f"{value} on {first_hosts(hosts)}", "each node's own facts")
                for value, hosts in difference.values[:6]
            ),
        )
