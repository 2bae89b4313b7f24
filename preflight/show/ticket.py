"""The report as a support ticket for a cloud provider or vendor, in plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from preflight.model.counters import CounterKind
from preflight.model.facts import NodeFacts, SoftwareFacts, SystemFacts, TorchFacts
from preflight.model.finding import Finding, Severity
from preflight.model.gap import Gap, known_or
from preflight.model.gpu import EccCounts, Gpu, RetiredPages, RowRemap
from preflight.model.gpu_test import Arrived, Direction, Ending, PairTruth
from preflight.model.hca import HcaPort, Nic
from preflight.model.parts import PAIR, part_of_port
from preflight.model.report import NOT_TESTED, Report
from preflight.model.units import counted
from preflight.show.changes import since_good
from preflight.show.text import line, rfc3339
from preflight.show.verdict import SIMULATED, answer, by_weight, is_bad, is_good, summary

MOST_EVIDENCE, MOST_COUNTERS = 6, 40
ERRORS = (CounterKind.FATAL, CounterKind.SURVIVED, CounterKind.REPAIRED)
ATTACH = (
    "For the sender: run these commands before any reset, and attach their output. This ticket has no serial numbers"
)
NODE_COMMANDS = (
    "sudo nvidia-bug-report.sh   # attach nvidia-bug-report.log.gz",
    "sudo dmesg -T | grep -iE 'xid|nvrm|nvswitch|mlx|aer'",
    "sudo dmidecode -t system | grep -iE 'manufacturer|product|serial'",
)
NVLINK_COMMANDS = (
    "journalctl -n 200 -u nvidia-fabricmanager   # if there is an NVSwitch",
    "sudo tail -n 200 /var/log/fabricmanager.log",
)
MOST_NAMES = 8
MOST_XIDS = 10
SHOWED = "trial-failed"
PCIE, NVLINK = ("pcie", "p2p", "bar1", "gpu-lost"), ("nvlink", "fabric-state", "transport-below-links")  # of checks


def render_ticket(report: Report) -> str:
    """Return the ticket: the failures, the parts with their identifiers, and how to reproduce the failure.

    If nothing failed, the text only says so.
    """
    start = f"{SIMULATED}: NO REAL HARDWARE WAS TESTED. " if report.simulated else ""
    hosts = ", ".join(line(node.host) for node in report.nodes) or "a node whose facts were not read"
    title = f"{start}{hosts}: {answer(report)}: {summary(report)}"
    told = sorted((each for each in by_weight(report) if each.severity is not Severity.INFO), key=_is_consequence)
    if is_good(report):
        if not told:
            return f"{title}\nNothing failed, so there is nothing to report.\n"
        about = line(told[0].subject)
        host = "" if about.startswith(hosts) else f"{hosts}: "
        title = f"{start}{host}{about}: {line(told[0].problem)} ({answer(report)}, with warnings)"
    elif told and is_bad(report):
        more = f"; and {counted(len(told) - 1, 'other finding')}" if told[1:] else ""
        about = line(told[0].subject).removeprefix(f"{hosts} ")
        title = f"{start}{hosts}: {answer(report)}: {about}: {line(told[0].problem)} [{line(told[0].check)}]{more}"
    parts = (
        ("", [title]),
        ("When", _when(report)),
        ("What fails", _findings(told)),
        ("Parts that the findings name", _parts(report, told)),
        (ATTACH, _to_attach(report, told)),
        (f"Changed since it was good ({rfc3339(report.good_at)})", [f"  {each}" for each in since_good(report)]),
        ("Machine", chain.from_iterable(map(_machine, report.nodes))),
        ("Error counters, before -> after the run", _counters(report)),
        ("Xid lines of the kernel log", _xids(report, told)),
        ("Copies between pairs of GPUs, without NCCL", _pairs(report)),
        (
            f"What was tried with NCCL, {'inside the node' if len(report.nodes) == 1 else 'on all nodes'}",
            _trials(report),
        ),
        ("To reproduce it with preflight", _commands(report)),
    )
    sections = [(name, list(lines)) for name, lines in parts]
    shown = ((f"{name}:\n" if name else "") + "\n".join(lines) for name, lines in sections if lines)
    return "\n\n".join(shown) + "\n"


def _when(report: Report) -> list[str]:
    at = rfc3339(report.created_at) or line(report.created_at)
    total_s = dict(report.durations_s).get("total")
    took = "" if total_s is None else f", after a run of {total_s:.0f} s"
    return [f"  {at} (UTC){took}; preflight {line(report.preflight_version)}, profile {line(report.profile)}"]


def _is_consequence(finding: Finding) -> bool:
    """Return whether a warning names only pairs of parts.

    Such warnings come last, because the fault of a single part may explain them.
    """
    return finding.severity is Severity.WARN and bool(finding.parts) and all(PAIR in each for each in finding.parts)


def _findings(told: Collection[Finding]) -> Iterator[str]:
    """Yield the lines on the findings. Findings with the same problem share their lines.

    The lines have all subjects of the problem, and the evidence of the first finding.
    """
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for each in told:
        key = (each.severity, each.check, each.problem, each.is_unconfirmed, each.waived)
        alike.setdefault(key, []).append(each)
    for finding, *others in alike.values():
        once = " (seen once)" if finding.is_unconfirmed else ""
        once += f" (waived: {line(finding.waived)})" if finding.waived else ""
        subjects = "; ".join(line(each.subject) for each in (finding, *others))
        yield f"  {finding.severity.value.upper()} {line(finding.check)}, {subjects}: {line(finding.problem)}{once}"
        for fact in finding.evidence[:MOST_EVIDENCE]:
            yield f"    {line(fact.what)}: {line(str(fact.value))} ({line(fact.source)})"
        if (left := len(finding.evidence) - MOST_EVIDENCE) > 0:
            yield f"    and {counted(left, 'other fact')}, in the full report"
        yield f"    preflight advises: {line(finding.fix)}"
        if finding.workaround:
            yield f"    until then: {line(finding.workaround)}"


def _parts(report: Report, told: Collection[Finding]) -> Iterator[str]:
    """Yield the identity (such as a UUID) of each part that findings name, with the names of the checks."""
    for node in report.nodes:
        host = f"{line(node.host)}, " if len(report.nodes) > 1 else ""
        for gpu, by in _gpus(node, report, told):
            names = dict.fromkeys(
                f"{each}: the error was reported here, but the fault may be elsewhere" if each == SHOWED else each
                for each in by
            )
            yield f"  {host}{_gpu(gpu)} ({', '.join(names)})"
            yield from (f"    {each}" for each in _memory(gpu))
        yield from (f"  {host}{_port(port, node)}" for port in _ports(node, report, told))


def _gpus(node: NodeFacts, report: Report, told: Collection[Finding]) -> Iterator[tuple[Gpu, Sequence[str]]]:
    """Yield (GPU, names of the checks) for each GPU of the node that the findings name.

    Findings from failed trials are ignored if another check names a part, because the cause of a failed trial may be
    elsewhere.
    """
    telling = [each for each in told if each.check != SHOWED]
    named = telling if _accused(report, telling) else told
    accused, here = _accused(report, named), _on(node, report, named)
    for gpu in known_or(node.gpus, ()):
        uuid = known_or(gpu.uuid, "")
        if uuid in accused:
            yield gpu, [
                line(each.check) for each in named
                if any(uuid in part for part in each.parts) or (each in here and _has_address(each, gpu))
            ]  # fmt: skip


def _ports(node: NodeFacts, report: Report, told: Collection[Finding]) -> Iterator[HcaPort]:
    accused, here = _accused(report, told), _on(node, report, told)
    for port in known_or(node.hca_ports, ()):
        is_accused = accused.intersection(part_of_port(node, port.hca, port.port))
        if is_accused or any(f"{port.hca}:{port.port}" in each.subject for each in here):
            yield port


def _to_attach(report: Report, told: Collection[Finding]) -> Iterator[str]:
    """Yield the commands whose output support asks for.

    The commands print, for example, a part's serial number and link state.
    """
    for node in report.nodes:
        gpus, ports = list(_gpus(node, report, told)), list(_ports(node, report, told))
        commands = list(NODE_COMMANDS) if gpus or ports else []
        if any(_is_on_nvlink(gpu, by) for gpu, by in gpus):
            commands += NVLINK_COMMANDS
        for gpu, by in gpus:
            number = gpu.nvml_index
            commands.append(f"nvidia-smi -q -i {number} | grep -iE 'serial|part number|vbios|module id|replay'")
            on_nvlink = _is_on_nvlink(gpu, by)
            if on_nvlink:
                commands.append(f"for q in -s -e -R; do nvidia-smi nvlink $q -i {number}; done")
            on_pcie = any(each.startswith(PCIE) and not (on_nvlink and each.startswith("p2p")) for each in by)
            if on_pcie and not isinstance(gpu.bdf, Gap):
                above = [(each, f"   # the bridge above GPU {number}") for each in _bridge_above(gpu, node)]
                commands += [
                    f"sudo lspci -vv -s {line(bdf)} | grep -E 'LnkCap|LnkSta|UESta|CESta'{which}"
                    for bdf, which in (*above, (gpu.bdf, ""))
                ]
        for port in ports:
            nic = _nic_of(port, node)
            place = "" if nic is None or isinstance(nic.bdf, Gap) else f" -s {line(nic.bdf)}"
            name = line(port.hca)
            commands += [
                f"sudo lspci -vv{place} | grep -E '\\[PN\\]|\\[SN\\]|Physical Slot|LnkCap|LnkSta'",
                f"cat /sys/class/infiniband/{name}/board_id",
                f"sudo mlxlink -d {name} -p {port.port} -m -c   # the cable and its errors (NVIDIA Firmware Tools)",
            ]
        where = f"   # on {line(node.host)}" if len(report.nodes) > 1 else ""
        yield from (f"  {each}{where}" for each in dict.fromkeys(commands))


def _is_on_nvlink(gpu: Gpu, checks: Sequence[str]) -> bool:
    has_links = bool(known_or(gpu.nvlinks, ()))
    return any(each.startswith(NVLINK) or (has_links and each.startswith("p2p")) for each in checks)


def _bridge_above(gpu: Gpu, node: NodeFacts) -> tuple[str, ...]:
    """Return the PCI address of the bridge at the other end of the GPU's PCIe link, or () if it is not known."""
    parents = next((each.parents for each in known_or(node.pci, ()) if each.bdf == gpu.bdf), ())
    return parents[-1:]


