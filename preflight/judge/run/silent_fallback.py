"""RDMA ports that work, and a job that goes over sockets all the same: fast enough on one node, ruinous on several."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, RunCheck
from preflight.judge.workaround import default_trial, works
from preflight.model.facts import known
from preflight.model.finding import Blame, Evidence, Finding, Severity
from preflight.model.hca import HcaPort, PortState
from preflight.model.trial import TrialResult

FELL_BACK = "network Socket"
CHOSEN = ("NCCL_NET", "NCCL_IB_DISABLE")  # sockets were asked for


def judge(case: Case) -> Iterator[Finding]:
    """Yield a WARN for each node with an active port whose default trial took sockets as its network."""
    default = default_trial(case.trials)
    if default is None or not works(default) or FELL_BACK not in default.transport or _was_asked_for(default, case):
        return
    for node in case.nodes:
        active = [port for port in known(node.hca_ports) if _carries_data(port)]
        if active:
            names = ", ".join(f"{port.hca}:{port.port} ({port.link_layer})" for port in active)
            yield Finding(
                check=CHECK.name,
                blame=CHECK.blame,
                severity=Severity.WARN,
                subject=f"{node.host} network",
                problem=f"{'ports are' if len(active) > 1 else 'a port is'} active for RDMA, and NCCL takes sockets: "
                "no harm on one node, a fraction of the fabric's speed on several",
                fix="see why in the trial's NCCL log (`preflight check --keep`, lines with NET/): libibverbs missing, "
                "no /dev/infiniband, `ulimit -l`, a network plugin in the way, NCCL_IB_HCA in nccl.conf",
                evidence=(
                    Evidence("took", FELL_BACK, f"trial {default.candidate}, NCCL's log"),
                    Evidence("active ports", names, "/sys/class/infiniband"),
                ),
            )


def _carries_data(port: HcaPort) -> bool:
    return port.state is PortState.ACTIVE and port.link_layer in ("InfiniBand", "Ethernet")


def _was_asked_for(default: TrialResult, case: Case) -> bool:
    """Tell whether a setting chose sockets: in the trial itself, or in a file that NCCL reads."""
    files = {entry.name for node in case.nodes if isinstance(node.nccl_conf, tuple) for entry in node.nccl_conf}
    return any(name in files or name in dict(default.trial_env) for name in CHOSEN)


CHECK = RunCheck(
    name="silent-fallback",
    promise="where RDMA ports are active, NCCL uses them",
    blame=Blame.CONFIGURATION,
    reads=("trials", "hca_ports", "nccl_conf"),
    blind_to="EFA and other networks that NCCL reaches by a plugin only",
    judge=judge,
)
