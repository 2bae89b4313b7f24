"""Inherited variables and nccl.conf lines that do harm, or do not do what their author meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preflight.judge.check import Case, NodeCheck
from preflight.judge.interface_settings import gloo_remark, nccl_remark
from preflight.judge.nccl_settings import Remark, remarks
from preflight.model.facts import Gap, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

IFNAMES = {"NCCL_SOCKET_IFNAME": nccl_remark, "GLOO_SOCKET_IFNAME": gloo_remark}
VISIBLE = "CUDA_VISIBLE_DEVICES"
ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, and where it comes from."""

    name: str
    value: str
    source: str


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN per setting that does harm, an INFO per transport switched off without a known need."""
    for setting in settings_in_force(node):
        for remark in (*remarks(setting.name, setting.value), *_about_this_node(setting, node, case)):
            yield Finding(
                check=CHECK.name,
                blame=CHECK.blame,
                severity=remark.severity,
                subject=f"{node.host} {setting.name}",
                problem=f"{setting.name}={setting.value} {remark.problem}",
                fix=f"{remark.fix} ({_where(setting)})",
                evidence=(Evidence(setting.name, repr(setting.value), setting.source),),
            )


def settings_in_force(node: NodeFacts) -> tuple[Setting, ...]:
    """Return the settings as NCCL sees them: the environment wins over files, and an earlier file over a later."""
    found = {v.name: Setting(v.name, v.value, ENVIRONMENT) for v in known(node.environment)}
    for entry in () if isinstance(node.nccl_conf, Gap) else node.nccl_conf:
        found.setdefault(entry.name, Setting(entry.name, entry.value, entry.file))
    return tuple(found.values())


def _about_this_node(setting: Setting, node: NodeFacts, case: Case) -> Iterator[Remark]:
    if setting.name == VISIBLE and case.wants_gpus and setting.value.strip() in ("", "-1", "NoDevFiles"):
        yield Remark(Severity.WARN, "hides every GPU from CUDA", "unset it, or list the GPUs of the job")
    if setting.name not in IFNAMES:
        return
    if isinstance(node.netifs, Gap):
        told = f"could not be compared with this node's interfaces: {node.netifs.reason}"
        yield Remark(Severity.INFO, told, "compare it with `ip -br link`")
        return
    remark = IFNAMES[setting.name](setting.value, tuple(netif.name for netif in node.netifs))
    if remark is not None:
        yield remark


def _where(setting: Setting) -> str:
    if setting.source == ENVIRONMENT:
        return f"inherited from your shell or launcher: `unset {setting.name.strip()}`"
    return f"set in {setting.source}"


CHECK = NodeCheck(
    name="inherited-env",
    promise="no inherited variable and no nccl.conf line does harm or less than it says",
    blame=Blame.CONFIGURATION,
    reads=("environment", "nccl_conf", "netifs"),
    blind_to="what the job's own scripts set later, an NCCL environment plugin, and an nccl.conf that can't be read",
    judge=judge,
)
