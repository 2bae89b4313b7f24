"""A node that is not what the site's policy says it should be."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.versions import version_tuple
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a failure for each expectation that the node misses; nothing without a policy."""
    if case.policy is None:
        return
    expect = case.policy.expect
    if expect.gpu_count is not None and len(known(node.gpus)) != expect.gpu_count:
        yield _finding(node, case, "GPUs", str(len(known(node.gpus))), str(expect.gpu_count))
    if expect.gpu_model is not None:
        for gpu in known(node.gpus):
            if expect.gpu_model.casefold() not in known(gpu.name).casefold():
                yield _finding(node, case, f"GPU {gpu.nvml_index}", known(gpu.name), expect.gpu_model)
    if expect.driver is not None:
        version = known(known(node.driver).version)
        if not is_driver(version, expect.driver):
            yield _finding(node, case, "driver", version, expect.driver)
    if expect.nic_count is not None and len(known(node.nics)) != expect.nic_count:
        yield _finding(node, case, "RDMA adapters", str(len(known(node.nics))), str(expect.nic_count))


def is_driver(version: str, wanted: str) -> bool:
    """Tell whether a driver is the one that a policy names, or at least that with `>=`."""
    if wanted.startswith(">="):
        return version_tuple(version) >= version_tuple(wanted.removeprefix(">="))
    return version == wanted


def _finding(node: NodeFacts, case: Case, what: str, seen: str, wanted: str) -> Finding:
    source = case.policy.source if case.policy else ""
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.FAIL,
        subject=f"{node.host} {what}",
        problem=f"{seen}, but the policy expects {wanted}",
        fix="repair or reinstall the node, or correct the policy",
        evidence=(Evidence(what, seen, "NVML and /sys"), Evidence("expected", wanted, source)),
    )


CHECK = NodeCheck(
    name="policy-expectation",
    promise="the node has the GPUs, driver and adapters that the policy names",
    blame=Blame.HOST,
    reads=("gpus", "driver", "nics"),
    blind_to="everything without --policy",
    judge=judge,
)