def _memory(gpu: Gpu) -> Iterator[str]:
    """Yield lines on a GPU's row remapping, retired pages and ECC errors.

    NVIDIA uses these values to decide on a replacement.
    """
    if isinstance(gpu.row_remap, RowRemap):
        state = gpu.row_remap
        pending, failed = ("yes" if each else "no" for each in (state.is_pending, state.has_failed))
        done = f"{state.correctable} correctable, {state.uncorrectable} uncorrectable"
        yield f"rows remapped: {done}; a remap waits for a reset: {pending}; a remap failed: {failed}"
    if isinstance(gpu.retired_pages, RetiredPages):
        pages = gpu.retired_pages
        yield f"pages retired: {_count(pages.single_bit)} single bit, {_count(pages.double_bit)} double bit"
    if isinstance(gpu.ecc, EccCounts):
        ecc = gpu.ecc
        since = f"{_count(ecc.volatile_corrected)} corrected, {_count(ecc.volatile_uncorrected)} uncorrected"
        ever = f"{_count(ecc.aggregate_corrected)} corrected, {_count(ecc.aggregate_uncorrected)} uncorrected"
        yield f"ECC errors: {since} since the driver was loaded; {ever} over the GPU's life"


def _count(value: int | Gap) -> str:
    return "not kept" if isinstance(value, Gap) else str(value)


