from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.expectations import EXPECTED
from preflight.model.facts import NodeFacts
from preflight.model.finding import Blame, Evidence, Severity, Unseen


@node_check(
    "policy-expectation",
    blame=Blame.HOST,
    unseen=Unseen.ANSWER,
    reads=tuple(dict.fromkeys(fact for each in EXPECTED.values() for fact in each.reads)),
)
def policy_expectation(node: NodeFacts, case: Case) -> Findings:
    """The node has the GPUs, driver, adapters and ports that the policy names.

    Yields a FAIL for each expectation that the node does not meet. If a value could not be read, the result is unknown.

    Can't see: anything without --policy.
    """
    # If NVML fails, the check compares the GPUs on the PCI bus.
    if case.policy is None or not case.policy.expect:
        raise NotApplicable("no policy has expectations for this node")
    undecided = []
    for name in filter(case.policy.expect.__contains__, EXPECTED):
        try:
            for what, found, wanted, source in EXPECTED[name].missed(node, case.policy.expect[name]):
                yield policy_expectation.finding(
                    Severity.FAIL,
                    f"{node.host} {what}",
                    f"{found}, but the policy expects {wanted}",
                    "repair or reinstall the node, or correct the policy",
                    Evidence(what, found, source),
                    Evidence("value that the policy expects", wanted, case.policy.source),
                )
        except UnreadableFact as error:
            undecided.append(f"{name}: {error}")
    if undecided:
        raise UnreadableFact(f"the policy's expectation can't be tested: {'; '.join(undecided)}")
