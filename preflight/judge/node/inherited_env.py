from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import name_of
from preflight.judge.interface_settings import gloo_remark, nccl_remark
from preflight.judge.nccl_settings import Remark, remarks
from preflight.model.facts import Gap, NodeFacts, inherited_value, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen

IFNAMES = {"NCCL_SOCKET_IFNAME": nccl_remark, "GLOO_SOCKET_IFNAME": gloo_remark}
VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class InheritedSetting:
    """A setting of NCCL: the variable, its value, and its source (the environment or a file)."""

    name: str
    value: str
    source: str


@node_check(
    "inherited-env", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("environment", "nccl_conf", "netifs")
)
def inherited_env(node: NodeFacts, case: Case) -> Findings:
    """Every inherited variable and nccl.conf line takes effect as written and causes no failure.

    Yields a WARN per setting that causes harm, and an INFO per transport that is disabled without a known need.

    Can't see: what the job's own scripts set later, an NCCL environment plugin, and an nccl.conf that can't be read.
    """
    # Some settings cause failures, or have another effect than the author of the setting intended.
    for setting in settings_in_force(node):
        unset = f"inherited from your shell or launcher: `unset {setting.name.strip()}`"
        where = unset if setting.source == ENVIRONMENT else f"set in {setting.source}"
        for remark in (*remarks(setting.name, setting.value), *_about_this_node(setting, node, case)):
            yield inherited_env.finding(
                remark.severity,
                f"{node.host} {setting.name}",
                f"{setting.name}={setting.value} {remark.problem}",
                f"{remark.fix} ({where})",
                Evidence(setting.name, repr(setting.value), setting.source),
            )


def settings_in_force(node: NodeFacts) -> tuple[InheritedSetting, ...]:
    """Return the effective settings of NCCL from the environment and from NCCL's files.

    The environment overrides files, and an earlier file overrides a later file.
    """
    found = {v.name: InheritedSetting(v.name, v.value, ENVIRONMENT) for v in known(node.environment)}
    for entry in known_or(node.nccl_conf, ()):
        found.setdefault(entry.name, InheritedSetting(entry.name, entry.value, entry.file))
    return tuple(found.values())


def _about_this_node(setting: InheritedSetting, node: NodeFacts, case: Case) -> Iterator[Remark]:
    if setting.name == VISIBLE and case.wants_gpus and setting.value.strip() in ("", "-1", "NoDevFiles"):
        yield Remark(Severity.WARN, "hides every GPU from CUDA", "unset it, or list the GPUs of the job")
    if setting.name == VISIBLE and case.wants_gpus and _is_counted_by_speed(setting.value, node):
        yield Remark(
            Severity.WARN,
            "may select other GPUs than nvidia-smi lists under these numbers, because CUDA numbers the fastest GPU "
            f"model first unless {ORDER} is set",
            f"`export {ORDER}`, or list the GPUs by UUID",
        )
    if setting.name not in IFNAMES:
        return
    if isinstance(node.netifs, Gap):
        problem = f"could not be compared with this node's interfaces: {node.netifs.reason}"
        yield Remark(Severity.INFO, problem, "compare the value with `ip -br link`")
        return
    remark = IFNAMES[setting.name](setting.value, tuple(netif.name for netif in node.netifs))
    if remark is not None:
        yield remark


def _is_counted_by_speed(visible: str, node: NodeFacts) -> bool:
    """Return whether the numbers in CUDA_VISIBLE_DEVICES follow CUDA's own order, fastest GPU first.

    GPUs of one model are assumed to be in bus order. See docs/dev/nccl-facts.md, section 6.4.
    """
    models = {name_of(gpu) for gpu in known_or(node.gpus, ())}
    by_number = visible.strip()[:1].isdigit()
    return by_number and len(models) > 1 and inherited_value(node, "CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