def _xids(report: Report, told: Collection[Finding]) -> Iterator[str]:
    """Yield the kernel's lines about the GPUs that findings name.

    If the findings name no GPU, yield all Xid lines of the kernel.
    """
    accused = _accused(report, told)
    for node in report.nodes:
        start = f"{line(node.host)}: " if len(report.nodes) > 1 else ""
        if isinstance(node.xid_lines, Gap):
            yield f"  {start}not read: {line(node.xid_lines.reason)}"
            continue
        gpus = [gpu for gpu in known_or(node.gpus, ()) if known_or(gpu.uuid, "") in accused]
        addresses = [known_or(gpu.bdf, "").rpartition(".")[0] for gpu in gpus]
        about = [each for each in node.xid_lines if any(at and at in each for at in addresses)]
        about = about if accused else list(node.xid_lines)
        if not about:
            others = f" about these GPUs, and {len(node.xid_lines)} about others" if node.xid_lines else ""
            yield f"  {start}none{others}"
        if (left := len(about) - MOST_XIDS) > 0:
            yield f"  {start}{counted(left, 'older line')}, in the full report"
        yield from (f"  {start}{line(each)}" for each in about[-MOST_XIDS:])


def _on(node: NodeFacts, report: Report, told: Collection[Finding]) -> list[Finding]:
    """Return the findings about this node.

    In a run of several nodes, the subject of each of these findings begins with the node's name.
    """
    return [each for each in told if len(report.nodes) == 1 or each.subject.startswith(f"{node.host} ")]


