"""The first screen of `preflight probe`: a conclusion, what the node is made of, what was found, what to do next."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, RanCheck, Severity, SkippedCheck
from preflight.model.links import Expected
from preflight.search.gpus.gpu_set_advice import GpuSetAdvice
from preflight.show.checks_and_findings import counts_text, worst_first
from preflight.show.document import BLANK, Block, Heading, Text, answer_line
from preflight.show.screen import AGAIN, ALL, TOLD, fitted, foot_of, short
from preflight.show.text import Style, line
from preflight.show.topology import expected_section, gpu_set_section

ANSWERS = {
    0: ("NO FAULT FOUND", "green"),
    1: ("FAULT FOUND", "red"),
    3: ("COULD NOT LOOK", "yellow"),
}
TRY = "`preflight check{gpus}` runs real collectives: facts alone can't show that data arrive"
LOOK = "read what could not be looked at (-v), repair it, then run the same command again"
DEFECT = "report this defect of preflight, with the file that `preflight capture` writes (no names, no addresses)"


def render_probe_screen(
    node: NodeFacts,
    findings: tuple[Finding, ...],
    skipped: tuple[SkippedCheck, ...],
    ran: tuple[RanCheck, ...],
    exit_code: int,
    style: Style,
    gpu_set: GpuSetAdvice | None = None,
    expected: Expected | Gap | None = None,
) -> str:
    """Return what fits on one screen, the most important first; the rest is counted, and `-v` shows it."""
    word, tone = ANSWERS[exit_code]
    groups: list[list[Block]] = [_defect(each) for each in skipped if each.crashed]
    groups += [short(each) for each in worst_first(findings) if each.severity is not Severity.INFO]
    if gpu_set is not None and not any(each.check == "gpu-set" for each in findings):
        groups.append(_titled(gpu_set_section(gpu_set)))
    groups += [_titled(expected_section(expected))] if expected is not None else []
    groups += [short(each) for each in findings if each.severity is Severity.INFO]
    gpus = "" if gpu_set is None else f" --gpus {','.join(map(str, gpu_set.gpus))}"
    is_told = any(each.fix and each.severity is Severity.FAIL for each in findings)
    look = DEFECT if any(each.crashed for each in skipped) else TOLD if is_told else LOOK
    next_step = {0: TRY.format(gpus=gpus), 1: AGAIN, 3: look}[exit_code]
    rows = [("Next", next_step), ("Checks", f"{counts_text(ran, findings)} ({ALL})"), ("Facts", _facts(node))]
    head = replace(answer_line(word, tone, f"{node.host}: {_made_of(node)}"), most_lines=3)
    return fitted([head], groups, foot_of(rows), style)


def render_probe_verdict(node: NodeFacts, exit_code: int) -> str:
    """Return the conclusion on one line, for `-q`."""
    return f"{ANSWERS[exit_code][0]}  {line(f'{node.host}: {_made_of(node)}')}\n"


def _made_of(node: NodeFacts) -> str:
    """Return the hardware that matters, in one sentence; what could not be read is said to be unknown."""
    return "; ".join([_gpus(node), _count(node.numa_nodes, "NUMA node"), _count(node.nics, "NIC", " with RDMA")])


def _gpus(node: NodeFacts) -> str:
    if isinstance(node.gpus, Gap):
        if not isinstance(node.nvidia_pci, Gap) and not node.nvidia_pci:
            return "no NVIDIA GPU on the PCI bus"
        return f"GPUs unknown ({node.gpus.reason})"
    models = Counter(gpu.name if isinstance(gpu.name, str) else "GPU of unknown model" for gpu in node.gpus)
    return ", ".join(f"{count} x {model}" for model, count in models.items()) or "no GPU"


def _count(facts: tuple[object, ...] | Gap, name: str, more: str = "") -> str:
    if isinstance(facts, Gap):
        return f"{name}s unknown"
    return f"{len(facts) or 'no'} {name}{'' if len(facts) == 1 else 's'}{more}"


def _titled(blocks: list[Block]) -> list[Block]:
    """Return a section with its title before its first line: on this screen sections have no headings."""
    heading, first, *rest = blocks
    assert isinstance(heading, Heading) and isinstance(first, Text)
    return [BLANK, replace(first, indent=0, hang=6, label=f"{heading.title}: "), *rest]


def _defect(check: SkippedCheck) -> list[Block]:
    text = f"the check {check.check} crashed, a defect of preflight and not of the node: {check.reason}"
    return [Text(text, 0, 6, label="ERROR ", label_tone="yellow", most_lines=2)]


def _facts(node: NodeFacts) -> str:
    paths = "the paths between the GPUs, " if isinstance(node.gpu_paths, tuple) and node.gpu_paths else ""
    return f"-v shows {paths}interfaces, limits, versions, and what could not be read"
