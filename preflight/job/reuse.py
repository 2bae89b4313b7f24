"""Decide whether an earlier report is still valid for a job that starts now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Severity
from preflight.model.gap import known_or
from preflight.model.profile import Profile
from preflight.model.report import Advice, Report
from preflight.search.backend_choice import has_nvidia_hardware
from preflight.search.settings.environment import may_be_recommended

# What is compared, and what tells which GPUs the job may use; nothing else is read again.
FACTS = frozenset({
    "host", "nvml", "software", "nccl_conf", "netifs", "system", "device_nodes", "nvidia_pci",
})  # fmt: skip
THOROUGH = tuple(profile.value for profile in Profile)  # from the quickest on


@dataclass(frozen=True, slots=True)
class Now:
    """The current state that a report must match to be reused.

    The state has values of the node and options of the check.
    """

    node: NodeFacts
    visible: tuple[str, ...]  # uuids of the GPUs that may be used
    chosen: tuple[str, ...]  # those that the job will use
    at: datetime
    booted_at: datetime
    profile: Profile
    backend: str | None
    nproc: int | None
    is_strict: bool


def why_not(report: Report, now: Now, most_s: float, nodes: int) -> str:
    """Return why `report` can't be reused, or "" if the report can be reused.

    `most_s` is the maximum age of the report in seconds. `nodes` is the number of the job's nodes.
    """
    # The text follows the name of the report in a sentence.
    try:
        made_at = datetime.fromisoformat(report.created_at.replace("Z", "+00:00"))
        age_s = (now.at - made_at).total_seconds()
    except (ValueError, TypeError):  # no time, or one without its zone
        return "has no time of creation"
    if report.exit_code != 0 or report.shadow:
        return "is not a ready report"
    if not 0 <= age_s <= most_s:
        return f"is {age_s:.0f} s old"
    if made_at < now.booted_at:
        return "is older than the node's last start"
    if len(report.nodes) != nodes:
        return f"is of {len(report.nodes)} node{'s' * (len(report.nodes) > 1)}"
    then = next((node for node in report.nodes if node.host == now.node.host), report.nodes[0])
    return _why_not_the_same(then, now) or _why_not_enough(report, now) or _why_not_ours(report.advice)


def _why_not_the_same(then: NodeFacts, now: Now) -> str:
    parts = (
        ("host", then.host, now.node.host),
        ("driver", then.driver, now.node.driver),
        ("Python, torch or NCCL", then.software, now.node.software),
        ("nccl.conf", then.nccl_conf, now.node.nccl_conf),
        ("variables", then.environment, now.node.environment),
        ("GPUs", _uuids(then), _uuids(now.node)),
        ("network interfaces", _interfaces(then), _interfaces(now.node)),
    )
    return next((f"was made with other {name}" for name, before, after in parts if before != after), "")


def _why_not_enough(report: Report, now: Now) -> str:
    ranks = report.world_size // len(report.nodes)
    if now.chosen and (set(report.advice.gpus or now.visible) != set(now.chosen) or ranks != len(now.chosen)):
        return "tried other GPUs"
    by_itself = "nccl" if now.visible or has_nvidia_hardware(now.node) else "gloo"
    if report.backend != (now.backend or by_itself).partition("@")[0]:
        return f"tried {report.backend}"
    if now.nproc is not None and ranks != now.nproc:
        return f"tried {ranks} ranks per node"
    if THOROUGH.index(report.profile) < THOROUGH.index(now.profile.value):
        return f"is of profile {report.profile}"
    if now.is_strict and any(each.severity is Severity.WARN and not each.waived for each in report.findings):
        return "warns, and --strict makes that a failure"
    return f"was made with {report.narrowed}" if report.narrowed else ""


def _why_not_ours(advice: Advice) -> str:
    """Return why the advice of a report can't be used, or "" if the advice can be used.

    The text is the end of a sentence. It names a variable that the advice changes but that no check changes.
    """
    nodes = (pair for node in advice.nodes for pair in node.env)
    removed = ((name, "") for name in advice.unset)
    changed = (*advice.env, *advice.gpu_env, *advice.timeout_env, *nodes, *removed)
    foreign = next((name for name, value in changed if not may_be_recommended(name, value)), "")
    return f"changes {foreign[:40]}, which no check changes" if foreign else ""


def _uuids(node: NodeFacts) -> tuple[str, ...]:
    return tuple(str(gpu.uuid) for gpu in known_or(node.gpus, ()))


def _interfaces(node: NodeFacts) -> list[tuple[str, bool, object]] | Gap:
    netifs = node.netifs
    return netifs if isinstance(netifs, Gap) else [(each.name, each.is_up, each.addresses) for each in netifs]