def _has_address(finding: Finding, gpu: Gpu) -> bool:
    address = known_or(gpu.bdf, "").rpartition(".")[0]
    return bool(address) and address in finding.subject


def _accused(report: Report, told: Collection[Finding]) -> frozenset[str]:
    """Return the UUIDs of the parts that findings name.

    If findings name pairs of GPUs, and one GPU is in all of these pairs, only that GPU counts.
    """
    named = [
        known_or(gpu.uuid, "") for node in report.nodes for gpu in known_or(node.gpus, ())
        if any(_has_address(each, gpu) for each in _on(node, report, told))
    ]  # fmt: skip
    parts = [frozenset(part.split(PAIR)) for finding in told for part in finding.parts]
    alone = frozenset(chain(named, *(part for part in parts if len(part) == 1)))
    pairs = [part for part in parts if not part & alone]
    shared = frozenset.intersection(*pairs) if pairs else frozenset()
    return alone | (shared or frozenset(chain.from_iterable(pairs)))


def _gpu(gpu: Gpu) -> str:
    values = [
        f"GPU {gpu.nvml_index}", known_or(gpu.name, ""), known_or(gpu.uuid, ""),
        f"PCI {known_or(gpu.bdf, 'address unknown')}",
    ]  # fmt: skip
    return ", ".join(line(str(each)) for each in values if each)


def _nic_of(port: HcaPort, node: NodeFacts) -> Nic | None:
    return next((each for each in known_or(node.nics, ()) if each.name == port.hca), None)


def _port(port: HcaPort, node: NodeFacts) -> str:
    nic = _nic_of(port, node)
    firmware = "" if nic is None or isinstance(nic.firmware, Gap) else f"firmware {nic.firmware}"
    place = "" if nic is None or isinstance(nic.bdf, Gap) else f"PCI {nic.bdf}"
    state = "" if isinstance(port.state, Gap) else f"state {port.state.value}"
    physical = "" if isinstance(port.phys_state, Gap) else f"physical state {port.phys_state.value}"
    model = "" if nic is None or isinstance(nic.device, Gap) else f"PCI id {nic.device}"
    gids = known_or(port.gids, ())
    gid = f"GID {gids[0].gid}" if gids else ""
    layer = known_or(port.link_layer, "")
    told = (f"{port.hca} port {port.port}", layer, gid, place, model, firmware, state, physical)
    return ", ".join(line(each) for each in told if each)


def _machine(node: NodeFacts) -> Iterator[str]:
    """Yield a node's software versions and hardware, without values that could not be read."""
    values: list[tuple[str, object]] = []
    if isinstance(node.system, SystemFacts):
        values += [("server", node.system.product), ("BIOS", node.system.bios)]
        values += [("kernel", node.system.kernel), ("CPU", node.system.cpu_model)]
        values += [("hypervisor", node.system.hypervisor)]
    if not isinstance(node.driver, Gap):
        values.append(("NVIDIA driver", node.driver.version))
    if isinstance(node.software, SoftwareFacts) and isinstance(node.software.torch, TorchFacts):
        torch = node.software.torch
        values += [("torch", torch.version), ("NCCL", torch.nccl), ("CUDA of torch", torch.cuda)]
    known = [f"{name} {line(str(value))}" for name, value in values if value and not isinstance(value, Gap)]
    yield f"  {line(node.host)}: {', '.join(known) or 'no version could be read'}"
    for gpu in known_or(node.gpus, ()):
        yield f"    {_gpu(gpu)}"
    for nic in known_or(node.nics, ()):
        firmware = f", firmware {line(str(nic.firmware))}" if not isinstance(nic.firmware, Gap) else ""
        yield f"    {line(nic.name)}{firmware}"


