from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, Findings, node_check
from preflight.model.facts import NodeFacts, known
from preflight.model.finding import Blame, Evidence, Severity
from preflight.model.parsing import version_tuple
from preflight.model.policy import Expectation


@node_check("policy-expectation", blame=Blame.HOST, reads=("gpus", "driver", "nics"))
def policy_expectation(node: NodeFacts, case: Case) -> Findings:
    """The node has the GPUs, driver and adapters that the policy names.

    Yields a failure for each expectation that the node misses; nothing without a policy.

    Can't see: everything without --policy.
    """
    if case.policy is None:
        return
    for what, found, wanted in _missed(node, case.policy.expect):
        yield policy_expectation.finding(
            Severity.FAIL,
            f"{node.host} {what}",
            f"{found}, but the policy expects {wanted}",
            "repair or reinstall the node, or correct the policy",
            Evidence(what, str(found), "NVML and /sys"),
            Evidence("expected", str(wanted), case.policy.source),
        )


def _missed(node: NodeFacts, expect: Expectation) -> Iterator[tuple[str, str | int, str | int]]:
    if expect.gpu_count is not None and len(known(node.gpus)) != expect.gpu_count:
        yield "GPUs", len(known(node.gpus)), expect.gpu_count
    if expect.gpu_model is not None:
        for gpu in known(node.gpus):
            if expect.gpu_model.casefold() not in known(gpu.name).casefold():
                yield f"GPU {gpu.nvml_index}", known(gpu.name), expect.gpu_model
    if expect.driver is not None and not is_driver(known(known(node.driver).version), expect.driver):
        yield "driver", known(known(node.driver).version), expect.driver
    if expect.nic_count is not None and len(known(node.nics)) != expect.nic_count:
        yield "RDMA adapters", len(known(node.nics)), expect.nic_count


def is_driver(version: str, wanted: str) -> bool:
    """Tell whether a driver is the one that a policy names, or at least that with `>=`."""
    if wanted.startswith(">="):
        return version_tuple(version) >= version_tuple(wanted.removeprefix(">="))
    return version == wanted
