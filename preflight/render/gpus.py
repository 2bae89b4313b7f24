"""The GPUs as a person reads them: what each model is once, and a row for what differs from GPU to GPU."""

from __future__ import annotations

from collections import Counter

from preflight.model.facts import Gap, Gpu, GpuP2p, NodeFacts
from preflight.model.gpu import ComputeMode, Mode, NvLink, PcieLink
from preflight.model.units import size_text
from preflight.render.text import INDENT, Style, clean, heading, pairs, ranges, table, wrap

UNKNOWN = "?"
NONE = "-"
BELOW = "below"  # what is odd about a GPU is too long for its row
MOST_XIDS = 5
NORMAL = frozenset({"idle", "applications_clocks", "sw_power_cap", "sync_boost", "display_clocks"})
HEADERS = ("GPU", "bdf", "NUMA", "free", "PCIe", "NVLinks", "°C", "state")
RIGHT = ("GPU", "NUMA", "free", "°C")


def gpu_section(node: NodeFacts, style: Style) -> list[str]:
    """Return the section on GPUs; a column that is known of none is left out."""
    if isinstance(node.gpus, Gap) or not node.gpus:
        return ["", "GPUs: none"] if isinstance(node.gpus, tuple) else []
    rows = [gpu_row(gpu) for gpu in node.gpus]
    used = [i for i in range(len(HEADERS)) if i == 0 or any(row[i] != UNKNOWN for row in rows)]
    titles = [HEADERS[i] for i in used]
    right = [place for place, title in enumerate(titles) if title in RIGHT]
    models = gpu_models(node.gpus)
    if not models and _is_in_matrix(node, titles):
        return []
    lines = [*heading("GPUs", style), *pairs(models, style.width)]
    if not _is_in_matrix(node, titles):
        lines += table(titles, [[row[i] for i in used] for row in rows], style.width, right=right)
    odd = [(f"GPU {gpu.nvml_index}", ", ".join(gpu_oddities(gpu))) for gpu in node.gpus if gpu_oddities(gpu)]
    lines += pairs(odd, style.width, INDENT * 2)
    access = "" if isinstance(node.gpu_p2p, Gap) else _access(node.gpu_p2p)
    return [*lines, *wrap(access, style.width, INDENT)] if access else lines


def _is_in_matrix(node: NodeFacts, titles: list[str]) -> bool:
    """Tell whether the matrix of the paths, which has a column for the NUMA node, shows all that a table would."""
    return isinstance(node.gpu_paths, tuple) and bool(node.gpu_paths) and {*titles} <= {"GPU", "NUMA"}


def xid_section(node: NodeFacts, style: Style) -> list[str]:
    """Return the newest lines of the kernel log in which the driver reports a failure."""
    if isinstance(node.xid_lines, Gap) or not node.xid_lines:
        return []
    older = len(node.xid_lines) - MOST_XIDS
    lines = heading("Xid errors in the kernel log", style)
    lines += wrap(f"{older} older ones, then:", style.width, INDENT) if older > 0 else []
    return lines + [part for each in node.xid_lines[-MOST_XIDS:] for part in wrap(clean(each), style.width, INDENT)]


def gpu_models(gpus: tuple[Gpu, ...]) -> list[tuple[str, str]]:
    """Return what each model is, beside the GPUs that are of it."""
    models: dict[str, list[int]] = {}
    for gpu in gpus:
        models.setdefault(_model(gpu), []).append(gpu.nvml_index)
    return [(f"GPU {ranges(indices)}", model) for model, indices in models.items() if model]


def _model(gpu: Gpu) -> str:
    words = [
        "" if isinstance(gpu.name, Gap) else clean(gpu.name),
        "" if isinstance(gpu.compute_capability, Gap) else f"compute capability {gpu.compute_capability}",
        "" if isinstance(gpu.memory_total_bytes, Gap) else size_text(gpu.memory_total_bytes),
        "" if isinstance(gpu.bar1_total_bytes, Gap) else f"BAR1 {size_text(gpu.bar1_total_bytes)}",
        "" if isinstance(gpu.power_limit_w, Gap) else f"{gpu.power_limit_w:g} W",
        "" if isinstance(gpu.ecc_mode, Gap) else f"ECC {'on' if gpu.ecc_mode is Mode.ENABLED else 'off'}",
    ]
    return ", ".join(word for word in words if word)


def gpu_row(gpu: Gpu) -> list[str]:
    """Return the cells of a GPU below HEADERS."""
    return [
        str(gpu.nvml_index),
        _text(gpu.bdf),
        _text(gpu.numa_node),
        UNKNOWN if isinstance(gpu.memory_free_bytes, Gap) else size_text(gpu.memory_free_bytes),
        UNKNOWN if isinstance(gpu.pcie, Gap) else _pcie(gpu.pcie),
        UNKNOWN if isinstance(gpu.nvlinks, Gap) else _links(gpu.nvlinks),
        _text(gpu.temperature_c),
        BELOW if gpu_oddities(gpu) else UNKNOWN if isinstance(gpu.processes, Gap) else "free",
    ]


def _pcie(link: PcieLink) -> str:
    """Return `x16 gen5`: the width now, and the generation under load, since that of an idle GPU is lower."""
    width = _text(link.width) if link.width == link.width_max else f"{_text(link.width)} of x{_text(link.width_max)}"
    return f"x{width} gen{_text(link.gen_max)}"


def _links(links: tuple[NvLink, ...]) -> str:
    """Return `18 x 4.0`, `17 of 18 x 4.0`, or - where there are none."""
    active = [link for link in links if link.is_active is True]
    generations = {_text(link.generation) for link in active}
    count = str(len(active)) if len(active) == len(links) else f"{len(active)} of {len(links)}"
    return f"{count} x {'/'.join(sorted(generations))}" if generations else (count if links else NONE)


def gpu_oddities(gpu: Gpu) -> list[str]:
    """Return what is not as it is on a free and healthy GPU."""
    words = ["MIG"] if gpu.mig_mode is Mode.ENABLED else []
    if isinstance(gpu.compute_mode, ComputeMode) and gpu.compute_mode is not ComputeMode.DEFAULT:
        words.append(gpu.compute_mode.value.replace("_", " "))
    reasons = () if isinstance(gpu.throttle_reasons, Gap) else gpu.throttle_reasons
    words += [clean(reason).replace("_", " ") for reason in reasons if reason not in NORMAL]
    if isinstance(gpu.processes, tuple) and gpu.processes:
        words.append(f"{len(gpu.processes)} process{'es' * (len(gpu.processes) > 1)}")
    if isinstance(gpu.utilization_percent, int) and gpu.utilization_percent:
        words.append(f"{gpu.utilization_percent} % busy")
    return words


def _access(pairs_of_gpus: tuple[GpuP2p, ...]) -> str:
    """Return in one sentence what the driver says of peer access."""
    read = Counter(pair.read for pair in pairs_of_gpus if not isinstance(pair.read, Gap))
    told = ", ".join(f"{status.value.replace('_', ' ')} for {count}" for status, count in read.most_common())
    if len(read) == 1:
        told = f"{next(iter(read)).value.replace('_', ' ')} for all pairs"
    return f"peer access, as the driver says: {told}" if read else ""


def _text(value: object) -> str:
    return UNKNOWN if isinstance(value, Gap) else clean(str(value))