def _counters(report: Report) -> list[str]:
    """Return lines with the error counters that grew.

    If no counter grew, or if the counters are unknown, a line says so. With several nodes, the counters are those of
    this node before the trials on all nodes. The counters of each port during a trial on all nodes are recorded with
    that trial.
    """
    if isinstance(report.counters, Gap):
        return [] if report.counters == NOT_TESTED else [f"  not read: {line(report.counters.reason)}"]
    errors = [each for each in report.counters if each.kind in ERRORS]
    grown = [each for each in errors if isinstance(each.grown, int) and each.grown > 0]
    unread = [f"{line(each.subject)} {line(each.name)}" for each in errors if isinstance(each.grown, Gap)]
    more = f", and {len(unread) - MOST_NAMES} more" if unread[MOST_NAMES:] else ""
    lines = [f"  {line(each.subject)} {line(each.name)}: {each.before} -> {each.after}" for each in grown]
    if len(lines) > MOST_COUNTERS:
        lines = [*lines[:MOST_COUNTERS], f"  and {counted(len(lines) - MOST_COUNTERS, 'other counter')}"]
    kinds = list(dict.fromkeys(line(each.name) for each in errors if not isinstance(each.grown, Gap)))
    names = ", ".join(kinds[:MOST_NAMES]) + (", ..." if kinds[MOST_NAMES:] else "")
    when = "during the run" if len(report.nodes) == 1 else "on this node before the joint trials"
    read = f"  none of the {len(errors) - len(unread)} that were read grew {when} ({names})"
    not_read = f"  could not be read: {', '.join(unread[:MOST_NAMES])}{more}"
    return [*(lines or [read if len(errors) > len(unread) else "  none was read"]), *([not_read] if unread else [])]


def _pairs(report: Report) -> list[str]:
    if isinstance(report.p2p, Gap):
        return [] if report.p2p == NOT_TESTED else [f"  not tested: {line(report.p2p.reason)}"]
    bad = [each for each in report.p2p if each.end is not Ending.OK]
    lines = [
        f"  GPUs {each.a} and {each.b}{f', under load {each.repetition}' if each.repetition else ''}: "
        f"{each.end.value}: {line(each.problem)}{_arrived(each)}"
        for each in bad
    ]
    good = len({(each.a, each.b) for each in report.p2p} - {(each.a, each.b) for each in bad})
    return [*lines, *([f"  {counted(good, 'pair')} right in every byte"] if good else [])]


def _arrived(pair: PairTruth) -> str:
    """Return how many copies between the two GPUs had correct data, for each direction.

    A fault may have prevented further copies.
    """
    ways = {
        Direction.A_TO_B: f"{pair.a} to {pair.b}",
        Direction.B_TO_A: f"{pair.b} to {pair.a}",
        Direction.BOTH: "both",
    }
    told = []
    for way, name in ways.items():
        copies = [each.arrived is Arrived.RIGHT for each in pair.copies if each.direction is way]
        told += [f"{name}: {sum(copies)} of {len(copies)} copies right"] * bool(copies)
    return f"; {', '.join(told)}" if told else ""


def _trials(report: Report) -> Iterator[str]:
    gpus = {known_or(gpu.uuid, ""): gpu.nvml_index for node in report.nodes for gpu in known_or(node.gpus, ())}
    numbers = [str(gpus[each]) for each in report.parts_tried if each in gpus]
    if numbers and len(report.nodes) == 1:
        yield f"  one rank for each GPU, from rank 0 on GPU {numbers[0]}: GPUs {', '.join(numbers)}"
    for trial in report.trials:
        names = " ".join(f"{name}={line(value)}" for name, value in trial.trial_env)
        how = trial.outcome.value.replace("_", " ")
        yield f"  {line(trial.candidate)}: {how}{f': {line(trial.problem)}' if trial.problem else ''}"
        if names:
            yield f"    set: {names}"


def _commands(report: Report) -> list[str]:
    accept = " --accept" if not isinstance(report.node_verdict, Gap) else ""
    nodes, on_each = (f" --nnodes {len(report.nodes)}", " on each node,") if len(report.nodes) > 1 else ("", "")
    when = f"#{on_each} now, and after a reset or power cycle: attach both reports"
    return [f"  preflight check{accept} --profile {line(report.profile)}{nodes}   {when}"]
